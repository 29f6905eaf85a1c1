"""Who reads what the gateway sends, over HTTP or a WebSocket: nobody may stop reading for ever."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from holodeck.lib.limits import GOODBYE_SECONDS


class Reader(asyncio.Protocol):
    """The other end of a connection: it may be slow, but it must take something now and then.

    Whoever is written to waits for it, and so do the run behind a stream and, at the end, the whole gateway.
    """

    reader_seconds: ClassVar[float]
    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    _patience: asyncio.TimerHandle | None = None
    _left = 0
    _is_ending = False

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        self._forget_reader()
        super().resume_writing()
        if self.transport.is_closing():
            self.say_goodbye()

    def say_goodbye(self) -> None:
        """The connection is closed once the last bytes are taken: that is not waited for any longer than for others."""
        if self._patience is None and self.transport.get_write_buffer_size():
            self._wait_for_reader()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_reader()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The gateway ends: who takes nothing gets only a moment more."""
        self._is_ending = True  # before it: a goodbye is written as well
        super().shutdown()  # type: ignore[misc] # uvicorn's protocols have it
        if self._patience is not None:
            self._forget_reader()
            self._wait_for_reader()

    def _wait_for_reader(self) -> None:
        seconds = min(self.reader_seconds, GOODBYE_SECONDS) if self._is_ending else self.reader_seconds
        self._left = self.transport.get_write_buffer_size()
        self._patience = self.loop.call_later(seconds, self._look_at_reader)

    def _look_at_reader(self) -> None:
        self._patience = None
        left = self.transport.get_write_buffer_size()
        if 0 < left < self._left:
            self._wait_for_reader()
        elif left:
            self.transport.abort()

    def _forget_reader(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
