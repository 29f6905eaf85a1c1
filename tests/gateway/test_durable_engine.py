"""The engine of durable runs is loaded with the first background response, once for all of them."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import pytest
from async_tests import async_test
from gateway.gateway_process import GatewayProcess, run_gateway_process, write_gateway_file
from gateway.test_durable_runs import wait_ended

from holodeck.testing import ScriptedModel, say

SECONDS = 60.0
JSON = "Content-Type: application/json\r\n"
DURABLE = {"durable": True}


def work_files(folder: Path) -> list[str]:
    """Names of the databases of durable runs."""
    return [file.name for file in folder.rglob("*.work")]


def has_partial_database(folder: Path) -> bool:
    """Whether a temporary database exists that has some of its tables."""
    for draft in folder.glob("*.work.*.new"):
        with (
            suppress(sqlite3.OperationalError),  # it is locked, or has just been renamed
            closing(sqlite3.connect(f"file:{draft}?mode=ro", uri=True)) as database,
        ):
            return bool(database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0])
    return False


def drafts(folder: Path) -> list[str]:
    """Names of the temporary databases."""
    return [file.name for file in folder.glob("*.work.*")]


def work_path(folder: Path) -> Path:
    """The path of the database of durable runs."""
    (database,) = folder.rglob("*.db")
    return database.with_name(f"{database.name}.work")


async def text_of_background(served: GatewayProcess) -> str:
    status, begun, _ = await served.create_response(background=True)
    assert status == 200, begun
    found = await wait_ended(served, begun["id"])
    return str(found["output"][0]["content"][0]["text"])


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_the_durable_engine_is_not_loaded_before_the_first_background_response(tmp_path: Path) -> None:
    async with ScriptedModel(say("now"), say("later"), say("once more")).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, background=DURABLE)
        async with run_gateway_process(file) as served:
            assert (await served.create_response())[0] == 200
            assert work_files(tmp_path) == []
            assert await text_of_background(served) == "later"
            assert work_files(tmp_path) != []
        async with run_gateway_process(file) as served:
            assert await text_of_background(served) == "once more"


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_a_client_that_disconnects_while_the_engine_loads_does_not_break_it(tmp_path: Path) -> None:
    async with (
        ScriptedModel(say("one"), say("two")).serve() as scripted,
        run_gateway_process(write_gateway_file(tmp_path, scripted.url, background=DURABLE)) as served,
    ):
        address = urlsplit(served.url)
        _, writing = await asyncio.open_connection(address.hostname, address.port)
        body = orjson.dumps({"model": "demo", "input": "hi", "background": True})
        head = f"POST /v1/responses HTTP/1.1\r\nHost: {address.netloc}\r\n{JSON}Content-Length: {len(body)}\r\n\r\n"
        writing.write(head.encode() + body)
        await writing.drain()
        writing.close()
        assert await text_of_background(served) in {"one", "two"}


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_a_gateway_killed_while_it_creates_its_database_leaves_no_unusable_file(tmp_path: Path) -> None:
    async with ScriptedModel(say("one"), say("two")).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, background=DURABLE)
        async with run_gateway_process(file) as served:
            asking = asyncio.create_task(served.create_response(background=True))
            while not (has_partial_database(tmp_path) or work_files(tmp_path)):  # noqa: ASYNC110
                await asyncio.sleep(0)
            served.stop(signal.SIGKILL)
            await served.wait_exit()
            await asyncio.wait({asking})
            asking.exception()
        others = tmp_path / f"{work_path(tmp_path).name}.{os.getpid()}.new"
        others.touch()
        async with run_gateway_process(file) as served:
            assert drafts(tmp_path) == [others.name], "a temporary file of a live process is not deleted"
            assert await text_of_background(served) in {"one", "two"}, (
                "the first response may have been stored before the kill"
            )


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_without_a_usable_work_database_only_background_responses_are_refused(tmp_path: Path) -> None:
    async with (
        ScriptedModel(say("now"), say("later")).serve() as scripted,
        run_gateway_process(write_gateway_file(tmp_path, scripted.url, background=DURABLE)) as served,
    ):
        path = work_path(tmp_path)
        path.mkdir()
        status, answer, _ = await served.create_response(background=True)
        assert status == 503, answer
        assert (await served.create_response())[0] == 200
        path.rmdir()
        assert await text_of_background(served) == "later"
        served.stop()
        await served.wait_exit()
    assert any(f"Durable runs cannot be kept in {path}" in line for line in served.stderr_lines), served.stderr_lines
