"""Splits a byte stream into lines in linear time and bounded memory.

A line over the limit, or over the shared byte budget, is dropped while it is read; only its two ends are reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holodeck.lib.byte_budget import ByteBudget, OverBudgetError, Reservation

# Bytes of each end of a dropped line that are reported: enough to find the id of the JSON-RPC message.
_EDGE = 1024


class LineSplitter(asyncio.Protocol):
    """Reads the output of a process and calls `on_line` for each line, without its line break."""

    def __init__(
        self,
        *,
        limit: int,
        on_line: Callable[[bytes | bytearray], None],
        on_dropped: Callable[[bytes, bytes, int], None],
        on_end: Callable[[], None],
        budget: ByteBudget | None = None,
    ) -> None:
        """`budget` counts the bytes of an unfinished line. A line that does not fit is dropped like one over `limit`.

        `on_dropped` is called with the beginning, the end and the size of a dropped line; blank lines are skipped.
        `on_end` is called once, when the stream ends.
        """
        self._reserved = Reservation(budget or ByteBudget())
        self._limit = limit
        self._on_line = on_line
        self._on_dropped = on_dropped
        self._on_end = on_end
        # One growing buffer: a list of chunks would fragment the heap, and joining it would double the peak.
        self._buffer = bytearray()
        self._size = 0
        self._received_at = 0.0
        self._head: bytes | None = None
        self._tail = b""

    def is_stuck(self, since: float) -> bool:
        """Return whether a line is unfinished and no byte of it has arrived since this loop time."""
        return self._size > 0 and self._received_at < since

    def data_received(self, data: bytes) -> None:
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            line = data[start:end]
            if self._size:
                self._end_line(line)
            elif line and not line.isspace():
                self._on_line(line)
            start = end + 1
        if start < len(data):
            self._append_part(data[start:] if start else data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._size and self._head is None:
            # The last line may lack its line break.
            self._end_line(b"")
        self._reserved.release()
        self._on_end()

    def _try_reserve(self, size: int) -> bool:
        try:
            self._reserved.extend(size)
        except OverBudgetError:
            return False
        return True

    def _append_part(self, part: bytes) -> None:
        self._size += len(part)
        self._received_at = asyncio.get_running_loop().time()
        if self._head is None:
            self._buffer += part
            if self._size > self._limit or not self._try_reserve(len(part)):
                self._reserved.release()
                self._head, self._tail = bytes(self._buffer[:_EDGE]), bytes(self._buffer[-_EDGE:])
                self._buffer = bytearray()
        else:
            self._tail = (self._tail + part[-_EDGE:])[-_EDGE:]

    def _end_line(self, part: bytes) -> None:
        """Report the unfinished line, which ends with this part."""
        self._append_part(part)
        # From here on the receiver accounts for the line.
        self._reserved.release()
        line, size, head, tail = self._buffer, self._size, self._head, self._tail
        self._buffer, self._size, self._head, self._tail = bytearray(), 0, None, b""
        if head is not None:
            self._on_dropped(head, tail, size)
        else:
            self._on_line(line)
