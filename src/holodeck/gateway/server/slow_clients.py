"""Who reads what the gateway sends, over HTTP or a WebSocket: nobody may stop reading for ever."""

from __future__ import annotations

import asyncio
from typing import ClassVar

# For a reader that takes nothing, once the gateway ends.
SHUTDOWN_READER_SECONDS = 1.0


class SlowClientGuard(asyncio.Protocol):
    """The other end of a connection: it may be slow, but it must take something now and then.

    Whoever is written to waits for it, and so do the run behind a stream and, at the end, the whole gateway.
    """

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
        """The connection is closed once the last bytes are taken: that is not waited for any longer than for others."""
        if self._stall_timer is None and self.transport.get_write_buffer_size():
            self._start_stall_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_stall_timer()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The gateway ends: who takes nothing gets only a moment more."""
        self._is_shutting_down = True  # before it: a goodbye is written as well
        super().shutdown()  # type: ignore[misc] # uvicorn's protocols have it
        if self._stall_timer is not None:
            self._cancel_stall_timer()
            self._start_stall_timer()

    def _start_stall_timer(self) -> None:
        seconds = min(self.reader_seconds, SHUTDOWN_READER_SECONDS) if self._is_shutting_down else self.reader_seconds
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(seconds, self._abort_if_stalled)

    def _abort_if_stalled(self) -> None:
        self._stall_timer = None
        left = self.transport.get_write_buffer_size()
        if 0 < left < self._unsent_bytes:
            self._start_stall_timer()
        elif left:
            self.transport.abort()

    def _cancel_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
