"""What a streamed chunk costs: CPU of the reader in each dialect, against a bare loop over the same HTTP client.

A server of its own process sends one chunk at a time, so that the reader wakes up for each, as with a real model.
The `openai` package is a column only where it is installed.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import orjson

from bench.table import print_table
from holodeck.models.items import text_message
from holodeck.models.model_io import ModelAnswer, ModelRequest
from holodeck.providers.anthropic import Anthropic
from holodeck.providers.base import ModelProvider
from holodeck.providers.openai_chat import ChatCompletions
from holodeck.providers.openai_responses import Responses
from holodeck.providers.wrappers.guarded import GuardedModel
from holodeck.testing.model.dialects import AnthropicWriter, ChatWriter, ResponsesWriter, Writer
from holodeck.testing.model.script import Say

CHUNKS = 400
ROUNDS = 5
PAUSE = 0.0002  # between two chunks
PATHS: dict[str, str] = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}
WRITERS: dict[str, Callable[[str, int], Writer]] = {
    "chat": ChatWriter,
    "responses": ResponsesWriter,
    "anthropic": AnthropicWriter,
}
REQUEST = ModelRequest(items=(text_message("user", "hello"),))
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
Reader = Callable[[], Awaitable[object]]


def main() -> None:
    """Start the server, measure, print."""
    with subprocess.Popen(
        [sys.executable, "-c", "from bench.chunks import serve; serve()"], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            asyncio.run(_measure(int(server.stdout.readline())))
        finally:
            server.terminate()


async def _measure(port: int) -> None:
    base = f"http://127.0.0.1:{port}"
    client = aiohttp.ClientSession()
    rows = []
    for dialect in PATHS:
        model = _model(dialect, base)
        wrapped = GuardedModel(model)
        readers: dict[str, Reader] = {
            "bytes": lambda d=dialect: _read_bytes(client, base + PATHS[d]),  # type: ignore[misc]
            "bare": lambda d=dialect: _read_bare(client, base + PATHS[d]),  # type: ignore[misc]
            "ours": lambda m=model: _read_ours(m),  # type: ignore[misc]
            "wrapped": lambda m=wrapped: _read_ours(m),  # type: ignore[misc]
        }
        package = _openai_reader(dialect, base)
        if package is not None:
            readers["openai"] = package
        rows.append([dialect, *_cells(await _measure_readers(readers))])
        await model.close()
    await client.close()
    header = ["dialect", "bytes only", "bare loop with JSON", "ours", "ours with wrappers", "openai package"]
    print_table(
        f"CPU per streamed chunk, {CHUNKS} chunks one at a time (median of {ROUNDS}, interleaved)", header, rows
    )


async def _measure_readers(readers: dict[str, Reader]) -> dict[str, float]:
    """Microseconds of CPU per chunk."""
    times: dict[str, list[float]] = {name: [] for name in readers}
    for _ in range(ROUNDS + 1):
        for name, read in readers.items():
            before = time.process_time()
            await read()
            times[name].append((time.process_time() - before) / CHUNKS * 1e6)
    return {name: statistics.median(values[1:]) for name, values in times.items()}  # the first is for warming up


def _cells(times: dict[str, float]) -> list[str]:
    bare = times["bare"]
    cells = [f"{times[name]:.1f} us ({times[name] / bare:.2f}x)" for name in ("bytes", "bare", "ours", "wrapped")]
    return [*cells, f"{times['openai']:.1f} us ({times['openai'] / bare:.2f}x)" if "openai" in times else "-"]


def _model(dialect: str, base: str) -> ModelProvider:
    if dialect == "anthropic":
        return Anthropic(model="m", base_url=base)
    return (Responses if dialect == "responses" else ChatCompletions)(model="m", base_url=f"{base}/v1")


async def _read_ours(model: ModelProvider) -> None:
    last: object = None
    async for event in model.stream(REQUEST):
        last = event
    assert isinstance(last, ModelAnswer)


async def _read_bytes(client: aiohttp.ClientSession, url: str) -> None:
    async with client.post(url, data=b"{}") as response:
        async for _ in response.content.iter_any():
            pass


async def _read_bare(client: aiohttp.ClientSession, url: str) -> None:
    async with client.post(url, data=b"{}") as response:
        async for line in response.content:
            if line.startswith(b"data: {"):
                orjson.loads(line[6:])


def _openai_reader(dialect: str, base: str) -> Reader | None:
    if dialect == "anthropic" or importlib.util.find_spec("openai") is None:
        return None
    client: Any = importlib.import_module("openai").AsyncOpenAI(base_url=f"{base}/v1", api_key="k")

    async def read() -> None:
        if dialect == "chat":
            messages = [{"role": "user", "content": "hello"}]
            stream = await client.chat.completions.create(model="m", messages=messages, stream=True)
        else:
            stream = await client.responses.create(model="m", input="hello", stream=True)
        async for _ in stream:
            pass

    return read


def serve() -> None:
    """The server: any POST gets the stream of its dialect."""
    asyncio.run(_serve())


async def _serve() -> None:
    streams = {PATHS[name]: _stream_chunks(writer("m", 4)) for name, writer in WRITERS.items()}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _read_head(reader):
            path = head.split(b" ", 2)[1].decode()
            writer.write(HEAD)
            for chunk in streams[path]:
                writer.write(chunk)
                await asyncio.sleep(PAUSE)
            writer.write(b"0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    """The head of the next request, its body read; nothing when there is none."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            await reader.readexactly(int(line.partition(b":")[2]))
    return head


def _stream_chunks(writer: Writer) -> list[bytes]:
    events = [*writer.start(None), *writer.say(Say(text="word" * CHUNKS)), *writer.end(None, None)]
    texts = [*(writer.encode_event(event).encode() for event in events), writer.end_of_stream().encode()]
    return [b"%x\r\n%b\r\n" % (len(text), text) for text in texts if text]
