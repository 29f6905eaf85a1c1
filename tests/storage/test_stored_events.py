"""Events of an unfinished response are stored as they occur, by one gateway at a time; others take over orphans."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest
from async_tests import async_test

from holodeck.storage.factory import open_store
from holodeck.storage.responses import StoredResponse
from holodeck.storage.store import ResponseStore

RUNNING = StoredResponse(id="r", caller_id="alice", created_at=1.0, status="in_progress", resource=b'{"at":0}')
SECONDS = 90.0


@asynccontextmanager
async def use_stores(folder: Path, url: str, count: int = 1) -> AsyncIterator[list[ResponseStore]]:
    """Several gateways on one database."""
    async with AsyncExitStack() as stack:
        stores = [open_store(url, folder=folder) for _ in range(count)]
        for store in stores:
            stack.push_async_callback(store.close)
        yield stores


async def directly(folder: Path, url: str, sql: str) -> list[tuple[object, ...]]:
    """Query the tables directly, as only the store should do."""
    if url.startswith("sqlite"):
        connection = sqlite3.connect(folder / "kept.db", isolation_level=None)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()
    server = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await server.fetch(sql)]
    finally:
        await server.close()


async def chunks(folder: Path, url: str) -> list[tuple[object, ...]]:
    return await directly(
        folder, url, "SELECT response_id, first, count FROM response_events ORDER BY response_id, first"
    )


@pytest.mark.proves("D-28")
@async_test(SECONDS)
async def test_a_stream_grows_in_chunks_and_is_read_from_any_number_by_another_gateway(
    tmp_path: Path, url: str
) -> None:
    async with use_stores(tmp_path, url, 2) as (store, other):
        await store.save(RUNNING)
        assert await other.read_events("r", "alice") == []
        assert await store.append_events("r", 0, [b"0", b"1", b"2"], resource=b'{"at":3}')
        assert await store.append_events("r", 3, [b"3"], status="queued")
        assert await store.append_events("r", 4, [b"4", b"5"])
        for after in range(-1, 7):
            expected = [b"%d" % number for number in range(after + 1, 6)]
            assert await other.read_events("r", "alice", after) == expected
        assert await other.read_events("r", "bob") is None
        assert await other.read_events("gone", "alice") is None
        assert await other.get("r", "alice") == replace(RUNNING, status="queued", resource=b'{"at":3}')


@pytest.mark.proves("D-28")
@async_test(SECONDS)
async def test_a_second_writer_is_refused_and_changes_nothing(tmp_path: Path, url: str) -> None:
    async with use_stores(tmp_path, url, 2) as (store, other):
        assert not await store.append_events("r", 0, [b"0"]), "there is no such response"
        await store.save(RUNNING)
        assert await store.append_events("r", 0, [b"0", b"1"])
        for first, events in ((0, [b"0", b"1"]), (0, [b"x"]), (1, [b"1"]), (3, [b"3"])):
            assert not await other.append_events("r", first, events, resource=b"theirs", status="queued")
        assert not await store.append_events("r", 0, [b"0", b"other"]), "not what it wrote there"
        assert await store.read_events("r", "alice") == [b"0", b"1"]
        assert await store.get("r", "alice") == RUNNING
        assert await other.append_events("r", 2, [b"2"]), "a gateway that knows the next number takes over"
        assert not await store.append_events("r", 2, [b"2"]), "and the first gateway is no longer the writer"


@pytest.mark.proves("D-28")
@async_test(SECONDS)
async def test_of_concurrent_writers_one_wins_each_sequence_number(tmp_path: Path, url: str) -> None:
    async with use_stores(tmp_path, url, 3) as stores:
        await stores[0].save(RUNNING)
        for number in range(10):
            tries = [
                store.append_events("r", number, [b"%d by %d" % (number, name)]) for name, store in enumerate(stores)
            ]
            assert sorted(await asyncio.gather(*tries)) == [False, False, True]
        stored = await stores[0].read_events("r", "alice")
        assert stored is not None
        assert [event.split()[0] for event in stored] == [b"%d" % number for number in range(10)]


@pytest.mark.proves("D-28")
@async_test(SECONDS)
async def test_events_may_be_appended_again_after_a_lost_answer(tmp_path: Path, url: str) -> None:
    async with use_stores(tmp_path, url) as (store,):
        await store.save(RUNNING)
        assert await store.append_events("r", 0, [b"0", b"1"], resource=b"{}")
        assert await store.append_events("r", 0, [b"0", b"1"], resource=b"{}")
        assert await store.append_events("r", 2, [], resource=b'{"new":1}'), "a newer state without an event"
        assert await store.append_events("r", 2, [], resource=b'{"new":1}')
        assert await store.append_events("r", 2, [b""])
        assert await store.read_events("r", "alice") == [b"0", b"1", b""]
        assert await store.append_events("r", 1, [b"1", b"", b"3"], resource=b'{"at":4}'), "with what has come since"
        assert await store.append_events("r", 0, [b"0", b"1"]), "less than what is stored"
        assert await store.read_events("r", "alice") == [b"0", b"1", b"", b"3"]
        assert await store.get("r", "alice") == replace(RUNNING, resource=b'{"at":4}')


@pytest.mark.proves("D-28")
@pytest.mark.parametrize("status", ["completed", "failed", "incomplete", "cancelled"])
@async_test(SECONDS)
async def test_a_finished_response_has_no_chunks_and_grows_no_more(tmp_path: Path, url: str, status: str) -> None:
    async with use_stores(tmp_path, url, 2) as (store, other):
        await store.save(RUNNING)
        await store.append_events("r", 0, [b"0"])
        done = replace(RUNNING, status=status, events=b"0\n1")
        await store.save(done)
        assert await chunks(tmp_path, url) == []
        for writer in (store, other):
            assert not await writer.append_events("r", 1, [b"1"])
            assert not await writer.append_events("r", 0, [b"0"], status="in_progress")
        assert await other.read_events("r", "alice") == []
        assert await other.get("r", "alice") == done


@pytest.mark.proves("D-28")
@async_test(SECONDS)
async def test_finishing_and_deleting_win_over_growing(tmp_path: Path, url: str) -> None:
    async with use_stores(tmp_path, url, 2) as (store, other):
        for number in range(20):
            running = replace(RUNNING, id=f"r{number}")
            await store.save(running)
            end = store.delete(running.id, "alice") if number % 2 else store.save(replace(running, status="completed"))
            await asyncio.gather(other.append_events(running.id, 0, [b"0"]), end)
        assert await chunks(tmp_path, url) == []


@async_test(SECONDS)
async def test_deleting_takes_the_chunks_along_and_only_for_the_owner(tmp_path: Path, url: str) -> None:
    async with use_stores(tmp_path, url) as (store,):
        await store.save(RUNNING)
        await store.append_events("r", 0, [b"0"])
        assert not await store.delete("r", "bob")
        assert await store.read_events("r", "alice") == [b"0"]
        assert await store.delete("r", "alice")
        assert await chunks(tmp_path, url) == []


@async_test(SECONDS)
async def test_an_unfinished_response_is_not_deleted_however_old(tmp_path: Path, url: str) -> None:
    async with use_stores(tmp_path, url) as (store,):
        for status in ("queued", "in_progress", "completed"):
            await store.save(replace(RUNNING, id=status, status=status))
        await store.append_events("queued", 0, [b"0"])
        assert await store.delete_older_than(100.0) == 1
        assert await store.get("completed", "alice") is None
        assert await store.read_events("queued", "alice") == [b"0"]
        assert await store.get("in_progress", "alice") is not None
        await store.save(replace(RUNNING, id="queued", status="completed"))
        assert await store.delete_older_than(100.0) == 1


@async_test(SECONDS)
async def test_chunks_without_a_response_are_deleted(tmp_path: Path, url: str) -> None:
    async with use_stores(tmp_path, url) as (store,):
        await store.save(RUNNING)
        await store.append_events("r", 0, [b"0"])
        await directly(tmp_path, url, "INSERT INTO response_events VALUES ('nothing', 0, 1, '0')")
        assert await store.delete_older_than(0.0) == 0
        assert await chunks(tmp_path, url) == [("r", 0, 1)]


@pytest.mark.proves("D-28", "D-32")
@async_test(SECONDS)
async def test_a_cancel_request_is_seen_only_by_the_gateway_that_runs_the_response(tmp_path: Path, url: str) -> None:
    async with use_stores(tmp_path, url, 2) as (store, other):
        await store.save(RUNNING)
        await store.save(replace(RUNNING, id="untouched"))
        await store.save(replace(RUNNING, id="done", status="completed"))
        assert not await other.request_cancel("r", "bob")
        assert not await other.request_cancel("gone", "alice")
        assert not await other.request_cancel("done", "alice")
        assert await store.read_cancel_requests() == []
        assert await other.request_cancel("r", "alice")
        assert await other.request_cancel("r", "alice"), "asking twice is asking once"
        assert await other.read_cancel_requests() == []
        await store.save(replace(RUNNING, status="queued"))
        await store.append_events("r", 0, [b"0"], resource=b"{}")
        assert await store.read_cancel_requests() == ["r"], "a newer state does not take it back"
        await other.assign_gateway("r")
        assert (await store.read_cancel_requests(), await other.read_cancel_requests()) == ([], ["r"])
        await other.save(replace(RUNNING, status="cancelled"))
        assert await other.read_cancel_requests() == []


@pytest.mark.proves("D-28", "D-32")
@async_test(SECONDS)
async def test_an_orphan_names_its_dead_gateway_and_can_be_taken_over(tmp_path: Path, url: str) -> None:
    async with use_stores(tmp_path, url) as (other,):
        async with use_stores(tmp_path, url) as (store,):
            lost = store.gateway_id
            assert lost != other.gateway_id
            await store.save(RUNNING)
            await store.save(replace(RUNNING, id="done", status="completed"))
            await store.save(replace(RUNNING, id="passed on", status="queued"))
            await other.assign_gateway("passed on")
            assert await other.find_orphans() == {}
            assert await other.read_orphans() == []
            assert await store.find_orphans() == {}
        assert await other.find_orphans() == {"r": lost}
        assert await other.read_orphans() == [RUNNING]
        await other.assign_gateway("r")
        await other.assign_gateway("done")
        assert await other.find_orphans() == {}
    async with use_stores(tmp_path, url) as (another,):
        assert await another.find_orphans() == {"r": other.gateway_id, "passed on": other.gateway_id}
        assert await another.append_events("r", 0, [b"0"]), "growing is keeping, too"
        assert await another.find_orphans() == {"passed on": other.gateway_id}


def test_an_in_memory_store_has_no_orphans_and_writes_no_file(tmp_path: Path) -> None:
    async def use() -> None:
        async with use_stores(tmp_path, "sqlite://:memory:") as (store,):
            await store.save(RUNNING)
            assert await store.append_events("r", 0, [b"0"])
            assert await store.find_orphans() == {}
            assert await store.read_orphans() == []
            assert await store.request_cancel("r", "alice")
            assert await store.read_cancel_requests() == ["r"]

    asyncio.run(use())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.proves("D-28", "D-32")
@async_test(SECONDS)
async def test_only_the_gateway_that_runs_a_response_can_finish_it(tmp_path: Path, url: str) -> None:
    done = replace(RUNNING, status="completed", resource=b'{"at":1}', events=b"0")
    async with use_stores(tmp_path, url, 2) as (store, other):
        await store.save(RUNNING)
        await store.append_events("r", 0, [b"0"])
        assert not await other.finish(done), "it is not that one's"
        await other.assign_gateway("r")
        assert not await store.finish(done), "another has taken it over"
        assert await other.get("r", "alice") == RUNNING
        assert await other.finish(done)
        assert await other.finish(done), "the answer may have been lost on the way"
        assert not await store.finish(replace(done, resource=b'{"at":2}'))
        assert await store.get("r", "alice") == done
        assert await chunks(tmp_path, url) == []
        await store.delete("r", "alice")
        assert not await other.finish(done), "what was deleted stays so"
        assert await store.get("r", "alice") is None
