"""A client that opens a connection and does not say what it wants is shown out: it cannot keep the door busy."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class BoundedProtocol(HttpToolsProtocol):
    """HTTP, with a limit on the time from the first byte (or the connection) to the end of the headers."""

    seconds: ClassVar[float]
    _silence: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        super().connection_made(transport)
        self._start()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_upgraded = self.transport.get_protocol() is not self
        has_request = self.cycle is not None and not self.cycle.response_complete
        if is_upgraded or has_request:
            self._stop()
        elif self._silence is None:
            self._start()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _start(self) -> None:
        self._silence = self.loop.call_later(self.seconds, self.transport.close)

    def _stop(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None


def bounded(seconds: float) -> type[BoundedProtocol]:
    """The protocol with this limit; uvicorn makes one for each connection by itself."""
    return type("BoundedProtocol", (BoundedProtocol,), {"seconds": seconds})
