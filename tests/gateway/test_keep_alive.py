"""Client connections stay open for the next request; an incomplete request does not delay shutdown."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from async_tests import async_test
from gateway.movable_clock import advance_clock, with_movable_clock
from gateway.running_gateway import RunningGateway, run_gateway

from holodeck.gateway.server.draining_server import KEEP_ALIVE_SECONDS
from holodeck.testing import ScriptedModel, say, wait
from holodeck.testing.model.script import Turn
from holodeck.testing.model.scripted import Received

# For so long the common proxies (nginx, AWS) hold an idle connection and may still use it.
PROXY_SECONDS = 60
HALF = (
    b"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    b"content-length: 1000\r\nexpect: 100-continue\r\n\r\n"
)


class RawConnection:
    """A connection that sends and receives raw bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, request: bytes) -> bytes:
        """Send a request and return the head of its answer; the body is read, too."""
        self.writer.write(request)
        return await self.head()

    async def head(self) -> bytes:
        head = await self.reader.readuntil(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                await self.reader.readexactly(int(line.partition(b":")[2]))
        return head


async def open_raw_connection(gateway: RunningGateway) -> RawConnection:
    host, port = gateway.url.removeprefix("http://").split(":")
    return RawConnection(*await asyncio.open_connection(host, int(port)))


async def wait_not_listening(gateway: RunningGateway) -> None:
    with suppress(ConnectionError):
        while True:
            (await open_raw_connection(gateway)).writer.close()


@pytest.mark.proves("D-25")
@with_movable_clock
async def test_an_idle_connection_stays_open_longer_than_those_of_proxies_and_is_then_closed(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        client = await open_raw_connection(gateway)
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
async def test_an_incomplete_request_does_not_delay_shutdown(tmp_path: Path, begun: bytes) -> None:
    async with run_gateway(tmp_path) as gateway:
        client = await open_raw_connection(gateway)
        assert (await client.ask(HALF)).startswith(b"HTTP/1.1 100")
        client.writer.write(begun)
        gateway.service.stop()
        assert (await client.head()).startswith(b"HTTP/1.1 503")
        assert await client.reader.read() == b""
        client.writer.close()


@pytest.mark.proves("D-28")
@async_test
async def test_an_incomplete_request_is_refused_once_shutdown_begins(tmp_path: Path) -> None:
    requested, go = asyncio.Event(), asyncio.Event()

    def turn(_: Received) -> Turn:
        requested.set()
        return [wait(go), say("Hi.")]

    async with run_gateway(tmp_path, ScriptedModel(turn), limits={"drain_seconds": 30}) as gateway:
        running = asyncio.create_task(gateway.send("POST", "/v1/responses", {"model": "demo", "input": "hi"}))
        await requested.wait()
        client = await open_raw_connection(gateway)
        assert (await client.ask(HALF)).startswith(b"HTTP/1.1 100")
        gateway.service.stop()
        while (await gateway.send("GET", "/readyz"))[0] == 200:
            pass
        assert (await client.ask(b'{"model": ')).startswith(b"HTTP/1.1 503")
        client.writer.close()
        go.set()
        assert (await running)[0] == 200
        await wait_not_listening(gateway)


@pytest.mark.proves("D-28")
@async_test
async def test_a_second_stop_signal_ends_the_gateway_at_once(tmp_path: Path) -> None:
    step = wait(asyncio.Event())
    async with run_gateway(tmp_path, ScriptedModel([say("Hi"), step]), limits={"drain_seconds": 30}) as gateway:
        http = await gateway.http_client()
        body = {"model": "demo", "input": "hi", "stream": True}
        async with http.post("/v1/responses", json=body) as answer:
            await step.reached.wait()
            for _ in range(2):
                gateway.service.stop()
            with suppress(aiohttp.ClientPayloadError):
                await answer.read()


@pytest.mark.proves("D-25")
@async_test
async def test_a_body_whose_content_length_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, limits={"body_bytes": 1024, "drain_seconds": 0}) as gateway:
        client = await open_raw_connection(gateway)
        assert (await client.ask(HALF.replace(b"1000", b"2000"))).startswith(b"HTTP/1.1 413")
        client.writer.close()
