"""Reads server-sent events from a response, with limits on the size of one event and on the time of silence."""

from __future__ import annotations

import asyncio
from collections import deque

from holodeck.lib.byte_budget import ByteBudget, Reservation
from holodeck.lib.net.http1 import HTTP1Response
from holodeck.lib.net.sse import SSEDecoder, SSEEvent


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
