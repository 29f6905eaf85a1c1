"""What keeps background responses takes time and memory to load: it comes with the first of them, and for all."""

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


def kept(folder: Path) -> list[str]:
    """The files in which work is kept."""
    return [file.name for file in folder.rglob("*.work")]


def is_half_made(folder: Path) -> bool:
    """Whether some of the tables are there, in a file that is not yet where it will be."""
    for draft in folder.glob("*.work.*.new"):
        with (
            suppress(sqlite3.OperationalError),  # it is written to, or was finished just now
            closing(sqlite3.connect(f"file:{draft}?mode=ro", uri=True)) as database,
        ):
            return bool(database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0])
    return False


def drafts(folder: Path) -> list[str]:
    """What is left of files that are not yet where they will be."""
    return [file.name for file in folder.glob("*.work.*")]


def in_the_place_of_work(folder: Path) -> Path:
    """Where the file will be."""
    (database,) = folder.rglob("*.db")
    return database.with_name(f"{database.name}.work")


async def text_of_background(served: GatewayProcess) -> str:
    status, begun, _ = await served.create_response(background=True)
    assert status == 200, begun
    found = await wait_ended(served, begun["id"])
    return str(found["output"][0]["content"][0]["text"])


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_nothing_is_loaded_before_there_is_something_to_keep(tmp_path: Path) -> None:
    async with ScriptedModel(say("now"), say("later"), say("once more")).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, background=DURABLE)
        async with run_gateway_process(file) as served:
            assert (await served.create_response())[0] == 200
            assert kept(tmp_path) == []
            assert await text_of_background(served) == "later"
            assert kept(tmp_path) != []
        async with run_gateway_process(file) as served:
            assert await text_of_background(served) == "once more"


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_a_client_that_leaves_while_it_is_loaded_spoils_it_for_nobody(tmp_path: Path) -> None:
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
async def test_a_gateway_that_dies_while_it_makes_its_file_leaves_none_that_cannot_be_used(tmp_path: Path) -> None:
    async with ScriptedModel(say("one"), say("two")).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, background=DURABLE)
        async with run_gateway_process(file) as served:
            asking = asyncio.create_task(served.create_response(background=True))
            while not (is_half_made(tmp_path) or kept(tmp_path)):  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0)
            served.stop(signal.SIGKILL)
            await served.wait_exit()
            await asyncio.wait({asking})
            asking.exception()
        others = tmp_path / f"{in_the_place_of_work(tmp_path).name}.{os.getpid()}.new"
        others.touch()
        async with run_gateway_process(file) as served:
            assert drafts(tmp_path) == [others.name], "what a process that is there makes is not touched"
            assert await text_of_background(served) in {"one", "two"}, "the first may have been kept just in time"


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_where_nothing_can_be_kept_only_background_responses_are_refused(tmp_path: Path) -> None:
    async with (
        ScriptedModel(say("now"), say("later")).serve() as scripted,
        run_gateway_process(write_gateway_file(tmp_path, scripted.url, background=DURABLE)) as served,
    ):
        in_its_place = in_the_place_of_work(tmp_path)
        in_its_place.mkdir()
        status, answer, _ = await served.create_response(background=True)
        assert status == 503, answer
        assert (await served.create_response())[0] == 200
        in_its_place.rmdir()
        assert await text_of_background(served) == "later"
        served.stop()
        await served.wait_exit()
    assert any(f"Durable runs cannot be kept in {in_its_place}" in line for line in served.stderr_lines), (
        served.stderr_lines
    )
