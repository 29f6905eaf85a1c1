"""Server-sent events: an incremental decoder with a limit on the size of a line and of an event, and the events of a
response, within a budget of bytes and a limit on the time of silence.
"""

from __future__ import annotations

import asyncio
from collections import deque

from holodeck.lib.byte_budget import ByteBudget, Reservation
from holodeck.lib.limits import MIB
from holodeck.lib.net.http1 import HTTP1Response

# Size of one event of a model API: a final event repeats a whole answer with its images.
MAX_MODEL_EVENT_BYTES = 32 * MIB

SSEEvent = tuple[bytes, bytes]
"""Name and data of an event; the name is empty if the stream gives none. A plain tuple: there is one per token."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Bytes that an unfinished line may have besides its text.
_MARGIN = len(_BYTE_ORDER_MARK)
# Digits of `retry`: a longer number is cut, not computed.
_MAX_RETRY_DIGITS = 9


class EventTooLargeError(ValueError):
    """A line, or the data of one event, exceeds the limit. The stream cannot be decoded any further."""


class SSEDecoder:
    """Turns chunks of bytes, cut anywhere, into complete events, in linear time."""

    def __init__(self, *, limit: int = MAX_MODEL_EVENT_BYTES) -> None:
        self._limit = limit
        # Chunks of an unfinished line: joined once, not with every chunk.
        self._parts: list[bytes] = []
        self._size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._name = b""
        self._id: str | None = None
        self._at_start = True
        # The last byte was a CR, which ended a line. An LF that follows is half of the same line break.
        self._is_after_cr = False
        self.last_id: str | None = None
        """The id of the last complete event that had one. The stream is resumed after it."""
        self.retry: float | None = None
        """Seconds to wait before reconnecting, if the server named them."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the unfinished event; 0 between two events."""
        return self._size + self._data_size

    def feed(self, chunk: bytes) -> list[SSEEvent]:
        """Return the events that this chunk completes. Raises `EventTooLargeError`."""
        if self._is_after_cr and chunk:
            self._is_after_cr = False
            chunk = chunk.removeprefix(b"\n")
        lines = chunk.split(b"\n") if b"\r" not in chunk else self._split_lines(chunk)
        rest = lines.pop()
        if lines:
            if self._size:
                lines[0] = b"".join((*self._parts, lines[0]))
                self._parts = []
                self._size = 0
            if self._at_start:
                self._at_start = False
                lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
            if self._size - _MARGIN > self._limit:
                raise self._too_large()
        return self._read_lines(lines) if lines else []

    def flush(self) -> list[SSEEvent]:
        """Return an event whose final line break or blank line is missing. It may be incomplete."""
        return self.feed(b"\n\n")

    def _split_lines(self, chunk: bytes) -> list[bytes]:
        self._is_after_cr = chunk.endswith(b"\r")
        # The lines of bytes, unlike those of a text, end at CR, LF and CRLF alone.
        lines = chunk.splitlines()
        if chunk.endswith((b"\r", b"\n")):
            lines.append(b"")
        return lines

    def _read_lines(self, lines: list[bytes]) -> list[SSEEvent]:
        found: list[SSEEvent] = []
        for line in lines:
            if not line:
                if self._data:
                    found.append((self._name, self._data[0] if len(self._data) == 1 else b"\n".join(self._data)))
                    self._data = []
                    self._data_size = 0
                self._name = b""
                self.last_id = self._id
            elif line.startswith(b"data:"):
                self._data_size += len(line)
                if self._data_size > self._limit:
                    raise self._too_large()
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            else:
                self._read_field(line)
        return found

    def _read_field(self, line: bytes) -> None:
        if len(line) > self._limit:
            raise self._too_large()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._name = value
        elif name == b"data":
            self._data.append(b"")
        elif name == b"id":
            if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            self.retry = int(value[:_MAX_RETRY_DIGITS]) / 1000

    def _too_large(self) -> EventTooLargeError:
        return EventTooLargeError(f"an event of more than {self._limit} bytes")


class EventStream:
    """Reads the events of one HTTP response."""

    def __init__(self, response: HTTP1Response, *, read_timeout: float, limit: int, budget: ByteBudget) -> None:
        """`budget`: holds the bytes that were read and not yet returned by `next`. The owner closes the stream."""
        self._reserved = Reservation(budget)
        self._response = response
        self._read_timeout = read_timeout
        self._decoder = SSEDecoder(limit=limit)
        self._ready: deque[SSEEvent] = deque()
        self._ready_size = 0
        self._received_at = 0.0

    @property
    def last_id(self) -> str | None:
        return self._decoder.last_id

    @property
    def retry(self) -> float | None:
        return self._decoder.retry

    def is_stuck(self, since: float) -> bool:
        """Return True in the middle of an event of which no byte has come since this loop time."""
        return self._decoder.buffered_bytes > 0 and self._received_at < since

    async def next(self) -> SSEEvent | None:
        """Return the next event with data, or None at the end.

        Raises TimeoutError after `read_timeout` seconds of silence, `OverBudgetError` and `EventTooLargeError`.
        """
        while not self._ready:
            chunk = await self._response.read(self._read_timeout)
            if not chunk:
                return None
            self._feed(chunk)
        event = self._ready.popleft()
        self._ready_size -= len(event[1])
        self._reserved.resize(self._decoder.buffered_bytes + self._ready_size)
        return event

    def close(self) -> None:
        """Release the reserved bytes. Does not close the response."""
        self._reserved.release()

    def _feed(self, chunk: bytes) -> None:
        self._reserved.extend(len(chunk))
        for event in self._decoder.feed(chunk):
            # An event without data is a keep-alive, or an id to resume from.
            if event[1].strip():
                self._ready.append(event)
                self._ready_size += len(event[1])
        self._received_at = asyncio.get_running_loop().time()
        if not self._ready:
            self._reserved.resize(self._decoder.buffered_bytes)
