"""Clients that ask for a stream and then take nothing of it: they cost their own answer, and nobody else's time."""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path
from typing import Any

import orjson
import pytest
from aio import aio
from gateway.process import process_of, write_file
from gateway.stand import MODEL, serving
from websockets.asyncio.client import connect

from holodeck.testing import ScriptedModel, say

SECONDS = 30.0
MORE_THAN_BUFFERS_HOLD = "x" * 12_000_000
ASKED: dict[str, Any] = {"model": MODEL, "input": "hi"}


def talkative() -> ScriptedModel:
    return ScriptedModel(lambda _: say(MORE_THAN_BUFFERS_HOLD), chunk=100_000)


async def asks_and_stops_reading(url: str) -> tuple[socket.socket, str]:
    """A connection with a stream that nobody reads any more, and the id of its response."""
    body = orjson.dumps(ASKED | {"stream": True})
    head = f"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n"
    host, port = url.removeprefix("http://").split(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, (host, int(port)))
    await loop.sock_sendall(client, head.encode() + body)
    text = b""
    while (found := re.search(rb"resp_[0-9a-f]+", text)) is None:
        text += await loop.sock_recv(client, 1024)
    return client, found[0].decode()


async def until_nothing_is_in_flight(stand: Any) -> None:
    while b"holodeck_in_flight 0\n" not in (await stand.send("GET", "/metrics"))[1]:  # noqa: ASYNC110 - it is told nowhere
        await asyncio.sleep(0.02)


@pytest.mark.proves("D-28")
@aio(SECONDS)
async def test_a_reader_that_takes_nothing_is_let_go_and_its_response_is_kept_whole(tmp_path: Path) -> None:
    limits = {"drain_seconds": 0, "reader_seconds": 0.3}
    async with serving(tmp_path, talkative(), limits=limits) as stand:
        client, response = await asks_and_stops_reading(stand.url)
        with client:
            await until_nothing_is_in_flight(stand)
            kept = (await stand.send("GET", f"/v1/responses/{response}"))[1]
            assert kept["status"] == "completed", "the model had said everything"
            assert kept["output"][0]["content"][0]["text"] == MORE_THAN_BUFFERS_HOLD
            metrics = (await stand.send("GET", "/metrics"))[1].decode()
            assert 'holodeck_runs_total{model="demo",status="completed"} 1' in metrics


@aio(SECONDS)
async def test_a_socket_that_takes_nothing_is_let_go(tmp_path: Path) -> None:
    limits = {"drain_seconds": 0, "reader_seconds": 0.3}
    async with serving(tmp_path, talkative(), limits=limits) as stand:
        address = stand.url.replace("http", "ws", 1) + "/v1/responses"
        async with connect(address, max_queue=1, close_timeout=0.1) as client:
            await client.send(orjson.dumps(ASKED | {"type": "response.create"}).decode())
            assert orjson.loads(await client.recv())["type"] == "response.created"
            await until_nothing_is_in_flight(stand)


@aio(SECONDS)
async def test_a_reader_that_takes_nothing_cannot_keep_the_gateway_from_ending(tmp_path: Path) -> None:
    async with talkative().serve() as scripted:
        file = write_file(tmp_path, scripted.url, limits={"drain_seconds": 0.2})
        async with process_of(file) as served:
            client, _ = await asks_and_stops_reading(served.url)
            with client:
                served.stop()
                assert await served.ended() == 0
            assert "Traceback" not in "".join(served.said)
