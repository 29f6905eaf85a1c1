"""Under more load than it carries, the gateway refuses requests early, answers those that it takes, and stays healthy.

The event loop of the gateway is that of the test, so that a function that the test calls in it makes it late.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import orjson
import pytest
import uvloop
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from gateway.scraped_metrics import parse_metrics
from websockets.asyncio.client import ClientConnection, connect

from holodeck.gateway.server.admission import (
    LARGE_BODY_BYTES,
    LATE_SECONDS,
    LATE_TURN,
    MAX_WAIT,
    MAX_WAITING,
    READ_SECONDS,
    STARTS_PER_TURN,
)
from holodeck.gateway.server.draining_server import ACCEPTS_PER_TURN, open_listener
from holodeck.lib.limits import KIB
from holodeck.testing import ScriptedModel, say

_GET_MODELS = b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
_READS = 10
SECONDS = 60.0
DOORS = {
    "/v1/responses": b'"code":"gateway_overloaded"',
    "/v1/chat/completions": b'"code":"gateway_overloaded"',
    "/v1/messages": b'"type":"api_error"',
    "/mcp": b'"jsonrpc":"2.0"',
}


@asynccontextmanager
async def make_late(gateway: RunningGateway) -> AsyncIterator[None]:
    """Block the event loop for a moment in every turn, until the gateway has noticed, and to the end of the block."""
    loop = asyncio.get_running_loop()
    is_blocking = True

    def block() -> None:
        if is_blocking:
            time.sleep(LATE_TURN)
            loop.call_soon(block)

    block()
    try:
        # Only requests make it look at its turns.
        while not gateway.service.admission.is_overloaded:
            assert (await gateway.send("GET", "/v1/models"))[0] in (401, 503)
        yield
    finally:
        is_blocking = False


async def _send(gateway: RunningGateway, request: bytes) -> tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    return await _read_reply(reader), reader, writer


async def _read_reply(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return head + await reader.readexactly(size)


async def _check_refused(gateway: RunningGateway, path: str, mark: bytes) -> None:
    # Of the body nothing is sent, and nobody asks who the client is.
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    reply, reader, writer = await _send(gateway, f"{head}content-length: 9\r\n\r\n".encode())
    assert reply.startswith(b"HTTP/1.1 503 "), reply
    assert b"retry-after: 2\r\n" in reply
    assert mark in reply
    # What comes of the body later is no request, and the connection can be used again.
    writer.write(b"{} GET / " + b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    assert b'{"status":"ok"}' in await _read_reply(reader)
    writer.close()


async def _check_handshake(gateway: RunningGateway) -> None:
    head = b"GET /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    reply, reader, writer = await _send(gateway, head + b"\r\n")
    assert reply.startswith(b"HTTP/1.1 503 ")
    assert await reader.read() == b"", "the connection is closed"
    writer.close()


async def _check_socket(socket: ClientConnection) -> None:
    await socket.send(orjson.dumps({"type": "response.create", "model": MODEL, "input": "?"}).decode())
    said = orjson.loads(await socket.recv())
    assert (said["type"], said["error"]["code"]) == ("error", "gateway_overloaded")


@async_test(60)
async def test_a_late_gateway_refuses_requests_before_their_bodies_and_answers_probes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    headers = {"authorization": "Bearer hd-admin"}
    async with (
        run_gateway(tmp_path, ScriptedModel(say("yes")), admins=["hd-admin"]) as gateway,
        connect(f"{gateway.url.replace('http', 'ws')}/v1/responses", additional_headers=headers) as socket,
    ):
        with caplog.at_level(logging.WARNING):
            async with make_late(gateway):
                began_at = time.monotonic()
                await asyncio.gather(
                    *(_check_refused(gateway, *door) for door in DOORS.items()),
                    _check_handshake(gateway),
                    _check_socket(socket),
                )
                refused = gateway.service.admission.refused
                lines = [each for each in caplog.records if each.getMessage().startswith("gateway.overloaded")]
                assert refused > len(DOORS)
                assert 1 <= len(lines) <= time.monotonic() - began_at + 2 * LATE_SECONDS
            assert not gateway.model_requests
            await _wait_ready(gateway)
            status, said = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "?"}, key="hd-admin")
            assert (status, said["status"]) == (200, "completed")
        assert gateway.service.admission.longest_turn >= LATE_TURN
        _, exposed = await gateway.send("GET", "/metrics", key="hd-admin")
        assert parse_metrics(exposed).value("holodeck_refused_requests_total", code="gateway_overloaded") == refused


async def _wait_ready(gateway: RunningGateway) -> None:
    while gateway.service.admission.is_overloaded:
        # It looks at its turns by a timer of its own, and a probe makes no difference.
        assert (await gateway.send("GET", "/healthz"))[0] == 200


@async_test
async def test_requests_that_come_at_once_start_in_order_a_few_in_each_turn(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        admission, loop = gateway.service.admission, asyncio.get_running_loop()
        started: list[tuple[int, int]] = []
        turn = 0

        def start(number: int) -> None:
            started.append((number, turn))

        def count_turn() -> None:
            nonlocal turn
            turn += 1
            if admission.waiting:
                loop.call_soon(count_turn)

        for number in range(STARTS_PER_TURN + MAX_WAITING):
            assert not admission.is_overloaded
            admission.start(partial(start, number))
        assert (len(started), admission.waiting) == (STARTS_PER_TURN, MAX_WAITING)
        assert admission.is_overloaded, "there are enough in line"
        count_turn()
        assert (await gateway.send("GET", "/v1/models"))[0] == 200, "it came when there was room, and had its turn"
        assert [number for number, _ in started] == list(range(STARTS_PER_TURN + MAX_WAITING))
        assert max(Counter(turn for _, turn in started).values()) == STARTS_PER_TURN


@async_test(60)
async def test_large_bodies_that_come_at_once_are_read_one_in_each_turn_at_every_door(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    large = b"x" * (LARGE_BODY_BYTES + 1)
    head = "POST {} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n"
    turn, refused_in = 0, dict[str, int]()

    class Refusals(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.__dict__.get("event") in ("request.refused", "gateway.request"):
                refused_in[record.getMessage().partition(" request=")[2].partition(" ")[0]] = turn

    def count_turn() -> None:
        nonlocal turn
        turn += 1
        loop.call_soon(count_turn)

    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(run_gateway(tmp_path))
        url = f"{gateway.url.replace('http', 'ws')}/v1/responses"
        sockets = [await stack.enter_async_context(connect(url)) for _ in range(3)]
        host, port = gateway.url.removeprefix("http://").split(":")
        connections = [socket.create_connection((host, int(port))) for _ in DOORS]
        for door, connection in zip(DOORS, connections, strict=True):
            stack.enter_context(connection)
            # Both loops are this one: what is sent arrives together, at the next turn.
            connection.settimeout(SECONDS)
            connection.sendall(head.format(door, len(large)).encode() + large)
        await asyncio.gather(*(each.send(large.decode()) for each in sockets))
        loop, handler, logger = asyncio.get_running_loop(), Refusals(), logging.getLogger("holodeck")
        stack.enter_context(caplog.at_level(logging.INFO))
        logger.addHandler(handler)
        count_turn()
        while len(refused_in) < len(DOORS) + len(sockets):  # noqa: ASYNC110 - another task writes the log
            await asyncio.sleep(0)
        logger.removeHandler(handler)
        for connection in connections:
            assert connection.recv(KIB).startswith(b"HTTP/1.1 400 ")
    assert max(Counter(refused_in.values()).values()) == 1


@async_test
async def test_a_request_in_line_that_waits_too_long_makes_the_gateway_refuse_others_until_it_starts(
    tmp_path: Path,
) -> None:
    async with run_gateway(tmp_path) as gateway:
        admission, started = gateway.service.admission, list[int]()
        for number in range(STARTS_PER_TURN + 1):
            admission.start(partial(started.append, number))
        before = admission.is_overloaded
        time.sleep(MAX_WAIT)  # noqa: ASYNC251 - a long computation
        assert (before, admission.is_overloaded) == (False, True)
        assert (await gateway.send("GET", "/v1/models"))[0] == 200, "it came after the one that had waited"
        assert (started[-1], admission.refused) == (STARTS_PER_TURN, 0)


@async_test
async def test_data_that_comes_at_once_is_read_in_order_for_a_part_of_each_turn_and_a_probe_before_it(
    tmp_path: Path,
) -> None:
    async with run_gateway(tmp_path) as gateway:
        admission, order = gateway.service.admission, list[str]()
        _, reader, writer = await _send(gateway, _GET_MODELS)
        host, port = gateway.url.removeprefix("http://").split(":")
        probe_reader, probe_writer = await asyncio.open_connection(host, int(port))

        def take_time() -> None:
            order.append("data")
            time.sleep(READ_SECONDS)

        # More requests than start in this turn: from here on, reading is bounded.
        for _ in range(STARTS_PER_TURN + 1):
            admission.start(lambda: None)
        time.sleep(READ_SECONDS)  # noqa: ASYNC251 - the data of other connections
        assert (admission.is_crowded, admission.can_read()) == (True, False)
        for _ in range(_READS):
            admission.read_later(take_time)
        writer.write(_GET_MODELS)
        probe_writer.write(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        models, probe = asyncio.create_task(_read_reply(reader)), asyncio.create_task(_read_reply(probe_reader))
        models.add_done_callback(lambda _: order.append("models"))
        probe.add_done_callback(lambda _: order.append("probe"))
        await asyncio.wait([models, probe])
        writer.close()
        probe_writer.close()
    assert order.index("probe") < _READS // 2, "a probe waits for no other data"
    assert order.index("models") == _READS + 1, "what came later was read later"
    assert b"connection: close" in probe.result()
    assert models.result().startswith(b"HTTP/1.1 200 ")


def test_connections_that_wait_are_accepted_many_in_each_turn_of_the_event_loop() -> None:
    listeners = open_listener("127.0.0.1", 0)
    address, waiting = listeners[0].getsockname(), 4 * ACCEPTS_PER_TURN

    class Counted(asyncio.Protocol):
        made = 0

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            Counted.made += 1
            transport.close()

    async def count_turns() -> int:
        loop, turns = asyncio.get_running_loop(), 0
        servers = [await loop.create_server(Counted, sock=listener) for listener in listeners]
        while Counted.made < waiting:
            turns += 1
            await asyncio.sleep(0)
        for server in servers:
            server.close()
            await server.wait_closed()
        return turns

    with ExitStack() as stack:
        for listener in listeners:
            stack.enter_context(listener)
        for _ in range(waiting):
            stack.enter_context(socket.create_connection(address))
        # The event loop of `holodeck serve`.
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        assert runner.run(count_turns()) < waiting / 2
