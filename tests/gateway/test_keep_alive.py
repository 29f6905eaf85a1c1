"""Connections of clients: kept for the next request, and not waited for with half of one when the gateway ends."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from async_tests import async_test
from gateway.movable_clock import advance_clock, with_movable_clock
from gateway.running_gateway import RunningGateway, run_gateway

from holodeck.gateway.service import KEEP_ALIVE_SECONDS
from holodeck.testing import ScriptedModel, say, wait
from holodeck.testing.model.script import Turn
from holodeck.testing.model.scripted_server import Received

PROXY_SECONDS = 60  # for which the usual ones (nginx, Amazon's) keep an idle connection, and may still use it
HALF = (
    b"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    b"content-length: 1000\r\nexpect: 100-continue\r\n\r\n"
)


class RawConnection:
    """A connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, request: bytes) -> bytes:
        """The head of the answer; what follows it has come, too."""
        self.writer.write(request)
        return await self.head()

    async def head(self) -> bytes:
        head = await self.reader.readuntil(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                await self.reader.readexactly(int(line.partition(b":")[2]))
        return head


async def open_raw_connection(stand: RunningGateway) -> RawConnection:
    host, port = stand.url.removeprefix("http://").split(":")
    return RawConnection(*await asyncio.open_connection(host, int(port)))


async def until_nobody_listens(stand: RunningGateway) -> None:
    with suppress(ConnectionError):
        while True:
            (await open_raw_connection(stand)).writer.close()


@pytest.mark.proves("D-25")
@with_movable_clock
async def test_an_idle_connection_is_kept_for_longer_than_proxies_keep_theirs_and_then_closed(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as stand:
        client = await open_raw_connection(stand)
        for _ in range(3):
            assert (await client.ask(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n")).startswith(b"HTTP/1.1 200")
            await advance_clock(PROXY_SECONDS + 1)
        assert (await client.ask(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n")).startswith(b"HTTP/1.1 200")
        await advance_clock(KEEP_ALIVE_SECONDS)
        assert await client.reader.read() == b""
        client.writer.close()


@pytest.mark.proves("D-28")
@pytest.mark.parametrize("begun", [b"", b'{"model": '])
@async_test
async def test_half_a_request_does_not_keep_the_gateway_from_ending(tmp_path: Path, begun: bytes) -> None:
    async with run_gateway(tmp_path) as stand:
        client = await open_raw_connection(stand)
        assert (await client.ask(HALF)).startswith(b"HTTP/1.1 100")
        client.writer.write(begun)
        stand.service.stop()
        assert (await client.head()).startswith(b"HTTP/1.1 503")
        assert await client.reader.read() == b""
        client.writer.close()


@pytest.mark.proves("D-28")
@async_test
async def test_a_request_that_is_not_yet_whole_when_the_gateway_begins_to_end_is_refused(tmp_path: Path) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    def turn(_: Received) -> Turn:
        asked.set()
        return [wait(go), say("Hi.")]

    async with run_gateway(tmp_path, ScriptedModel(turn), limits={"drain_seconds": 30}) as stand:
        running = asyncio.create_task(stand.send("POST", "/v1/responses", {"model": "demo", "input": "hi"}))
        await asked.wait()
        client = await open_raw_connection(stand)
        assert (await client.ask(HALF)).startswith(b"HTTP/1.1 100")
        stand.service.stop()
        while (await stand.send("GET", "/readyz"))[0] == 200:
            pass
        assert (await client.ask(b'{"model": ')).startswith(b"HTTP/1.1 503")
        client.writer.close()
        go.set()
        assert (await running)[0] == 200
        await until_nobody_listens(stand)


@pytest.mark.proves("D-28")
@async_test
async def test_a_second_stop_signal_ends_the_gateway_at_once(tmp_path: Path) -> None:
    step = wait(asyncio.Event())
    async with run_gateway(tmp_path, ScriptedModel([say("Hi"), step]), limits={"drain_seconds": 30}) as stand:
        http = await stand.http_client()
        body = {"model": "demo", "input": "hi", "stream": True}
        async with http.post("/v1/responses", json=body) as answer:
            await step.reached.wait()
            for _ in range(2):
                stand.service.stop()
            with suppress(aiohttp.ClientPayloadError):
                await answer.read()


@pytest.mark.proves("D-25")
@async_test
async def test_a_body_that_says_that_it_is_too_large_is_not_waited_for(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, limits={"body_bytes": 1024, "drain_seconds": 0}) as stand:
        client = await open_raw_connection(stand)
        assert (await client.ask(HALF.replace(b"1000", b"2000"))).startswith(b"HTTP/1.1 413")
        client.writer.close()
