"""A database file that is deleted or replaced under a running gateway: writes are refused, not lost."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from async_tests import async_test
from durable.crash_cases import wait_ended
from gateway.gateway_process import GatewayProcess, run_gateway_process, wait_logged, write_gateway_file

from holodeck.testing import ScriptedModel, say

SECONDS = 60.0
LOST = "storage.file_lost"


async def wait_ready(served: GatewayProcess, status: int) -> None:
    while (await served.send("GET", "/readyz"))[0] != status:  # noqa: ASYNC110 - the gateway checks at intervals
        await asyncio.sleep(0.05)


def copy_open_database(served: GatewayProcess, folder: Path) -> None:
    """Copy the open database files of a process, as an operator can."""
    for handle in Path(f"/proc/{served.process.pid}/fd").iterdir():
        name = Path(str(handle.readlink()).removesuffix(" (deleted)")).name
        if name in {"responses.db", "responses.db-wal"}:
            shutil.copy(handle, folder / name)


@pytest.mark.proves("D-31")
@pytest.mark.parametrize("removed", ["the file", "all of it", "for another"])
@async_test(SECONDS)
async def test_a_gateway_whose_database_file_was_deleted_stops_writing_and_its_data_can_be_rescued(
    tmp_path: Path, removed: str
) -> None:
    database, saved = tmp_path / "responses.db", tmp_path / "saved"
    saved.mkdir()
    async with ScriptedModel(lambda _: say("hi")).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, storage={"url": "sqlite:///responses.db"})
        async with run_gateway_process(file) as served:
            _, first, _ = await served.create_response()
            if removed == "for another":
                with closing(sqlite3.connect(tmp_path / "other.db")) as other:
                    other.execute("CREATE TABLE responses (id)")
                (tmp_path / "other.db").rename(database)
            else:
                for name in (
                    ["responses.db"]
                    if removed == "the file"
                    else ["responses.db", "responses.db-wal", "responses.db-shm"]
                ):
                    (tmp_path / name).unlink()
            line = await wait_logged(served, LOST)
            assert str(database) in line
            assert "Put that very file back" in line
            assert (await served.send("GET", "/readyz"))[0] == 503
            assert (await served.send("GET", "/healthz"))[0] == 200, "a restart would lose what can still be saved"
            for is_background in (False, True):
                status, refused, _ = await served.create_response(background=is_background)
                assert (status, refused["error"]["code"]) == (503, "storage_error")
            assert len(scripted.received) == 1, "no model is called for a response that cannot be stored"
            assert (await served.create_response(store=False))[0] == 200
            assert (await served.send("GET", f"/v1/responses/{first['id']}"))[0] == 200
            assert len([line for line in served.stderr_lines if LOST in line]) == 1
            copy_open_database(served, saved)
            served.stop()
            assert await served.wait_exit() == 0
        for name in ("responses.db", "responses.db-wal", "responses.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        for copy in saved.iterdir():
            copy.rename(tmp_path / copy.name)
        async with run_gateway_process(file) as served:
            assert (await served.send("GET", f"/v1/responses/{first['id']}"))[0] == 200
            assert (await served.create_response())[0] == 200


@async_test(SECONDS)
async def test_a_file_that_was_moved_and_is_moved_back_is_used_again(tmp_path: Path) -> None:
    database = tmp_path / "responses.db"
    async with ScriptedModel(lambda _: say("hi")).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, storage={"url": "sqlite:///responses.db"})
        async with run_gateway_process(file) as served:
            assert (await served.create_response())[0] == 200
            database.rename(tmp_path / "elsewhere.db")
            await wait_ready(served, 503)
            assert (await served.create_response())[0] == 503
            (tmp_path / "elsewhere.db").rename(database)
            await wait_ready(served, 200)
            _, last, _ = await served.create_response()
            await wait_logged(served, "storage.file_back")
        async with run_gateway_process(file) as served:
            assert (await served.send("GET", f"/v1/responses/{last['id']}"))[0] == 200


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_no_background_run_is_accepted_while_the_file_of_durable_runs_is_missing(tmp_path: Path) -> None:
    async with ScriptedModel(lambda _: say("hi")).serve() as scripted:
        storage, background = {"url": "sqlite:///responses.db"}, {"durable": True}
        file = write_gateway_file(tmp_path, scripted.url, storage=storage, background=background)
        async with run_gateway_process(file) as served:
            _, made, _ = await served.create_response(background=True)
            assert (await wait_ended(served, made["id"]))["status"] == "completed"
            for name in ("responses.db.work", "responses.db.work-wal", "responses.db.work-shm"):
                (tmp_path / name).unlink(missing_ok=True)
            assert "responses.db.work" in await wait_logged(served, LOST)
            await wait_ready(served, 503)
            assert (await served.create_response(background=True))[0] == 503
            assert (await served.create_response())[0] == 200, "a foreground response is stored in another file"
            served.stop()
            assert await served.wait_exit() == 0
        async with run_gateway_process(file) as served:
            status, made, _ = await served.create_response(background=True)
            assert status == 200, made
            assert (await wait_ended(served, made["id"]))["status"] == "completed"
