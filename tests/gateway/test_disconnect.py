"""A disconnect cancels the work for its client and hides neither errors nor other cancellations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import uvicorn
from async_tests import async_test
from uvicorn.server import ServerState

from holodeck.gateway.http.observation import Refusals
from holodeck.gateway.metrics.counters import Metrics
from holodeck.gateway.server.admission import STARTS_PER_TURN, Admission
from holodeck.gateway.server.http_protocol import build_http_protocol
from holodeck.gateway.server.served_request import ServedRequest

Serve = Callable[[ServedRequest], Coroutine[Any, Any, None]]
SECONDS = 30.0


@asynccontextmanager
async def connected(serve: Serve, admission: Admission) -> AsyncIterator[asyncio.StreamWriter]:
    """A client of a server with this application, which has sent one request."""
    config = uvicorn.Config("", log_config=None)
    protocol = build_http_protocol(serve, SECONDS, SECONDS, Refusals(Metrics()), admission)
    made = partial(protocol, config=config, server_state=ServerState(), app_state={})
    async with await asyncio.get_running_loop().create_server(made, "127.0.0.1") as listening:
        _, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
        writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        yield writer
        writer.close()


@async_test
async def test_a_request_whose_client_disconnects_while_it_waits_in_line_is_not_run() -> None:
    admission, served = Admission(), []

    async def serve(request: ServedRequest) -> None:
        served.append(request)

    for _ in range(STARTS_PER_TURN * 200):
        admission.start(lambda: None)
    async with connected(serve, admission) as client:
        client.close()
        await client.wait_closed()
        while admission.waiting:  # noqa: ASYNC110 - the turns of the loop themselves
            await asyncio.sleep(0)
    assert not served


@async_test
async def test_a_disconnect_cancels_a_request_only_once_it_is_asked_to() -> None:
    begun, left, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def serve(request: ServedRequest) -> None:
        begun.set()
        assert await request.receive() == b""
        while not request.is_disconnected:  # noqa: ASYNC110 - what the connection reports
            await asyncio.sleep(0)
        left.set()
        request.cancel_on_disconnect()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.Event().wait()
        ended.set()

    async with connected(serve, Admission()) as client:
        await begun.wait()
        client.close()
        await left.wait()
        await ended.wait()


@async_test
async def test_a_running_request_is_cancelled_by_a_disconnect() -> None:
    tasks: asyncio.Queue[asyncio.Task[None]] = asyncio.Queue()

    async def serve(request: ServedRequest) -> None:
        request.cancel_on_disconnect()
        tasks.put_nowait(request.task)
        await asyncio.Event().wait()

    async with connected(serve, Admission()) as client:
        task = await tasks.get()
        client.close()
        with pytest.raises(asyncio.CancelledError):
            await task


@async_test
async def test_a_disconnect_after_the_reply_cancels_nothing() -> None:
    tasks: asyncio.Queue[asyncio.Task[None]] = asyncio.Queue()
    requests: list[ServedRequest] = []

    async def serve(request: ServedRequest) -> None:
        request.cancel_on_disconnect()
        request.write_reply(200, {"content-length": "0"}, b"")
        requests.append(request)
        tasks.put_nowait(request.task)
        for _ in range(20):
            await asyncio.sleep(0)

    async with connected(serve, Admission()) as client:
        task = await tasks.get()
        client.close()
        await task
    assert not requests[0].is_disconnected
