"""A request that is cancelled, in whatever phase, leaves no socket and no task, and the cancellation does not wait."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import uvloop
from providers.model_exchange import TIMEOUT, model_at
from providers.raw_server import (
    Peer,
    ask_text,
    both_loops,
    chat_event,
    close_at_end,
    http_answer,
    run_on_loop,
    serve_raw,
)

from holodeck.lib.errors import ModelError
from holodeck.providers.base import ModelProvider
from holodeck.providers.http.endpoint import MODEL_CONNECT_TIMEOUT

BIG = "x" * 10_000_000


async def cancel_when(model: ModelProvider, reached: asyncio.Event, question: str = "hello") -> None:
    """Send a request, and cancel it when the phase is reached."""
    task = asyncio.create_task(ask_text(model, question))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@contextmanager
def listen_without_accepting() -> Iterator[int]:
    """A port where connections are neither taken nor refused: its queue is full."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(server.getsockname())
        yield server.getsockname()[1]


Found = list[tuple[Any, ...]]


def address(port: int) -> tuple[Any, ...]:
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port)


class Resolving:
    """A loop that finds what a test wants for every name, or looks for ever."""

    found: Found | None = None
    looked_up: asyncio.Event

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Found:
        if host != "model.example":
            return await super().getaddrinfo(host, port, **options)  # type: ignore[misc, no-any-return]
        self.looked_up.set()
        if self.found is None:
            await asyncio.Event().wait()
        return self.found or []


class ResolvingLoop(Resolving, asyncio.SelectorEventLoop):
    """A loop whose clock a test moves."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


class ResolvingUvloop(Resolving, uvloop.Loop):  # type: ignore[misc]
    """The same on uvloop."""


RESOLVING = pytest.mark.parametrize("loop", [ResolvingLoop, ResolvingUvloop])


def run_resolving(test: Any, loop: Any, found: Found | None) -> None:
    def make() -> asyncio.AbstractEventLoop:
        made: Any = loop()
        made.found = found
        made.looked_up = asyncio.Event()
        return made  # type: ignore[no-any-return]

    run_on_loop(test, make, limit=TIMEOUT + 2 * MODEL_CONNECT_TIMEOUT)  # some move the time on


@RESOLVING
def test_cancelling_while_the_name_is_looked_up(loop: Any) -> None:
    async def exchange() -> None:
        running: Any = asyncio.get_running_loop()
        async with close_at_end(model_at("http://model.example/v1")) as model:
            await cancel_when(model, running.looked_up)

    run_resolving(exchange, loop, None)


@RESOLVING
def test_cancelling_while_the_connection_is_made(loop: Any) -> None:
    async def exchange() -> None:
        running: Any = asyncio.get_running_loop()
        async with close_at_end(model_at("http://model.example/v1")) as model:
            task = asyncio.create_task(ask_text(model))
            await running.looked_up.wait()
            for _ in range(10):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with listen_without_accepting() as port:
        run_resolving(exchange, loop, [address(port)])
        run_resolving(exchange, loop, [address(port), address(port)])


@both_loops
async def test_cancelling_in_the_middle_of_the_handshake() -> None:
    reached, disconnected = asyncio.Event(), asyncio.Event()

    async def handler(peer: Peer) -> None:
        assert await peer.reader.read(1)
        reached.set()
        await peer.wait_closed()
        disconnected.set()

    async with serve_raw(handler) as server, close_at_end(model_at(server.url.replace("http:", "https:"))) as model:
        await cancel_when(model, reached)
        await disconnected.wait()


@both_loops
async def test_cancelling_while_the_request_is_sent() -> None:
    reached, goes_on, disconnected = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handler(peer: Peer) -> None:
        await peer.read_head()
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        reached.set()
        await goes_on.wait()
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        await peer.wait_closed()
        disconnected.set()

    async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
        await cancel_when(model, reached, BIG)
        goes_on.set()
        await disconnected.wait()


@both_loops
@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n" + chat_event("a", is_last=False),
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 900\r\n\r\n\x1f\x8b",
        b"HTTP/1.1 500 Oops\r\nContent-Length: 900\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ],
)
async def test_cancelling_before_and_in_the_answer(begun: bytes) -> None:
    reached, disconnected = asyncio.Event(), asyncio.Event()

    async def handler(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(begun)
        reached.set()
        await peer.wait_closed()
        disconnected.set()

    async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
        await cancel_when(model, reached)
        await disconnected.wait()


@both_loops
@pytest.mark.parametrize("question", ["hello", "y" * 1_000_000])
async def test_cancelling_in_any_iteration_of_the_loop_leaks_nothing_and_harms_no_other(question: str) -> None:
    async def handler(peer: Peer) -> None:
        while True:
            body = await peer.read_request()
            await peer.send(http_answer(body["messages"][0]["content"][-3:]))

    async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
        for turns in range(60):
            task = asyncio.create_task(ask_text(model, question))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            assert await ask_text(model, "two") == "two"
            await asyncio.wait([task])
        await model.close()
        await server.wait_handlers()


@both_loops
async def test_cancelling_a_hundred_requests_at_once() -> None:
    waiting = 0
    reached = asyncio.Event()

    async def handler(peer: Peer) -> None:
        nonlocal waiting
        await peer.read_request()
        waiting += 1
        if waiting == 100:
            reached.set()
        await peer.wait_closed()

    async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
        tasks = [asyncio.create_task(ask_text(model)) for _ in range(100)]
        await reached.wait()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)


@pytest.mark.parametrize("count", [1, 2])
def test_an_address_that_does_not_answer_fails_in_time(count: int) -> None:
    async def exchange() -> None:
        running: Any = asyncio.get_running_loop()
        async with close_at_end(model_at("http://model.example/v1")) as model:
            task = asyncio.create_task(ask_text(model))
            await running.looked_up.wait()
            running.ahead = MODEL_CONNECT_TIMEOUT + 1
            with pytest.raises(ModelError, match="no connection within 15 s") as found:
                await task
            assert found.value.is_retryable

    with listen_without_accepting() as port:
        run_resolving(exchange, ResolvingLoop, [address(port)] * count)


@RESOLVING
def test_the_second_address_of_a_name_is_tried_when_the_first_is_silent_or_refuses(loop: Any) -> None:
    async def handler(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(http_answer("a"))
        await peer.wait_closed()

    async def exchange() -> None:
        running: Any = asyncio.get_running_loop()
        with listen_without_accepting() as silent, socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))  # and does not listen
            async with serve_raw(handler) as server, close_at_end(model_at("http://model.example/v1")) as model:
                for first in (silent, closed.getsockname()[1]):
                    running.found = [address(first), address(server.port)]
                    assert await ask_text(model) == "a"
                    await model.close()
                assert server.peers[0].header("host") == "model.example"

    run_resolving(exchange, loop, [])


def test_a_handshake_that_never_ends_fails_in_time() -> None:
    async def handler(peer: Peer) -> None:
        assert await peer.reader.read(1)
        running: Any = asyncio.get_running_loop()
        running.ahead = MODEL_CONNECT_TIMEOUT + 1
        await peer.wait_closed()

    async def exchange() -> None:
        running: Any = asyncio.get_running_loop()
        async with serve_raw(handler) as server, close_at_end(model_at("https://model.example/v1")) as model:
            running.found = [address(server.port)]
            with pytest.raises(ModelError, match="no connection within 15 s"):
                await ask_text(model)

    run_resolving(exchange, ResolvingLoop, [])
