"""Abort of connections whose client stops reading, over HTTP or a WebSocket.

A write waits for the client, and so do the run behind a stream and, at the end, the shutdown of the whole gateway. A
client may be slow, but within `reader_seconds` it must read at least something.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

# Seconds for a client that reads nothing once the gateway shuts down: the shutdown waits for it.
SHUTDOWN_READER_SECONDS = 1.0


class SlowClientGuard(asyncio.Protocol):
    """Base of a protocol: aborts a connection whose write buffer does not shrink for `reader_seconds`."""

    reader_seconds: ClassVar[float]
    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    _stall_timer: asyncio.TimerHandle | None = None
    _unsent_bytes = 0
    _is_shutting_down = False

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_stall_timer()

    def resume_writing(self) -> None:
        self._cancel_stall_timer()
        super().resume_writing()
        if self.transport.is_closing():
            self.watch_last_write()

    def watch_last_write(self) -> None:
        """Bound the wait of a closing connection for its last bytes to be read, as for any other write."""
        if self._stall_timer is None and self.transport.get_write_buffer_size():
            self._start_stall_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_stall_timer()
        super().connection_lost(exc)

    def shorten_stall_time(self) -> None:
        """Give a client that reads nothing `SHUTDOWN_READER_SECONDS` from now on."""
        self._is_shutting_down = True
        if self._stall_timer is not None:
            self._cancel_stall_timer()
            self._start_stall_timer()

    def _start_stall_timer(self) -> None:
        seconds = min(self.reader_seconds, SHUTDOWN_READER_SECONDS) if self._is_shutting_down else self.reader_seconds
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(seconds, self._abort_if_stalled)

    def _abort_if_stalled(self) -> None:
        self._stall_timer = None
        unsent = self.transport.get_write_buffer_size()
        if 0 < unsent < self._unsent_bytes:
            self._start_stall_timer()
        elif unsent:
            self.transport.abort()

    def _cancel_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
