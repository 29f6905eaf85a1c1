"""A server that sends exactly the bytes that a test wants, and a runner that checks for leaks on either event loop."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import ssl
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
import uvloop
from patience import patience
from providers.model_exchange import TIMEOUT, collect_events, model_request

from holodeck.models.model_io import TextDelta
from holodeck.providers.base import ModelProvider

AsyncTest = Callable[..., Coroutine[Any, Any, None]]
MakeLoop = Callable[[], asyncio.AbstractEventLoop]
LOOPS: dict[str, MakeLoop] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}
CHUNK = 64 * 1024


class Peer:
    """The server's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.heads: list[str] = []

    async def read_request(self) -> Any:
        """Read a whole question; its body as JSON."""
        size = await self.read_head()
        return orjson.loads(await self.reader.readexactly(size))

    async def read_head(self) -> int:
        """Read the head of a question; how long its body is."""
        self.heads.append((await self.reader.readuntil(b"\r\n\r\n")).decode())
        return int(self.header("content-length") or 0)

    def header(self, name: str) -> str | None:
        lines = (line.partition(":") for line in self.heads[-1].split("\r\n")[1:])
        found = [value.strip() for key, _, value in lines if key.lower() == name]
        assert len(found) <= 1
        return found[0] if found else None

    async def send(self, *parts: bytes) -> None:
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()

    async def wait_closed(self) -> None:
        """Wait until the client has closed the connection; what it sends until then is dropped."""
        with suppress(ConnectionError):
            while await self.reader.read(CHUNK):
                pass


Handler = Callable[[Peer], Awaitable[None]]


class RawServer:
    """Serves each connection with `handler`, and closes it at the handler's end."""

    def __init__(self, handler: Handler) -> None:
        self.peers: list[Peer] = []
        self.port = 0
        self._handler = handler
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(Peer(reader, writer)))
        self._tasks.add(task)

    async def _serve(self, peer: Peer) -> None:
        self.peers.append(peer)
        try:
            await self._handler(peer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client disconnected
        finally:
            peer.writer.close()
            with suppress(OSError):
                await peer.writer.wait_closed()

    async def wait_handlers(self) -> None:
        """Wait until every handler has ended, as they do when the client disconnects."""
        await asyncio.wait(self._tasks)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome


@asynccontextmanager
async def serve_raw(
    handler: Handler, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[RawServer]:
    """A server on loopback; a fault of its handler fails the test."""
    raw = RawServer(handler)
    server = await asyncio.start_server(raw.serve, host, 0, ssl=tls)
    raw.port = server.sockets[0].getsockname()[1]
    try:
        yield raw
    finally:
        server.close()
        await raw.close()


def open_sockets() -> int:
    found = 0
    for each in Path("/dev/fd").iterdir():
        with suppress(OSError):
            found += stat.S_ISSOCK(os.fstat(int(each.name)).st_mode)
    return found


def run_on_loop(
    test: Callable[..., Coroutine[Any, Any, None]], make_loop: MakeLoop, *, limit: float = TIMEOUT, **arguments: Any
) -> None:
    """Run on one kind of loop, and check that no task, socket or warning remains."""
    complaints: list[dict[str, Any]] = []

    async def within() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        async with asyncio.timeout(patience(limit)):
            await test(**arguments)
            while others := asyncio.all_tasks() - {asyncio.current_task()}:  # the loop's own, that takes connections
                await asyncio.wait(others)

    before = open_sockets()
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(within())
    gc.collect()
    assert not complaints, complaints
    assert open_sockets() <= before


def both_loops(test: AsyncTest) -> Callable[..., None]:
    """An async test that is run on asyncio's loop and on uvloop, and must leave nothing behind on either."""

    def run(loop: str, **arguments: Any) -> None:
        run_on_loop(test, LOOPS[loop], **arguments)

    on_each: Any = pytest.mark.parametrize("loop", list(LOOPS))(wraps(test)(run))
    # What pytest is to give: all that the test wants, and the loop.
    signature = inspect.signature(test)
    loop = inspect.Parameter("loop", inspect.Parameter.KEYWORD_ONLY)
    on_each.__signature__ = signature.replace(parameters=[*signature.parameters.values(), loop])
    return cast("Callable[..., None]", on_each)


def chat_event(text: str, *, is_last: bool = True) -> bytes:
    """An event of the chat dialect, with all of its fields."""
    choice = {"delta": {"content": text}, "finish_reason": "stop" if is_last else None}
    return b"data: " + orjson.dumps({"choices": [choice]}) + b"\n\n"


DONE = b"data: [DONE]\n\n"


def answer_body(text: str) -> bytes:
    """The body of an answer."""
    return chat_event(text) + DONE


def http_answer(
    text: str, *headers: str, status: str = "200 OK", version: str = "1.1", body: bytes | None = None
) -> bytes:
    """A whole answer with its length."""
    content = answer_body(text) if body is None else body
    lines = [f"HTTP/{version} {status}", "Content-Type: text/event-stream", f"Content-Length: {len(content)}", *headers]
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + content


def chunked_body(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


async def ask_text(model: ModelProvider, question_text: str = "hello") -> str:
    """The text of the model's answer to a question."""
    events = await collect_events(model, model_request(question_text))
    return "".join(each.text for each in events if isinstance(each, TextDelta))


@asynccontextmanager
async def close_at_end(model: ModelProvider) -> AsyncIterator[Any]:
    """The model, closed at the end."""
    try:
        yield model
    finally:
        await model.close()
