"""A database connection on a thread of its own: jobs are done whole or not at all, and no caller harms another."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from async_tests import async_test
from patience import patience

from holodeck.lib.errors import StorageError
from holodeck.storage.jobs import Connection, Job
from holodeck.storage.sqlite.connection import SQLiteConnection
from holodeck.storage.sqlite.driver import Worker

FULL = "the disk is full"


def connect() -> SQLiteConnection:
    """A database that is full after a few pages."""
    db = sqlite3.connect(":memory:", isolation_level=None, factory=SQLiteConnection)
    db.execute("CREATE TABLE words (word TEXT PRIMARY KEY)")
    db.execute("CREATE TABLE meanings (word TEXT REFERENCES words DEFERRABLE INITIALLY DEFERRED)")
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("PRAGMA max_page_count = 20")
    return db


@asynccontextmanager
async def run_worker() -> AsyncIterator[Worker]:
    worker = Worker(connect, is_writer=True, name="test")
    try:
        yield worker
    finally:
        await worker.close()


def insert_words(*words: str) -> Job[int]:
    async def add(db: Connection) -> int:
        for word in words:
            await db.write("INSERT INTO words VALUES ($1)", word)
        return len(words)

    return add


async def read_words(worker: Worker) -> list[str]:
    rows = await worker.run(lambda db: db.fetch_rows("SELECT word FROM words ORDER BY word"))
    return [row[0] for row in rows]


@pytest.mark.proves("D-28")
@pytest.mark.parametrize("others", [0, 3])
@async_test
async def test_a_job_that_fails_half_way_is_undone_and_no_other_with_it(others: int) -> None:
    async with run_worker() as worker:
        good = [insert_words(f"good {number}") for number in range(others)]
        jobs = [*good, insert_words("half", "half"), insert_words("last")] if others else [insert_words("half", "half")]
        found = await asyncio.gather(*(worker.run(job) for job in jobs), return_exceptions=True)
        assert [isinstance(each, StorageError) for each in found].count(True) == 1
        assert await read_words(worker) == [
            *(f"good {number}" for number in range(others)),
            *(["last"] if others else []),
        ]
        assert await worker.run(insert_words("next")) == 1


@pytest.mark.parametrize("mistake", [OverflowError, StopIteration])
@pytest.mark.parametrize("others", [0, 2])
@async_test
async def test_a_mistake_in_a_job_reaches_its_caller_and_the_next_jobs_are_done(
    mistake: type[Exception], others: int
) -> None:
    async def fail(db: Connection) -> None:
        await insert_words("half")(db)
        raise mistake

    async with run_worker() as worker:
        jobs: list[Any] = [fail, *(insert_words(f"good {number}") for number in range(others))]
        found, *done = await asyncio.gather(*(worker.run(job) for job in jobs), return_exceptions=True)
        assert mistake in (type(found), type(getattr(found, "__cause__", None)))
        assert done == [1] * others
        assert await read_words(worker) == [f"good {number}" for number in range(others)]


@async_test
async def test_a_job_that_waits_for_anything_but_its_database_is_undone() -> None:
    async def wait(db: Connection) -> None:
        await insert_words("half")(db)
        await asyncio.get_running_loop().create_future()

    async def pause(db: Connection) -> None:
        await insert_words("half")(db)
        await asyncio.sleep(0)

    async with run_worker() as worker:
        for job in (wait, pause):
            with pytest.raises(RuntimeError):
                await worker.run(job)
        assert await read_words(worker) == []


@pytest.mark.proves("D-31")
@async_test
async def test_when_the_disk_is_full_what_was_acknowledged_is_there_and_nothing_else_and_the_next_is_tried() -> None:
    async with run_worker() as worker:
        assert await worker.run(insert_words("before")) == 1
        words = ["one", "x" * 1_000_000, "two"]
        found = await asyncio.gather(*(worker.run(insert_words(word)) for word in words), return_exceptions=True)
        assert FULL in str(found[1])
        acknowledged = [word for word, each in zip(words, found, strict=True) if each == 1]
        assert await read_words(worker) == sorted(["before", *acknowledged])
        assert await worker.run(insert_words("after")) == 1


@pytest.mark.proves("D-28")
@pytest.mark.parametrize("others", [0, 1])
@async_test
async def test_what_the_database_refuses_at_the_very_end_is_undone_and_the_next_is_tried(others: int) -> None:
    async with run_worker() as worker:
        jobs: list[Job[int]] = [
            lambda db: db.write_counted("INSERT INTO meanings VALUES ('none')"),
            *[insert_words("other")] * others,
        ]
        found = await asyncio.gather(*(worker.run(job) for job in jobs), return_exceptions=True)
        assert all(isinstance(each, StorageError) for each in found)
        assert await worker.run(insert_words("next")) == 1
        assert await read_words(worker) == ["next"]


@async_test
async def test_jobs_submitted_before_closing_are_done_before_it_closes() -> None:
    worker = Worker(connect, is_writer=True, name="test")
    await worker.run(insert_words("first"))
    done, _ = await asyncio.gather(worker.run(insert_words("last")), worker.close())
    assert done == 1


@async_test
async def test_a_caller_that_leaves_harms_no_other() -> None:
    async with run_worker() as worker:
        jobs: list[Any] = [insert_words("left"), insert_words("half", "half"), insert_words("stays")]
        leaving, failing, staying = [asyncio.create_task(worker.run(job)) for job in jobs]
        await asyncio.sleep(0)  # they are submitted
        leaving.cancel()
        failing.cancel()
        assert await staying == 1
        assert await read_words(worker) == ["left", "stays"]


def test_a_loop_that_ended_before_its_job_was_done_keeps_no_other_loop_waiting() -> None:
    worker = Worker(connect, is_writer=True, name="test")
    ended = asyncio.new_event_loop()
    job = ended.create_task(worker.run(insert_words("left")))
    ended.call_soon(ended.stop)
    ended.run_forever()
    ended.close()

    async def ask() -> None:
        async with asyncio.timeout(patience(20)):
            for word in ("one", "two"):
                assert await worker.run(insert_words(word)) == 1
            assert {"one", "two"} <= set(await read_words(worker))
            await worker.close()

    asyncio.run(ask())
    assert not job.done()
    job._log_destroy_pending = False  # type: ignore[attr-defined] # it went with its loop


@pytest.mark.proves("D-31")
@async_test
async def test_a_storage_error_does_not_show_the_path_of_the_database() -> None:
    def refuse() -> SQLiteConnection:
        raise PermissionError(13, "Permission denied", "/home/operator/secret.db")

    worker = Worker(refuse, is_writer=True, name="test")
    with pytest.raises(StorageError, match="may not write there") as found:
        await worker.run(insert_words("word"))
    assert "operator" not in str(found.value)
    await worker.close()
