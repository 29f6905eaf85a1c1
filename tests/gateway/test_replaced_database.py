"""A database whose file is deleted or replaced under a running gateway: nothing is promised that would be lost."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from async_tests import async_test
from durable.crash_cases import wait_ended
from gateway.gateway_process import GatewayProcess, run_gateway_process, write_gateway_file

from holodeck.testing import ScriptedModel, say

SECONDS = 60.0
LOST = "storage.file_lost"


async def said(served: GatewayProcess, words: str) -> str:
    """The line of the log with these words, once it is there; nobody asks the gateway anything meanwhile."""
    while not (found := [line for line in served.stderr_lines if words in line]):  # noqa: ASYNC110 - its own words
        await asyncio.sleep(0.02)
    return found[0]


async def is_ready(served: GatewayProcess, status: int) -> None:
    while (await served.send("GET", "/readyz"))[0] != status:  # noqa: ASYNC110 - the gateway looks now and then
        await asyncio.sleep(0.05)


def save(served: GatewayProcess, folder: Path) -> None:
    """Copy what a process has open of a database, as an operator does it."""
    for handle in Path(f"/proc/{served.process.pid}/fd").iterdir():
        name = Path(str(handle.readlink()).removesuffix(" (deleted)")).name
        if name in {"kept.db", "kept.db-wal"}:
            shutil.copy(handle, folder / name)


@pytest.mark.proves("D-31")
@pytest.mark.parametrize("gone", ["the file", "all of it", "for another"])
@async_test(SECONDS)
async def test_a_gateway_whose_database_file_was_deleted_stops_writing_and_its_data_can_be_rescued(
    tmp_path: Path, gone: str
) -> None:
    database, saved = tmp_path / "kept.db", tmp_path / "saved"
    saved.mkdir()
    async with ScriptedModel(lambda _: say("hi")).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, storage={"url": "sqlite:///kept.db"})
        async with run_gateway_process(file) as served:
            _, first, _ = await served.create_response()
            if gone == "for another":
                with closing(sqlite3.connect(tmp_path / "other.db")) as other:
                    other.execute("CREATE TABLE responses (id)")
                (tmp_path / "other.db").rename(database)
            else:
                for name in ["kept.db"] if gone == "the file" else ["kept.db", "kept.db-wal", "kept.db-shm"]:
                    (tmp_path / name).unlink()
            line = await said(served, LOST)
            assert str(database) in line
            assert "Put that very file back" in line
            assert (await served.send("GET", "/readyz"))[0] == 503
            assert (await served.send("GET", "/healthz"))[0] == 200, "a restart would lose what can still be saved"
            for is_background in (False, True):
                status, refused, _ = await served.create_response(background=is_background)
                assert (status, refused["error"]["code"]) == (503, "storage_error")
            assert len(scripted.received) == 1, "no model is asked for what cannot be kept"
            assert (await served.create_response(store=False))[0] == 200
            assert (await served.send("GET", f"/v1/responses/{first['id']}"))[0] == 200
            assert len([line for line in served.stderr_lines if LOST in line]) == 1
            save(served, saved)
            served.stop()
            assert await served.wait_exit() == 0
        for name in ("kept.db", "kept.db-wal", "kept.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        for copy in saved.iterdir():
            copy.rename(tmp_path / copy.name)
        async with run_gateway_process(file) as served:
            assert (await served.send("GET", f"/v1/responses/{first['id']}"))[0] == 200
            assert (await served.create_response())[0] == 200


@async_test(SECONDS)
async def test_a_file_that_was_moved_and_is_moved_back_is_used_again(tmp_path: Path) -> None:
    database = tmp_path / "kept.db"
    async with ScriptedModel(lambda _: say("hi")).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, storage={"url": "sqlite:///kept.db"})
        async with run_gateway_process(file) as served:
            assert (await served.create_response())[0] == 200
            database.rename(tmp_path / "elsewhere.db")
            await is_ready(served, 503)
            assert (await served.create_response())[0] == 503
            (tmp_path / "elsewhere.db").rename(database)
            await is_ready(served, 200)
            _, last, _ = await served.create_response()
            await said(served, "storage.file_back")
        async with run_gateway_process(file) as served:
            assert (await served.send("GET", f"/v1/responses/{last['id']}"))[0] == 200


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_no_run_is_promised_to_survive_in_a_file_that_is_gone(tmp_path: Path) -> None:
    async with ScriptedModel(lambda _: say("hi")).serve() as scripted:
        storage, background = {"url": "sqlite:///kept.db"}, {"durable": True}
        file = write_gateway_file(tmp_path, scripted.url, storage=storage, background=background)
        async with run_gateway_process(file) as served:
            _, made, _ = await served.create_response(background=True)
            assert (await wait_ended(served, made["id"]))["status"] == "completed"
            for name in ("kept.db.work", "kept.db.work-wal", "kept.db.work-shm"):
                (tmp_path / name).unlink(missing_ok=True)
            assert "kept.db.work" in await said(served, LOST)
            await is_ready(served, 503)
            assert (await served.create_response(background=True))[0] == 503
            assert (await served.create_response())[0] == 200, "what its client waits for is kept elsewhere"
            served.stop()
            assert await served.wait_exit() == 0
        async with run_gateway_process(file) as served:
            status, made, _ = await served.create_response(background=True)
            assert status == 200, made
            assert (await wait_ended(served, made["id"]))["status"] == "completed"
