"""Timeouts for clients: the gateway disconnects those that stall, and no others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.movable_clock import advance_clock, with_movable_clock
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from websockets.asyncio.client import connect

from holodeck.gateway.mcp.connection_pool import REQUEST_SERVER_IDLE
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait

SECONDS = 5
LIMITS: dict[str, Any] = {"request_seconds": SECONDS, "reader_seconds": SECONDS, "drain_seconds": 0}
REQUEST: dict[str, Any] = {"model": MODEL, "input": "hi"}
LOOPBACK = {"allow": True, "allow_private_hosts": ["127.0.0.0/8"], "allow_insecure_hosts": ["127.0.0.1"]}
MORE_THAN_BUFFERS_HOLD = "x" * 12_000_000
GET = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n"


def post(**body: Any) -> bytes:
    data = orjson.dumps(REQUEST | body)
    head = "POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(data)}\r\n\r\n".encode() + data


def size_of(head: bytes) -> int:
    return next(int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"content-length: "))


@asynccontextmanager
async def client_of(gateway: RunningGateway) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection with small buffers."""
    host, port = gateway.url.removeprefix("http://").split(":")
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    own.setblocking(False)
    await asyncio.get_running_loop().sock_connect(own, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=own)
    try:
        yield reader, writer
    finally:
        writer.close()


@pytest.mark.proves("D-28")
@with_movable_clock
async def test_a_slow_reader_is_not_disconnected_and_can_send_another_request(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(say(MORE_THAN_BUFFERS_HOLD), chunk=1_000_000)
    async with run_gateway(tmp_path, model, limits=LIMITS) as gateway, client_of(gateway) as (reader, writer):
        _, stored = await gateway.send("POST", "/v1/responses", REQUEST)
        writer.write(GET.replace(b"models", b"responses/" + stored["id"].encode()))
        head = await reader.readuntil(b"\r\n\r\n")  # the rest exceeds the buffers until it is read
        await reader.readexactly(4_000_000)
        await advance_clock(SECONDS + 1)
        await reader.readexactly(size_of(head) - 4_000_000)
        for _ in range(4):
            await advance_clock(SECONDS + 1)
        writer.write(GET)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")


@pytest.mark.proves("D-17")
@async_test(60)
async def test_a_reply_counts_against_the_byte_budget_until_its_client_has_read_it(tmp_path: Path) -> None:
    model = ScriptedModel(say(MORE_THAN_BUFFERS_HOLD), chunk=1_000_000)
    async with run_gateway(tmp_path, model, limits=LIMITS) as gateway, client_of(gateway) as (reader, writer):
        budget, request = gateway.service.budget, post(stream=False)
        for _ in range(2):
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert budget.used >= size_of(head) > len(MORE_THAN_BUFFERS_HOLD)
            body = await reader.readexactly(size_of(head))
            while budget.used:  # noqa: ASYNC110 - no event says it
                await asyncio.sleep(0.01)
            # What was made by a run, and then the same from storage.
            request = GET.replace(b"models", b"responses/" + orjson.loads(body)["id"].encode())


@pytest.mark.proves("D-25")
@with_movable_clock
async def test_the_request_timeout_does_not_apply_to_received_requests_and_open_websockets(tmp_path: Path) -> None:
    go = wait(asyncio.Event())
    model = ScriptedModel([go, say("Hi.")], say("Hi."))
    async with run_gateway(tmp_path, model, limits=LIMITS) as gateway, client_of(gateway) as (reader, writer):
        writer.write(post())
        async with connect(gateway.url.replace("http", "ws", 1) + "/v1/responses") as client:
            await go.reached.wait()
            await advance_clock(SECONDS + 1)
            go.until.set()
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            await client.send(orjson.dumps(REQUEST | {"type": "response.create"}).decode())
            assert orjson.loads(await client.recv())["type"] == "response.created"


@pytest.mark.proves("D-25")
@with_movable_clock
async def test_an_incomplete_next_request_times_out(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, limits=LIMITS) as gateway, client_of(gateway) as (reader, writer):
        writer.write(GET)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.write(GET[:20])
        await gateway.send("GET", "/v1/models")  # by now the gateway has read the bytes above
        await advance_clock(SECONDS + 1)
        await reader.read()


@pytest.mark.proves("D-28")
@with_movable_clock
async def test_a_request_that_outlasts_the_shutdown_gets_a_503(tmp_path: Path) -> None:
    async with FaultyMCPServer("hangs-at-start") as server, run_gateway(tmp_path, mcp={"sums": server}) as gateway:
        asking = asyncio.create_task(gateway.send("POST", "/v1/mcp/servers/sums/refresh"))
        await server.received("initialize")
        gateway.service.stop()
        while not asking.done():
            await advance_clock(1)
            # What the shutdown does in threads keeps pace with the clock.
            await asyncio.to_thread(lambda: None)
        status, answer = await asking
        assert (status, answer["error"]["code"]) == (503, "shutting_down")


@pytest.mark.proves("D-27")
@with_movable_clock
async def test_a_request_server_is_used_after_a_long_model_turn(tmp_path: Path) -> None:
    go = wait(asyncio.Event())
    model = ScriptedModel([go, call("add", a=1, b=2)], say("Done."))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, request_servers=LOOPBACK) as gateway,
        client_of(gateway) as (reader, writer),
    ):
        brought = {"type": "mcp", "server_label": "mine", "server_url": server.url, "require_approval": "never"}
        writer.write(post(tools=[brought]))
        await go.reached.wait()
        await advance_clock(REQUEST_SERVER_IDLE + 1)
        go.until.set()
        head = await reader.readuntil(b"\r\n\r\n")
        answer = orjson.loads(await reader.readexactly(size_of(head)))
        assert [item.get("output") for item in answer["output"] if item["type"] == "mcp_call"] == ["3"]
