"""A WebSocket client that sends what it is told to, byte by byte, also what no library would."""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass
from typing import Any

import orjson
from gateway.running_gateway import MODEL

TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
_MASK = b"\x01\x02\x03\x04"


def upgrade_request(*headers: str, path: str = "/v1/responses") -> bytes:
    """What asks for a WebSocket."""
    lines = (
        f"GET {path} HTTP/1.1",
        "host: 127.0.0.1",
        "connection: Upgrade",
        "upgrade: websocket",
        "sec-websocket-key: MDAwMDAwMDAwMDAwMDAwMA==",
        "sec-websocket-version: 13",
        *headers,
    )
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n"


def frame_head(first: int, length: int, *, is_masked: bool = True) -> bytes:
    """The beginning of a frame: its first byte and the length that it announces."""
    masked = 0x80 if is_masked else 0
    if length < 126:
        made = bytes((first, masked | length))
    elif length < 1 << 16:
        made = struct.pack("!BBH", first, masked | 126, length)
    else:
        made = struct.pack("!BBQ", first, masked | 127, length)
    return made + (_MASK if is_masked else b"")


def encode_frame(opcode: int, data: bytes = b"", *, is_last: bool = True) -> bytes:
    mask = (_MASK * (len(data) // 4 + 1))[: len(data)]
    masked = (int.from_bytes(data) ^ int.from_bytes(mask)).to_bytes(len(data))
    return frame_head((0x80 if is_last else 0) | opcode, len(data)) + masked


def create_message(text: str = "hi", **more: Any) -> bytes:
    return orjson.dumps({"type": "response.create", "model": MODEL, "store": False, "input": text, **more})


@dataclass(kw_only=True)
class RawSocket:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read_head(self) -> bytes:
        """The head of the answer to the request."""
        return await self.reader.readuntil(b"\r\n\r\n")

    async def read_frame(self) -> tuple[int, bytes]:
        """The next frame: its opcode and its bytes."""
        first, length = await self.reader.readexactly(2)
        if length >= 126:
            length = int.from_bytes(await self.reader.readexactly(2 if length == 126 else 8))
        return first & 0x0F, await self.reader.readexactly(length)

    async def read_final_event(self) -> dict[str, Any]:
        """The next event that ends a response, or the error instead of one."""
        while True:
            opcode, data = await self.read_frame()
            told: dict[str, Any] = orjson.loads(data) if opcode == TEXT else {"type": ""}
            if told["type"] == "response.completed" or "status" in told:
                return told

    async def wait_close_code(self) -> int:
        """The code with which it is closed."""
        while True:
            opcode, data = await self.read_frame()
            if opcode == CLOSE:
                return int.from_bytes(data[:2])

    def abort(self) -> None:
        """Without a word."""
        self.writer.transport.abort()


async def open_connection(url: str, *, is_reading: bool = True) -> RawSocket:
    """A connection that has asked for nothing yet. `is_reading=False`: it takes nothing beyond what it must."""
    host, port = url.removeprefix("http://").split(":")
    client = socket.socket()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # one byte is not kept for the next
    if not is_reading:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=client, limit=1 << 16 if is_reading else 512)
    return RawSocket(reader=reader, writer=writer)


async def open_raw_socket(url: str, *, is_reading: bool = True) -> RawSocket:
    """A WebSocket."""
    client = await open_connection(url, is_reading=is_reading)
    await client.send(upgrade_request())
    assert b" 101 " in await client.read_head()
    return client
