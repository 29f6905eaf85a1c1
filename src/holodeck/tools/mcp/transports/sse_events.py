"""Parser of server-sent events, in linear time, with limits on the size of one event and on the time of silence."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from holodeck.lib.byte_budget import ByteBudget, Reservation

if TYPE_CHECKING:
    import aiohttp


class SSEEvent(NamedTuple):
    """One event. `kind` is "message" when the stream does not name it."""

    kind: str
    data: bytes


class EventTooLargeError(ValueError):
    """One event is larger than the limit. The stream cannot be read any further."""


class EventStream:
    """Reads the events of one HTTP response."""

    def __init__(
        self, response: aiohttp.ClientResponse, *, read_timeout: float, limit: int, budget: ByteBudget
    ) -> None:
        """`budget`: holds the bytes that were read and not yet returned by `next`. The owner closes the stream."""
        self._reserved = Reservation(budget)
        self._content = response.content
        self._read_timeout = read_timeout
        self._limit = limit
        self._ready: deque[SSEEvent] = deque()
        self._parts: list[bytes] = []
        self._parts_size = self._data_size = self._ready_size = 0
        self._received_at = 0.0
        self._kind = ""
        self._data: list[bytes] = []
        self.last_id: str | None = None
        self.retry: float | None = None
        """Seconds to wait before reconnecting, if the server named them."""

    def is_stuck(self, since: float) -> bool:
        """True in the middle of an event of which no byte has come since this loop time."""
        return bool(self._parts or self._data) and self._received_at < since

    @property
    def _buffered_bytes(self) -> int:
        return self._parts_size + self._data_size + self._ready_size

    async def next(self) -> SSEEvent | None:
        """Return the next event, or None at the end. Raises TimeoutError after `read_timeout` seconds of silence."""
        while not self._ready:
            async with asyncio.timeout(self._read_timeout):
                chunk = await self._content.readany()
            if not chunk:
                return None
            self.feed(chunk)
        event = self._ready.popleft()
        self._ready_size -= len(event.data)
        self._reserved.resize(self._buffered_bytes)
        return event

    def close(self) -> None:
        """Release the reserved bytes. Does not close the response."""
        self._reserved.release()

    def feed(self, chunk: bytes) -> None:
        """Parse bytes; complete events become ready. Raises `OverBudgetError` and `EventTooLargeError`."""
        self._reserved.extend(len(chunk))
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._parts.append(chunk[start:end])
            line = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            self._parts, self._parts_size = [], 0
            # A bare CR ends a line as well; JSON never contains one.
            for part in line.removesuffix(b"\r").split(b"\r"):
                self._feed_line(part)
            start = end + 1
        if start < len(chunk):
            self._parts.append(chunk[start:] if start else chunk)
            self._parts_size += len(chunk) - start
        self._reserved.resize(self._buffered_bytes)
        self._received_at = asyncio.get_running_loop().time()
        if self._parts_size + self._data_size > self._limit:
            raise EventTooLargeError(f"an event of more than {self._limit} bytes")

    def _feed_line(self, line: bytes) -> None:
        if not line:
            self._dispatch()
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._data_size += len(value)
        elif name == b"event":
            self._kind = value.decode("utf-8", "replace")
        elif name == b"id":
            if b"\0" not in value:
                self.last_id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            self.retry = int(value[:9]) / 1000

    def _dispatch(self) -> None:
        # An event without data is a keep-alive, or an id to resume from.
        if any(self._data):
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            self._ready.append(SSEEvent(self._kind or "message", data))
            self._ready_size += len(data)
        self._kind, self._data, self._data_size = "", [], 0
