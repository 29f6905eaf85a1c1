"""Clients that request a stream and do not read it are disconnected, and no other client waits for them."""

from __future__ import annotations

import asyncio
import functools
import re
import socket
from pathlib import Path
from typing import Any

import orjson
import pytest
import uvicorn
from async_tests import async_test
from gateway.gateway_process import run_gateway_process, write_gateway_file
from gateway.movable_clock import advance_clock, with_movable_clock
from gateway.running_gateway import MODEL, run_gateway
from uvicorn.server import ServerState
from websockets.asyncio.client import connect

from holodeck.gateway.http.observation import Refusals
from holodeck.gateway.metrics.counters import Metrics
from holodeck.gateway.server.admission import Admission
from holodeck.gateway.server.http_protocol import build_http_protocol
from holodeck.gateway.server.served_request import ServedRequest
from holodeck.gateway.server.slow_clients import SHUTDOWN_READER_SECONDS
from holodeck.testing import ScriptedModel, say

SECONDS = 60.0
READER_SECONDS = 600.0
MORE_THAN_BUFFERS_HOLD = "x" * 12_000_000
REQUEST: dict[str, Any] = {"model": MODEL, "input": "hi"}


def talkative() -> ScriptedModel:
    return ScriptedModel(lambda _: say(MORE_THAN_BUFFERS_HOLD), chunk=1_000_000)


async def request_and_stop_reading(url: str, *, is_streamed: bool = True) -> tuple[socket.socket, str]:
    """Send a request and stop reading its reply. Returns its connection and the id of its response."""
    body = orjson.dumps(REQUEST | {"stream": is_streamed})
    head = "POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    head += f"content-length: {len(body)}\r\n\r\n"
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


async def wait_metric(gateway: Any, sample: bytes) -> None:
    while sample + b"\n" not in (await gateway.send("GET", "/metrics"))[1]:  # noqa: ASYNC110 - no event says it
        await asyncio.sleep(0.02)


@pytest.mark.proves("D-28")
@with_movable_clock
async def test_a_client_that_does_not_read_is_disconnected_and_its_response_is_stored_whole(tmp_path: Path) -> None:
    limits = {"drain_seconds": 0, "reader_seconds": READER_SECONDS}
    async with run_gateway(tmp_path, talkative(), limits=limits) as gateway:
        client, response = await request_and_stop_reading(gateway.url)
        with client:
            while any(task.get_name() == response for task in asyncio.all_tasks()):  # noqa: ASYNC110 - no event says it
                await asyncio.sleep(0.02)
            await advance_clock(READER_SECONDS + 1)
            await wait_metric(gateway, b"holodeck_in_flight 0.0")
            stored = (await gateway.send("GET", f"/v1/responses/{response}"))[1]
            assert stored["status"] == "completed", "the model had finished"
            assert stored["output"][0]["content"][0]["text"] == MORE_THAN_BUFFERS_HOLD
            await wait_metric(gateway, b'holodeck_runs_total{model="demo",status="completed"} 1.0')


@with_movable_clock
async def test_a_whole_reply_counts_as_memory_until_its_client_reads_it_or_is_disconnected(tmp_path: Path) -> None:
    limits = {"drain_seconds": 0, "reader_seconds": READER_SECONDS}
    async with run_gateway(tmp_path, talkative(), limits=limits) as gateway:
        budget = gateway.service.budget
        client, _ = await request_and_stop_reading(gateway.url, is_streamed=False)
        with client:
            await wait_metric(gateway, b'holodeck_runs_total{model="demo",status="completed"} 1.0')
            assert budget.used >= len(MORE_THAN_BUFFERS_HOLD)
            await advance_clock(READER_SECONDS + 1)
            await wait_metric(gateway, b"holodeck_in_flight 0.0")
            assert budget.used == 0


@with_movable_clock
async def test_a_client_that_does_not_read_during_shutdown_is_disconnected_after_a_short_wait() -> None:
    requested, go, written, over = (asyncio.Event() for _ in range(4))

    async def answer(request: ServedRequest) -> None:
        requested.set()
        await go.wait()
        request.start_stream(200, {"content-type": "text/plain"})
        request.write(MORE_THAN_BUFFERS_HOLD.encode())
        written.set()
        await request.drain()
        over.set()

    loop, state, config = asyncio.get_running_loop(), ServerState(), uvicorn.Config("", log_config=None)
    protocol = functools.partial(
        build_http_protocol(answer, READER_SECONDS, READER_SECONDS, Refusals(Metrics()), Admission()),
        config=config,
        server_state=state,
        app_state={},
    )
    listening = await loop.create_server(protocol, "127.0.0.1")
    async with listening:
        _, writer = await asyncio.open_connection(*listening.sockets[0].getsockname(), limit=1)
        writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await requested.wait()
        for connection in list(state.connections):
            connection.shutdown()
        go.set()
        await written.wait()
        for _ in range(20):  # bytes that the kernel buffers meanwhile count as read
            await advance_clock(SHUTDOWN_READER_SECONDS + 1)
        assert over.is_set()
        writer.close()


@async_test(SECONDS)
async def test_a_websocket_client_that_does_not_read_is_disconnected(tmp_path: Path) -> None:
    limits = {"drain_seconds": 0, "reader_seconds": 0.3}
    async with run_gateway(tmp_path, talkative(), limits=limits) as gateway:
        address = gateway.url.replace("http", "ws", 1) + "/v1/responses"
        async with connect(address, max_queue=1, close_timeout=0.1) as client:
            await client.send(orjson.dumps(REQUEST | {"type": "response.create"}).decode())
            assert orjson.loads(await client.recv())["type"] == "response.created"
            await wait_metric(gateway, b"holodeck_in_flight 0.0")


@async_test(SECONDS)
async def test_a_client_that_does_not_read_does_not_block_the_shutdown(tmp_path: Path) -> None:
    async with talkative().serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, limits={"drain_seconds": 0.2})
        async with run_gateway_process(file) as served:
            client, _ = await request_and_stop_reading(served.url)
            with client:
                served.stop()
                assert await served.wait_exit() == 0
            assert "Traceback" not in "".join(served.stderr_lines)


@async_test
async def test_a_reply_that_is_cancelled_by_the_shutdown_raises_no_error(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, talkative(), limits={"drain_seconds": 0}) as gateway:
        client, _ = await request_and_stop_reading(gateway.url, is_streamed=False)
        with client:
            await wait_metric(gateway, b'holodeck_runs_total{model="demo",status="completed"} 1.0')
            (answering,) = (task for task in asyncio.all_tasks() if "serve_http" in repr(task.get_coro()))
            gateway.service.app.is_draining = True
            answering.cancel("timeout graceful shutdown exceeded")
            await answering
