"""Server-sent events out of a stream of bytes: linear time, a limit for one event, a limit for silence."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import aiohttp


class Event(NamedTuple):
    """One event. `kind` is "message" when the server does not say."""

    kind: str
    data: bytes


class EventTooLargeError(ValueError):
    """One event went over the limit; the stream is of no use any more."""


class EventStream:
    """Reads the events of one HTTP response."""

    def __init__(self, response: aiohttp.ClientResponse, *, silence: float, limit: int) -> None:
        self._content = response.content
        self._silence = silence
        self._limit = limit
        self._ready: deque[Event] = deque()
        self._parts: list[bytes] = []
        self._size = 0
        self._grew = 0.0
        self._kind = ""
        self._data: list[bytes] = []
        self.last_id: str | None = None
        self.retry: float | None = None
        """Seconds, when the server said how long to wait before coming back."""

    def is_stuck(self, since: float) -> bool:
        """True in the middle of an event of which nothing has come since that time of the loop."""
        return bool(self._parts or self._data) and self._grew < since

    async def next(self) -> Event | None:
        """The next event, or None at the end. Raises TimeoutError after too long a silence."""
        while not self._ready:
            async with asyncio.timeout(self._silence):
                chunk = await self._content.readany()
            if not chunk:
                return None
            self.feed(chunk)
        return self._ready.popleft()

    def feed(self, chunk: bytes) -> None:
        """Take bytes in; complete events become ready."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._parts.append(chunk[start:end])
            line = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            self._parts = []
            for part in line.removesuffix(b"\r").split(b"\r"):  # a bare CR ends a line too, and JSON never has one
                self._line(part)
            start = end + 1
        if start < len(chunk):
            self._parts.append(chunk[start:] if start else chunk)
        self._size += len(chunk)
        self._grew = asyncio.get_running_loop().time()
        if self._size > self._limit and (self._parts or self._data):
            raise EventTooLargeError(f"an event of more than {self._limit} bytes")

    def _line(self, line: bytes) -> None:
        if not line:
            self._dispatch()
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._kind = value.decode("utf-8", "replace")
        elif name == b"id":
            if b"\0" not in value:
                self.last_id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            self.retry = int(value[:9]) / 1000

    def _dispatch(self) -> None:
        if any(self._data):  # an event without data is only a sign of life, or an id to resume from
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            self._ready.append(Event(self._kind or "message", data))
        self._kind, self._data, self._size = "", [], 0
