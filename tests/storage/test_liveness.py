"""A process that shares a folder is there until it ends, however it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from async_tests import async_test

from holodeck.lib.errors import StorageError
from holodeck.storage.factory import open_store
from holodeck.storage.liveness import FileLiveness
from holodeck.storage.store import ResponseStore

SECONDS = 90.0
STAYING = """
import sys
from pathlib import Path
from holodeck.storage.liveness import FileLiveness

presence = FileLiveness(Path(sys.argv[1]))
presence.start()
print(presence.number, flush=True)
sys.stdin.read()
presence.stop()
"""
KEEPING = """
import asyncio, sys
from pathlib import Path
from holodeck.storage.factory import open_store
from holodeck.storage.responses import StoredResponse

async def main() -> None:
    store = open_store(sys.argv[1], folder=Path(sys.argv[2]))
    await store.save(StoredResponse(id="r", caller_id="alice", created_at=1.0, status="in_progress"))
    await store.append_events("r", 0, [b"0", b"1"])
    print(store.gateway_id, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await store.close()

asyncio.run(main())
"""


@contextmanager
def run_process(code: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another live process, and the number that it prints."""
    command = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def end_process(process: subprocess.Popen[str], how: str) -> None:
    if how == "killed":
        os.kill(process.pid, signal.SIGKILL)
    else:
        assert process.stdin is not None
        process.stdin.close()
    process.wait(timeout=SECONDS)


@asynccontextmanager
async def use_store(folder: Path, url: str) -> AsyncIterator[ResponseStore]:
    store = open_store(url, folder=folder)
    try:
        yield store
    finally:
        await store.close()


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_a_process_is_alive_until_it_ends(tmp_path: Path, how: str) -> None:
    presence = FileLiveness(tmp_path / "alive")
    assert not presence.is_alive(presence.number), "not before it begins"
    with run_process(STAYING, str(tmp_path / "alive")) as (process, number):
        assert presence.is_alive(number)
        presence.start()
        presence.start()
        assert presence.is_alive(presence.number)
        end_process(process, how)
        assert not presence.is_alive(number)
    presence.stop()
    presence.stop()
    assert not presence.is_alive(presence.number)


def test_files_of_dead_processes_are_removed_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    with run_process(STAYING, str(tmp_path)) as (living, alive), run_process(STAYING, str(tmp_path)) as (dying, dead):
        end_process(dying, "killed")
        assert (tmp_path / str(dead)).exists()
        presence = FileLiveness(tmp_path)
        presence.start()
        assert {file.name for file in tmp_path.iterdir()} == {"lock", str(alive), str(presence.number)}
        assert presence.is_alive(alive)
        end_process(living, "closed")
        presence.stop()
    assert [file.name for file in tmp_path.iterdir()] == ["lock"]


def test_processes_that_register_at_once_all_stay_registered(tmp_path: Path) -> None:
    """A file that its process is about to lock is not removed by another process."""
    many = [FileLiveness(tmp_path) for _ in range(100)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(FileLiveness.start, many))
        assert all(pool.map(many[0].is_alive, [one.number for one in many]))
    for one in many:
        one.stop()
    assert not any(many[0].is_alive(one.number) for one in many)


def test_concurrent_liveness_checks_do_not_mistake_each_other_for_the_process(tmp_path: Path) -> None:
    presence = FileLiveness(tmp_path)
    with run_process(STAYING, str(tmp_path)) as (process, number):
        end_process(process, "killed")
    with ThreadPoolExecutor(8) as pool:
        assert not any(pool.map(presence.is_alive, [number] * 20_000))


@pytest.mark.proves("D-28", "D-32")
@pytest.mark.parametrize("how", ["closed", "killed"])
@async_test(SECONDS)
async def test_the_run_of_a_gateway_that_died_is_an_orphan_with_all_that_it_wrote(
    tmp_path: Path, url: str, how: str
) -> None:
    async with use_store(tmp_path, url) as store:
        with run_process(KEEPING, url, str(tmp_path)) as (process, number):
            assert await store.find_orphans() == {}
            assert await store.read_orphans() == []
            await asyncio.to_thread(end_process, process, how)
        while not (lost := await store.find_orphans()):  # noqa: ASYNC110 - PostgreSQL soon sees its end
            await asyncio.sleep(0.02)
        assert lost == {"r": number}
        assert [record.id for record in await store.read_orphans()] == ["r"]
        assert await store.read_events("r", "alice") == [b"0", b"1"]
        assert await store.append_events("r", 2, [b"2"])
        assert await store.find_orphans() == {}


@async_test(SECONDS)
async def test_a_file_is_the_same_file_by_whatever_path(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").symlink_to(tmp_path)
    with run_process(KEEPING, "sqlite:///kept.db", str(tmp_path)):
        async with use_store(tmp_path / "elsewhere", "sqlite:///kept.db") as store:
            assert await store.find_orphans() == {}


@async_test(SECONDS)
async def test_a_folder_where_no_process_can_register_is_reported_as_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "kept.db.alive").write_text("a file where a folder should be")
    async with use_store(tmp_path, "sqlite:///kept.db") as store:
        with pytest.raises(StorageError, match="cannot be used"):
            await store.assign_gateway("r")
