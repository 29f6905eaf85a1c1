"""The limit: JSON-RPC over pipes or a socket, with nothing between the bytes and the result, and no safety at all."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Literal
from urllib.parse import urlsplit

import orjson

Message = dict[str, Any]
_ABOUT_US = {"name": "bare", "version": "0"}
HELLO: Message = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": _ABOUT_US}
MODERN_VERSION = "2026-07-28"
_META = "io.modelcontextprotocol"
MODERN_META = {
    f"{_META}/protocolVersion": MODERN_VERSION,
    f"{_META}/clientCapabilities": {},
    f"{_META}/clientInfo": _ABOUT_US,
}
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

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.pid = pid
        """Of the process that it talks to."""
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
            if future is None:
                continue
            if "result" in message:
                future.set_result(message["result"])
            else:
                future.set_exception(RuntimeError(f"refused: {message}"))

    def connection_lost(self, exc: Exception | None) -> None:
        for future in self._pending.values():
            if not future.done():
                future.set_exception(ConnectionError("the process has closed its output"))

    def _write(self, message: Message) -> None:
        if self.out is not None:
            self.out.write(orjson.dumps(message) + b"\n")


@asynccontextmanager
async def open_bare_pipes(
    command: Sequence[str], *, environ: Mapping[str, str] | None = None
) -> AsyncIterator[BarePipes]:
    loop = asyncio.get_running_loop()
    process = subprocess.Popen(  # noqa: ASYNC220 - it only waits for exec
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environ
    )
    client = BarePipes(process.pid)
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
        head = bytes(self._buffer[:head_end])
        if b"chunked" in head.lower():
            if not self._buffer.endswith(_END_OF_CHUNKS):
                return
            body = _join_chunks(self._buffer, head_end + len(_END_OF_HEAD))
        else:
            length = int(_find_header(head, b"content-length") or 0)
            if len(self._buffer) < head_end + len(_END_OF_HEAD) + length:
                return
            body = bytes(self._buffer[head_end + len(_END_OF_HEAD) :])
        self._buffer = bytearray()
        self._answer.set_result((head, body))


def _find_header(head: bytes, name: bytes) -> bytes:
    """The value of a header; empty if there is none."""
    start = head.lower().find(b"\r\n" + name + b": ")
    return b"" if start < 0 else head[start + len(name) + 4 :].partition(b"\r\n")[0]


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

    def __init__(self, url: str, key: str = "") -> None:
        super().__init__()
        self._url_parts = urlsplit(url)
        self._free: list[_Socket] = []
        self._session = b""
        headers = {
            "Host": self._url_parts.netloc,
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            **({"Authorization": f"Bearer {key}"} if key else {}),
        }
        self._head = f"POST {self._url_parts.path} HTTP/1.1\r\n{_lines_of(headers)}".encode()

    async def request(self, method: str, params: Message | None = None) -> Message:
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params or {}}
        head, body = await self._post(message)
        if method == "initialize":
            session_id = _find_header(head, b"mcp-session-id").decode()
            headers = {"Mcp-Session-Id": session_id, "Mcp-Protocol-Version": HELLO["protocolVersion"]}
            self._session = _lines_of(headers).encode()
        return _result_of(head, body)

    async def notify(self, method: str) -> None:
        await self._post({"jsonrpc": "2.0", "method": method})

    async def _post(self, message: Message, headers: bytes = b"") -> tuple[bytes, bytes]:
        body = orjson.dumps(message)
        socket = await self._take_socket()
        length = b"Content-Length: %d\r\n\r\n" % len(body)
        answer = await socket.exchange(self._head + self._session + headers + length + body)
        self._free.append(socket)
        return answer

    async def _take_socket(self) -> _Socket:
        while self._free:
            socket = self._free.pop()
            # A server closes what was idle for long.
            if socket.transport is not None and not socket.transport.is_closing():
                return socket
        return await self._dial()

    async def _dial(self) -> _Socket:
        loop = asyncio.get_running_loop()
        _, socket = await loop.create_connection(_Socket, self._url_parts.hostname or "", self._url_parts.port or 0)
        return socket

    def close(self) -> None:
        for socket in self._free:
            if socket.transport is not None:
                socket.transport.close()


class ModernBareHttp(BareHttp):
    """The same in the modern era: no handshake, and each request says who asks."""

    async def shake_hands(self) -> None:
        """There is none."""

    async def request(self, method: str, params: Message | None = None) -> Message:
        sent = {**(params or {}), "_meta": MODERN_META}
        headers = {"Mcp-Protocol-Version": MODERN_VERSION, "Mcp-Method": method}
        if "name" in sent:
            headers["Mcp-Name"] = sent["name"]
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": sent}
        return _result_of(*await self._post(message, _lines_of(headers).encode()))


def _lines_of(headers: Mapping[str, str]) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


def _result_of(head: bytes, body: bytes) -> Message:
    """The result of a reply, which may be a stream of one event."""
    data = body.rpartition(b"data: ")[2] if b"text/event-stream" in head.lower() else body
    answer = orjson.loads(data)
    if "result" not in answer:
        raise RuntimeError(f"refused: {answer}")
    result: Message = answer["result"]
    return result


@asynccontextmanager
async def open_bare_http(
    url: str, *, era: Literal["legacy", "modern"] = "legacy", key: str = ""
) -> AsyncIterator[BareClient]:
    client = BareHttp(url, key) if era == "legacy" else ModernBareHttp(url, key)
    await client.shake_hands()
    try:
        yield client
    finally:
        client.close()
