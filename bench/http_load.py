"""The load: raw HTTP on persistent connections, so that measuring takes little of the CPU that it measures."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson

ANSWER_TIMEOUT = 120.0
"""Seconds for one answer: the slowest server that is measured, with all requests at once before it."""
_LAST_CHUNK = b"0\r\n\r\n"


class LoadConnection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._size = 0
        self._expected: int | None = None
        """Bytes of the whole answer; -1: until the last chunk; None: its head has not come yet."""
        self._answer: asyncio.Future[bytes] | None = None
        self._data_arrived = asyncio.Event()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment] # uvloop's is none of asyncio's classes

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(f"closed after {b''.join(self._chunks)[:300]!r}"))

    def send(self, request: bytes) -> asyncio.Future[bytes]:
        """Send a request; the future gets the whole answer with its head."""
        self._chunks, self._size, self._expected = [], 0, None
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self._answer

    async def send_and_wait_for(self, request: bytes, until: bytes) -> None:
        """Send a request, and wait until the answer contains `until`, not for its end."""
        self.transport.write(request)
        while until not in b"".join(self._chunks):
            self._data_arrived.clear()
            await self._data_arrived.wait()

    def data_received(self, data: bytes) -> None:
        self._data_arrived.set()
        self._chunks.append(data)
        self._size += len(data)
        if self._expected is None:
            self._expected = _expected_length(b"".join(self._chunks))
        if self._answer is None or self._expected is None or self._answer.done():
            return
        if self._size == self._expected or (self._expected < 0 and data.endswith(_LAST_CHUNK)):
            self._answer.set_result(b"".join(self._chunks))


def _expected_length(held: bytes) -> int | None:
    head, end, _ = held.partition(b"\r\n\r\n")
    if not end:
        return None
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    return len(head) + len(end) + int(length) if length else -1


def encode_post(url: str, path: str, body: Mapping[str, Any], *, key: str) -> bytes:
    """A request as it goes over the wire."""
    data = orjson.dumps(body)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


async def connect(url: str) -> LoadConnection:
    """A connection to a server."""
    where = urlsplit(url)
    _, line = await asyncio.get_running_loop().create_connection(LoadConnection, where.hostname or "", where.port or 0)
    return line


@asynccontextmanager
async def open_connections(url: str, count: int) -> AsyncIterator[list[LoadConnection]]:
    """Connections to a server; those that are added to them are closed with them."""
    opened: list[LoadConnection] = []
    try:
        for _ in range(count):
            opened.append(await connect(url))
        yield opened
    finally:
        for line in opened:
            line.transport.close()
        await asyncio.sleep(0)


@dataclass(frozen=True, kw_only=True)
class RequestPlan:
    """What is sent, in this order, and what the last answer must have."""

    requests: Sequence[bytes]
    mark: bytes
    marks: int = 1


@dataclass(frozen=True, kw_only=True)
class Times:
    """How long answers took, in seconds."""

    median: float
    slow: float
    """Of a hundred, one takes longer."""
    rate: float
    """Answers in a second."""


async def run_load(connections: Sequence[LoadConnection], plan: RequestPlan, count: int) -> Times:
    """Send `count` requests, on every connection at once."""
    requests, took = iter(range(count)), list[float]()

    async def one(line: LoadConnection) -> None:
        for _ in requests:
            began = time.perf_counter()
            answer = await send_requests(line, plan)
            took.append(time.perf_counter() - began)
            if answer.count(plan.mark) < plan.marks:
                raise RuntimeError(f"not the answer that was expected: {answer[:400]!r} ... {answer[-400:]!r}")

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for line in connections:
            group.create_task(one(line))
    rate = count / (time.perf_counter() - began)
    ordered = sorted(took)
    return Times(median=statistics.median(ordered), slow=ordered[int(len(ordered) * 0.99)], rate=rate)


async def send_requests(connection: LoadConnection, plan: RequestPlan) -> bytes:
    """The last answer."""
    answer = b""
    for request in plan.requests:
        async with asyncio.timeout(ANSWER_TIMEOUT):
            answer = await connection.send(request)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"refused: {answer[:600]!r}")
    return answer
