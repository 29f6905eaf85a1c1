"""A response in the making is kept as it grows, by one writer at a time, and whoever is gone leaves it to others."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest
from aio import aio

from holodeck.storage.factory import open_store
from holodeck.storage.store import ResponseStore, StoredResponse

RUNNING = StoredResponse(id="r", owner="alice", created_at=1.0, status="in_progress", resource=b'{"at":0}')
SECONDS = 90.0


@asynccontextmanager
async def opened(folder: Path, url: str, count: int = 1) -> AsyncIterator[list[ResponseStore]]:
    """Several gateways on one database."""
    async with AsyncExitStack() as stack:
        stores = [open_store(url, folder=folder) for _ in range(count)]
        for store in stores:
            stack.push_async_callback(store.close)
        yield stores


async def directly(folder: Path, url: str, sql: str) -> list[tuple[object, ...]]:
    """Ask the tables themselves, as nothing but the store should ever do."""
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
@aio(SECONDS)
async def test_a_stream_grows_in_chunks_and_is_read_from_any_number_by_another_gateway(
    tmp_path: Path, url: str
) -> None:
    async with opened(tmp_path, url, 2) as (store, other):
        await store.save(RUNNING)
        assert await other.grown("r", "alice") == []
        assert await store.grow("r", 0, [b"0", b"1", b"2"], resource=b'{"at":3}')
        assert await store.grow("r", 3, [b"3"], status="queued")
        assert await store.grow("r", 4, [b"4", b"5"])
        for after in range(-1, 7):
            expected = [b"%d" % number for number in range(after + 1, 6)]
            assert await other.grown("r", "alice", after) == expected
        assert await other.grown("r", "bob") is None
        assert await other.grown("gone", "alice") is None
        assert await other.get("r", "alice") == replace(RUNNING, status="queued", resource=b'{"at":3}')


@pytest.mark.proves("D-28")
@aio(SECONDS)
async def test_a_second_writer_is_refused_and_changes_nothing(tmp_path: Path, url: str) -> None:
    async with opened(tmp_path, url, 2) as (store, other):
        assert not await store.grow("r", 0, [b"0"]), "there is no such response"
        await store.save(RUNNING)
        assert await store.grow("r", 0, [b"0", b"1"])
        for first, events in ((0, [b"0", b"1"]), (0, [b"x"]), (1, [b"1"]), (3, [b"3"])):
            assert not await other.grow("r", first, events, resource=b"theirs", status="queued")
        assert not await store.grow("r", 0, [b"0", b"other"]), "not what it wrote there"
        assert await store.grown("r", "alice") == [b"0", b"1"]
        assert await store.get("r", "alice") == RUNNING
        assert await other.grow("r", 2, [b"2"]), "whoever knows where it is goes on"
        assert not await store.grow("r", 2, [b"2"]), "and whoever had it has it no more"


@pytest.mark.proves("D-28")
@aio(SECONDS)
async def test_of_writers_at_once_one_wins_each_place(tmp_path: Path, url: str) -> None:
    async with opened(tmp_path, url, 3) as stores:
        await stores[0].save(RUNNING)
        for place in range(10):
            tries = [store.grow("r", place, [b"%d by %d" % (place, name)]) for name, store in enumerate(stores)]
            assert sorted(await asyncio.gather(*tries)) == [False, False, True]
        kept = await stores[0].grown("r", "alice")
        assert kept is not None
        assert [event.split()[0] for event in kept] == [b"%d" % place for place in range(10)]


@pytest.mark.proves("D-28")
@aio(SECONDS)
async def test_what_was_written_may_be_written_again_after_a_lost_answer(tmp_path: Path, url: str) -> None:
    async with opened(tmp_path, url) as (store,):
        await store.save(RUNNING)
        assert await store.grow("r", 0, [b"0", b"1"], resource=b"{}")
        assert await store.grow("r", 0, [b"0", b"1"], resource=b"{}")
        assert await store.grow("r", 2, [], resource=b'{"new":1}'), "a newer state without an event"
        assert await store.grow("r", 2, [], resource=b'{"new":1}')
        assert await store.grow("r", 2, [b""])
        assert await store.grown("r", "alice") == [b"0", b"1", b""]


@pytest.mark.proves("D-28")
@pytest.mark.parametrize("status", ["completed", "failed", "incomplete", "cancelled"])
@aio(SECONDS)
async def test_a_finished_response_has_no_chunks_and_grows_no_more(tmp_path: Path, url: str, status: str) -> None:
    async with opened(tmp_path, url, 2) as (store, other):
        await store.save(RUNNING)
        await store.grow("r", 0, [b"0"])
        done = replace(RUNNING, status=status, events=b"0\n1")
        await store.save(done)
        assert await chunks(tmp_path, url) == []
        for writer in (store, other):
            assert not await writer.grow("r", 1, [b"1"])
            assert not await writer.grow("r", 0, [b"0"], status="in_progress")
        assert await other.grown("r", "alice") == []
        assert await other.get("r", "alice") == done


@pytest.mark.proves("D-28")
@aio(SECONDS)
async def test_finishing_and_deleting_win_over_growing(tmp_path: Path, url: str) -> None:
    async with opened(tmp_path, url, 2) as (store, other):
        for number in range(20):
            running = replace(RUNNING, id=f"r{number}")
            await store.save(running)
            end = store.delete(running.id, "alice") if number % 2 else store.save(replace(running, status="completed"))
            await asyncio.gather(other.grow(running.id, 0, [b"0"]), end)
        assert await chunks(tmp_path, url) == []


@aio(SECONDS)
async def test_deleting_takes_the_chunks_along_and_only_for_the_owner(tmp_path: Path, url: str) -> None:
    async with opened(tmp_path, url) as (store,):
        await store.save(RUNNING)
        await store.grow("r", 0, [b"0"])
        assert not await store.delete("r", "bob")
        assert await store.grown("r", "alice") == [b"0"]
        assert await store.delete("r", "alice")
        assert await chunks(tmp_path, url) == []


@aio(SECONDS)
async def test_what_is_in_the_making_is_not_forgotten_however_old(tmp_path: Path, url: str) -> None:
    async with opened(tmp_path, url) as (store,):
        for status in ("queued", "in_progress", "completed"):
            await store.save(replace(RUNNING, id=status, status=status))
        await store.grow("queued", 0, [b"0"])
        assert await store.forget(100.0) == 1
        assert await store.get("completed", "alice") is None
        assert await store.grown("queued", "alice") == [b"0"]
        assert await store.get("in_progress", "alice") is not None
        await store.save(replace(RUNNING, id="queued", status="completed"))
        assert await store.forget(100.0) == 1


@aio(SECONDS)
async def test_chunks_that_belong_to_nothing_are_forgotten(tmp_path: Path, url: str) -> None:
    async with opened(tmp_path, url) as (store,):
        await store.save(RUNNING)
        await store.grow("r", 0, [b"0"])
        await directly(tmp_path, url, "INSERT INTO response_events VALUES ('nothing', 0, 1, '0')")
        assert await store.forget(0.0) == 0
        assert await chunks(tmp_path, url) == [("r", 0, 1)]


@pytest.mark.proves("D-28", "D-32")
@aio(SECONDS)
async def test_a_cancellation_is_heard_by_the_keeper_and_by_nobody_else(tmp_path: Path, url: str) -> None:
    async with opened(tmp_path, url, 2) as (store, other):
        await store.save(RUNNING)
        await store.save(replace(RUNNING, id="untouched"))
        await store.save(replace(RUNNING, id="done", status="completed"))
        assert not await other.ask_cancel("r", "bob")
        assert not await other.ask_cancel("gone", "alice")
        assert not await other.ask_cancel("done", "alice")
        assert await store.cancels() == []
        assert await other.ask_cancel("r", "alice")
        assert await other.ask_cancel("r", "alice"), "asking twice is asking once"
        assert await other.cancels() == []
        await store.save(replace(RUNNING, status="queued"))
        await store.grow("r", 0, [b"0"], resource=b"{}")
        assert await store.cancels() == ["r"], "a newer state does not take it back"
        await other.adopt("r")
        assert (await store.cancels(), await other.cancels()) == ([], ["r"])
        await other.save(replace(RUNNING, status="cancelled"))
        assert await other.cancels() == []


@pytest.mark.proves("D-28", "D-32")
@aio(SECONDS)
async def test_an_orphan_is_named_with_the_keeper_it_lost_and_can_be_adopted(tmp_path: Path, url: str) -> None:
    async with opened(tmp_path, url) as (other,):
        async with opened(tmp_path, url) as (store,):
            lost = store.keeper
            assert lost != other.keeper
            await store.save(RUNNING)
            await store.save(replace(RUNNING, id="done", status="completed"))
            await store.save(replace(RUNNING, id="passed on", status="queued"))
            await other.adopt("passed on")
            assert await other.orphans() == {}
            assert await other.unfinished() == []
            assert await store.orphans() == {}
        assert await other.orphans() == {"r": lost}
        assert await other.unfinished() == [RUNNING]
        await other.adopt("r")
        await other.adopt("done")
        assert await other.orphans() == {}
    async with opened(tmp_path, url) as (another,):
        assert await another.orphans() == {"r": other.keeper, "passed on": other.keeper}
        assert await another.grow("r", 0, [b"0"]), "growing is keeping, too"
        assert await another.orphans() == {"passed on": other.keeper}


def test_what_is_in_memory_only_is_nobody_elses(tmp_path: Path) -> None:
    async def use() -> None:
        async with opened(tmp_path, "sqlite://:memory:") as (store,):
            await store.save(RUNNING)
            assert await store.grow("r", 0, [b"0"])
            assert await store.orphans() == {}
            assert await store.unfinished() == []
            assert await store.ask_cancel("r", "alice")
            assert await store.cancels() == ["r"]

    asyncio.run(use())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.proves("D-28", "D-32")
@aio(SECONDS)
async def test_a_response_is_finished_by_its_keeper_or_by_nobody(tmp_path: Path, url: str) -> None:
    done = replace(RUNNING, status="completed", resource=b'{"at":1}', events=b"0")
    async with opened(tmp_path, url, 2) as (store, other):
        await store.save(RUNNING)
        await store.grow("r", 0, [b"0"])
        assert not await other.finish(done), "it is not that one's"
        await other.adopt("r")
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
