"""The only response of a gateway is written in the event loop, unless that would delay another one."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import pytest
from async_tests import async_test

from holodeck.storage.jobs import INLINE_BYTES, Connection
from holodeck.storage.responses import StoredResponse
from holodeck.storage.sqlite.connection import (
    INLINE_WRITE_PAUSE,
    INLINE_WRITE_SECONDS,
    INLINE_WRITES_IN_A_ROW,
    Durability,
    InlineWriter,
    SQLiteConnection,
)
from holodeck.storage.sqlite.driver import SQLiteDriver
from holodeck.storage.store import ResponseStore

RECORD = StoredResponse(id="first", caller_id="alice", created_at=1.0, status="completed", resource=b"{}")
MOST_JOURNAL_BYTES = 8 * 1024 * 1024
"""SQLite tidies up after a thousand pages of 4 KiB; what comes until then is much less than as much again."""


@asynccontextmanager
async def use_store(path: Path, durability: Durability = "fast") -> AsyncIterator[ResponseStore]:
    store = ResponseStore(SQLiteDriver(path, durability=durability))
    try:
        await store.save(RECORD)  # with it, everything is open
        yield store
    finally:
        await store.close()


def is_written_on_the_spot(store: ResponseStore, record: StoredResponse) -> bool:
    """Whether it is done before anything else gets its turn."""
    with closing(store.save(record, is_alone=True)) as saving:
        try:
            saving.send(None)
        except StopIteration:
            return True
        return False


@async_test
async def test_a_single_response_is_written_before_another_task_runs(tmp_path: Path) -> None:
    async with use_store(tmp_path / "kept.db") as store:
        assert is_written_on_the_spot(store, replace(RECORD, id="second"))
        assert await store.get("second", "alice") == replace(RECORD, id="second")


@async_test
async def test_a_large_response_is_written_by_the_worker_thread(tmp_path: Path) -> None:
    large = replace(RECORD, id="large", events=b"x" * (INLINE_BYTES + 1))
    async with use_store(tmp_path / "kept.db") as store:
        assert not is_written_on_the_spot(store, large)
        await store.save(large, is_alone=True)
        assert await store.get("large", "alice") == large


@async_test
async def test_with_safe_durability_responses_are_written_by_the_worker_thread(tmp_path: Path) -> None:
    async with use_store(tmp_path / "kept.db", "safe") as store:
        assert not is_written_on_the_spot(store, replace(RECORD, id="second"))


@async_test
async def test_a_newer_state_replaces_the_stored_one(tmp_path: Path) -> None:
    async with use_store(tmp_path / "kept.db") as store:
        await store.save(replace(RECORD, status="failed"), is_alone=True)
        stored = await store.get("first", "alice")
        assert stored is not None
        assert stored.status == "failed"


@async_test
async def test_another_writer_of_the_file_is_waited_for_without_holding_up_the_gateway(tmp_path: Path) -> None:
    async with use_store(tmp_path / "kept.db") as store:
        assert await store.get("first", "alice") is not None  # the reader has the file open, too
        with closing(sqlite3.connect(tmp_path / "kept.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            saving = asyncio.create_task(store.save(replace(RECORD, id="second"), is_alone=True))
            assert await store.get("first", "alice") is not None, "others are served in the meantime"
            assert not saving.done()
            other.execute("COMMIT")
        await saving
        assert await store.get("second", "alice") is not None


def test_after_a_slow_write_the_worker_thread_writes_for_a_while() -> None:
    now, took = 0.0, INLINE_WRITE_SECONDS / 2

    def clock() -> float:
        nonlocal now
        now += took
        return now

    def insert(name: str) -> bool:
        async def job(db: Connection) -> bool:
            return await db.write_counted("INSERT INTO kept VALUES ($1)", name) > 0

        return writer.run(job)

    writer = InlineWriter(clock=clock)
    with closing(sqlite3.connect(":memory:", isolation_level=None, factory=SQLiteConnection)) as connection:
        connection.execute("CREATE TABLE kept (id)")
        writer.attach(connection)
        assert insert("quick")
        took = INLINE_WRITE_SECONDS * 2
        assert insert("slow"), "it was written all the same"
        assert not insert("soon after")
        now += INLINE_WRITE_PAUSE
        assert insert("later")
        assert [row[0] for row in connection.execute("SELECT id FROM kept")] == ["quick", "slow", "later"]


@async_test(60)
async def test_the_journal_does_not_grow_for_ever(tmp_path: Path) -> None:
    async with use_store(tmp_path / "kept.db") as store:
        for number in range(20 * INLINE_WRITES_IN_A_ROW):
            await store.save(replace(RECORD, id=f"r{number}", resource=b"x" * 2_000), is_alone=True)
        assert (tmp_path / "kept.db-wal").stat().st_size < MOST_JOURNAL_BYTES
        assert await store.get(f"r{20 * INLINE_WRITES_IN_A_ROW - 1}", "alice") is not None


WRITER = """
import asyncio
from pathlib import Path
from holodeck.storage.sqlite.driver import SQLiteDriver
from holodeck.storage.store import ResponseStore
from holodeck.storage.responses import StoredResponse

async def main() -> None:
    store = ResponseStore(SQLiteDriver(Path({path!r})))
    for number in range(100_000):
        name = f"{round}-{{number}}"
        await store.save(StoredResponse(id=name, caller_id="a", created_at=1.0, status="completed"), is_alone=True)
        print(name, flush=True)

asyncio.run(main())
"""


@pytest.mark.proves("D-28")
def test_everything_that_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    acknowledged: list[str] = []
    for number in range(3):
        code = WRITER.format(path=str(path), round=number)
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        acknowledged += [process.stdout.readline().strip() for _ in range(2 * INLINE_WRITES_IN_A_ROW)]
        os.kill(process.pid, signal.SIGKILL)
        acknowledged += process.stdout.read().split("\n")[:-1]
        process.stdout.close()
        process.wait()
    assert asyncio.run(_missing(path, acknowledged)) == []


async def _missing(path: Path, names: list[str]) -> list[str]:
    async with use_store(path) as store:
        return [name for name in names if await store.get(name, "a") is None]


FULL = """
import asyncio, resource, signal
from pathlib import Path
from holodeck.lib.errors import StorageError
from holodeck.storage.sqlite.driver import SQLiteDriver
from holodeck.storage.store import ResponseStore
from holodeck.storage.responses import StoredResponse

def record(number):
    return StoredResponse(id=f"r{{number}}", caller_id="a", created_at=1.0, status="completed", events=b"x" * 30_000)

async def main() -> None:
    store = ResponseStore(SQLiteDriver(Path({path!r})))
    await store.save(record(0))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    # Room for a few more, whatever an empty database takes.
    largest = max(file.stat().st_size for file in Path({path!r}).parent.iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 200_000, resource.RLIM_INFINITY))
    kept = [0]
    try:
        for number in range(1, 100):
            await store.save(record(number), is_alone=True)
            kept.append(number)
    except StorageError as error:
        print(error)
    assert len(kept) < 100
    assert await store.get(f"r{{len(kept)}}", "a") is None
    for number in kept:
        assert await store.get(f"r{{number}}", "a") is not None
    await store.close()

asyncio.run(main())
"""


def test_a_full_disk_is_a_storage_error_and_loses_nothing(tmp_path: Path) -> None:
    code = FULL.format(path=str(tmp_path / "kept.db"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "The database cannot be used" in done.stdout
