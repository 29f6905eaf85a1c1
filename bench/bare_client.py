"""The limit: JSON-RPC over pipes or a socket, with nothing between the bytes and the result, and no safety at all."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import orjson

Message = dict[str, Any]
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bare", "version": "0"}}
_END_OF_CHUNKS = b"0\r\n\r\n"
_END_OF_HEAD = b"\r\n\r\n"


class BareClient:
    """What both transports share: the requests."""

    def __init__(self) -> None:
        self._ids = count(1)

    async def request(self, method: str, params: Message | None = None) -> Message:
        raise NotImplementedError

    async def notify(self, method: str) -> None:
        raise NotImplementedError

    async def shake_hands(self) -> None:
        await self.request("initialize", HELLO)
        await self.notify("notifications/initialized")

    async def call(self, name: str, arguments: Message) -> Message:
        return await self.request("tools/call", {"name": name, "arguments": arguments})

    async def list_tools(self) -> list[Message]:
        found: list[Message] = []
        params: Message = {}
        while True:
            page = await self.request("tools/list", params)
            found += page["tools"]
            if "nextCursor" not in page:
                return found
            params = {"cursor": page["nextCursor"]}


class BarePipes(BareClient, asyncio.Protocol):
    """A future for each request, a line for each message."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._pending: dict[int, asyncio.Future[Message]] = {}
        self._buffer = bytearray()
        self.out: asyncio.WriteTransport | None = None

    async def request(self, method: str, params: Message | None = None) -> Message:
        number = next(self._ids)
        future: asyncio.Future[Message] = self._loop.create_future()
        self._pending[number] = future
        self._write({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}})
        return await future

    async def notify(self, method: str) -> None:
        self._write({"jsonrpc": "2.0", "method": method})

    def data_received(self, data: bytes) -> None:
        if b"\n" not in data:
            self._buffer += data
            return
        *lines, rest = data.split(b"\n")
        if self._buffer:
            lines[0] = bytes(self._buffer + lines[0])
        self._buffer = bytearray(rest)
        for line in lines:
            message = orjson.loads(line)
            future = self._pending.pop(message.get("id", 0), None)
            if future is not None:
                future.set_result(message["result"])

    def _write(self, message: Message) -> None:
        if self.out is not None:
            self.out.write(orjson.dumps(message) + b"\n")


@asynccontextmanager
async def open_bare_pipes(command: Sequence[str]) -> AsyncIterator[BareClient]:
    loop = asyncio.get_running_loop()
    process = subprocess.Popen(  # noqa: ASYNC220 - it only waits for exec
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    client = BarePipes()
    reading, _ = await loop.connect_read_pipe(lambda: client, process.stdout)
    client.out, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, process.stdin)
    await client.shake_hands()
    try:
        yield client
    finally:
        client.out.close()
        await asyncio.to_thread(process.wait)
        reading.close()


class _Socket(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._answer: asyncio.Future[tuple[bytes, bytes]] | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment] # uvloop's is none of asyncio's classes

    async def exchange(self, request: bytes) -> tuple[bytes, bytes]:
        self._answer = asyncio.get_running_loop().create_future()
        if self.transport is not None:
            self.transport.write(request)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head_end = self._buffer.find(_END_OF_HEAD)
        if head_end < 0 or self._answer is None:
            return
        head = bytes(self._buffer[:head_end]).lower()
        if b"chunked" in head:
            if not self._buffer.endswith(_END_OF_CHUNKS):
                return
            body = _join_chunks(self._buffer, head_end + len(_END_OF_HEAD))
        else:
            length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
            if len(self._buffer) < head_end + len(_END_OF_HEAD) + length:
                return
            body = bytes(self._buffer[head_end + len(_END_OF_HEAD) :])
        self._buffer = bytearray()
        self._answer.set_result((head, body))


def _join_chunks(buffer: bytearray, start: int) -> bytes:
    """The body of its chunks."""
    parts: list[bytes] = []
    while True:
        line_end = buffer.index(b"\r\n", start)
        size = int(buffer[start:line_end], 16)
        if not size:
            return b"".join(parts)
        parts.append(bytes(buffer[line_end + 2 : line_end + 2 + size]))
        start = line_end + 2 + size + 2


class BareHttp(BareClient):
    """A POST for each request, on as many connections as there are requests at once."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url_parts = urlsplit(url)
        self._free: list[_Socket] = []
        self._session = b""

    async def request(self, method: str, params: Message | None = None) -> Message:
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params or {}}
        head, body = await self._post(message)
        if method == "initialize":
            self._session = b"mcp-session-id: " + head.partition(b"mcp-session-id: ")[2].partition(b"\r\n")[0] + b"\r\n"
        result: Message = orjson.loads(body)["result"]
        return result

    async def notify(self, method: str) -> None:
        await self._post({"jsonrpc": "2.0", "method": method})

    async def _post(self, message: Message) -> tuple[bytes, bytes]:
        body = orjson.dumps(message)
        head = (
            b"POST %b HTTP/1.1\r\nHost: x\r\nAccept: application/json, text/event-stream\r\n"
            b"Content-Type: application/json\r\n%bContent-Length: %d\r\n\r\n"
        )
        socket = self._free.pop() if self._free else await self._dial()
        answer = await socket.exchange(head % (self._url_parts.path.encode(), self._session, len(body)) + body)
        self._free.append(socket)
        return answer

    async def _dial(self) -> _Socket:
        loop = asyncio.get_running_loop()
        _, socket = await loop.create_connection(_Socket, self._url_parts.hostname or "", self._url_parts.port or 0)
        return socket

    def close(self) -> None:
        for socket in self._free:
            if socket.transport is not None:
                socket.transport.close()


@asynccontextmanager
async def open_bare_http(url: str) -> AsyncIterator[BareClient]:
    client = BareHttp(url)
    await client.shake_hands()
    try:
        yield client
    finally:
        client.close()
