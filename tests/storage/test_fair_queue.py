"""The quota of unfinished responses holds over all gateways, and queue positions alternate between owners."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest
from async_tests import async_test
from storage.postgres_server import PostgresServer

from holodeck.storage.factory import open_store
from holodeck.storage.postgres.driver import QUOTA_LOCKS
from holodeck.storage.postgres.pool import POSTGRES_CONNECTIONS
from holodeck.storage.responses import StoredResponse
from holodeck.storage.store import ResponseStore

SECONDS = 90.0
MOST = 3


def queued(response_id: str, caller_id: str = "alice") -> StoredResponse:
    return StoredResponse(id=response_id, caller_id=caller_id, created_at=1.0, status="queued")


async def open_stores(stack: AsyncExitStack, folder: Path, url: str, count: int) -> list[ResponseStore]:
    stores = [open_store(url, folder=folder) for _ in range(count)]
    for store in stores:
        stack.push_async_callback(store.close)
    return stores


@pytest.mark.proves("D-28", "D-29")
@async_test(SECONDS)
async def test_concurrent_responses_on_several_gateways_stay_within_the_quota(tmp_path: Path, url: str) -> None:
    async with AsyncExitStack() as stack:
        stores = await open_stores(stack, tmp_path, url, 3)
        asking = [
            store.insert_within_quota(queued(f"{caller_id} {index} {number}", caller_id), quota=MOST, is_durable=True)
            for number in range(6)
            for caller_id in ("alice", "bob")
            for index, store in enumerate(stores)
        ]
        assert sum(turn is not None for turn in await asyncio.gather(*asking)) == 2 * MOST
        assert len(await stores[0].find_unfinished([f"alice {i} {n}" for i in range(3) for n in range(6)])) == MOST


@pytest.mark.proves("D-29")
@async_test(SECONDS)
async def test_only_unfinished_responses_count_against_the_quota_and_each_counts_once(tmp_path: Path, url: str) -> None:
    async with AsyncExitStack() as stack:
        (store,) = await open_stores(stack, tmp_path, url, 1)
        for number in range(MOST + 2):
            await store.save(replace(queued(f"done {number}"), status="completed"))
        assert await store.insert_within_quota(queued("a"), quota=1, is_durable=True) == 1
        assert await store.insert_within_quota(queued("a"), quota=1, is_durable=True) == 1
        assert await store.insert_within_quota(queued("b"), quota=1, is_durable=True) is None
        assert [await store.count_unfinished(caller_id) for caller_id in (queued("a").caller_id, "another caller")] == [
            1,
            0,
        ]
        assert await store.get("b", "alice") is None
        await store.finish(replace(queued("a"), status="completed"))
        assert await store.insert_within_quota(queued("b"), quota=1, is_durable=False) == 1


@async_test(SECONDS)
async def test_unfinished_responses_are_found_by_their_age_on_all_gateways(tmp_path: Path, url: str) -> None:
    async with AsyncExitStack() as stack:
        one, two = await open_stores(stack, tmp_path, url, 2)
        await one.insert_within_quota(queued("old"), quota=9, is_durable=True)
        await two.insert_within_quota(queued("old too", "bob"), quota=9, is_durable=True)
        await one.insert_within_quota(replace(queued("new"), created_at=3.0), quota=9, is_durable=True)
        await one.save(replace(queued("done"), status="completed"))
        assert await one.find_unfinished_before(2.0) == {"old": "alice", "old too": "bob"}


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_queue_positions_are_fair_between_callers(tmp_path: Path, url: str) -> None:
    async with AsyncExitStack() as stack:
        (store,) = await open_stores(stack, tmp_path, url, 1)

        async def turn(response_id: str, caller_id: str, *, is_durable: bool = True) -> int | None:
            return await store.insert_within_quota(
                queued(response_id, caller_id), quota=MOST + 1, is_durable=is_durable
            )

        assert [await turn(f"a{number}", "alice") for number in range(3)] == [1, 2, 3]
        assert await turn("b0", "bob") == 1
        for response_id in ("a0", "b0", "a1"):
            await store.append_events(response_id, 0, [b"0"], status="in_progress")
        # Beside the next of the others: idle callers gain no positions and lose none.
        assert await turn("c0", "carol") == 3
        assert [await turn("b1", "bob"), await turn("b2", "bob")] == [3, 4]
        # A response that is not queued has no position, so none is counted from it.
        assert await turn("d0", "dave", is_durable=False) is not None
        await store.append_events("d0", 0, [b"0"], status="in_progress")
        assert await turn("d1", "dave") == 3


@pytest.mark.proves("D-28")
@async_test(SECONDS)
async def test_a_caller_waiting_for_the_quota_lock_does_not_use_up_the_connection_pool(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    url = await asyncio.to_thread(postgres.new_database)
    async with AsyncExitStack() as stack:
        (store,) = await open_stores(stack, tmp_path, url, 1)
        other = await asyncpg.connect(url)
        stack.push_async_callback(other.close)
        # Another gateway is in the middle of it.
        await other.execute("SELECT pg_advisory_lock($1, hashtext('alice'))", QUOTA_LOCKS)
        entering = [
            asyncio.create_task(store.insert_within_quota(queued(f"a{number}"), quota=MOST, is_durable=True))
            for number in range(2 * POSTGRES_CONNECTIONS)
        ]
        stuck = "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid = $1"
        while not await other.fetchval(stuck, QUOTA_LOCKS):  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0)
        assert await store.insert_within_quota(queued("b", "bob"), quota=MOST, is_durable=True) == 1
        assert not any(task.done() for task in entering)
        await other.execute("SELECT pg_advisory_unlock_all()")
        assert sum(turn is not None for turn in await asyncio.gather(*entering)) == MOST
