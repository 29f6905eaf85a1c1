"""A client that opens a connection and does not say what it wants is shown out: it cannot keep the door busy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holodeck.gateway.attending import CLIENT
from holodeck.gateway.gathering import Gathering


class BoundedProtocol(HttpToolsProtocol):
    """HTTP, with a limit on the time from the first byte (or the connection) to the end of the headers.

    It is the `Client` of its requests: who waits for its leaving needs no task for that.
    """

    seconds: ClassVar[float]
    _silence: asyncio.TimerHandle | None = None
    _on_leaving: Callable[[], None] | None = None
    is_gone = False

    @property
    def has_sent_all(self) -> bool:
        return self.cycle is not None and not self.cycle.more_body

    def attend(self, on_leaving: Callable[[], None] | None) -> None:
        self._on_leaving = on_leaving
        if on_leaving is not None:
            self.flow.resume_reading()  # a large body may have stopped it, and nobody leaves unseen

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {CLIENT: self}  # type: ignore[dict-item] # of a kind that uvicorn does not know

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        super().connection_made(Gathering(transport, self.loop))  # type: ignore[arg-type] # it does as a transport
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
        self.is_gone = True
        if self._on_leaving is not None:
            self._on_leaving()
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
