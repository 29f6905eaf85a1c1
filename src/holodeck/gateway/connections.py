"""A client that opens a connection and neither says what it wants nor takes what it gets is shown out."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import ClassVar

from httptools import HttpParserUpgrade
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holodeck.gateway.attending import CLIENT
from holodeck.gateway.gathering import Gathering
from holodeck.gateway.problems import protocol_error
from holodeck.gateway.readers import Reader
from holodeck.gateway.replies import JSON
from holodeck.lib.limits import MAX_HEAD_BYTES


class BoundedProtocol(Reader, HttpToolsProtocol):
    """HTTP, with a limit on the time from the first byte (or the connection) to the end of the headers, and on them.

    It is the `Client` of its requests: who waits for its leaving needs no task for that.
    """

    seconds: ClassVar[float]
    _silence: asyncio.TimerHandle | None = None
    _head: int | None = None
    """Bytes of headers that have not ended yet."""
    _behind = sys.maxsize
    """Where what is behind the request for a WebSocket begins, in what came with it."""
    _on_leaving: Callable[[], None] | None = None
    is_gone = False

    @property
    def has_sent_all(self) -> bool:
        return self.cycle is not None and not self.cycle.more_body

    def attend(self, on_leaving: Callable[[], None] | None) -> None:
        self._on_leaving = on_leaving
        if on_leaving is not None:
            self.flow.resume_reading()  # a large body may have stopped it, and nobody leaves unseen

    def hold(self) -> None:
        self._gathering.hold()

    def cut(self) -> None:
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """As uvicorn, with the error object that every other refusal has."""
        body = protocol_error(msg)
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: {JSON}\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()

    def on_response_complete(self) -> None:
        self._gathering.send()
        super().on_response_complete()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = 0
        self.scope["extensions"] = {CLIENT: self}  # type: ignore[dict-item] # of a kind that uvicorn does not know

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        self._gathering = Gathering(transport, self.loop)
        super().connection_made(self._gathering)  # type: ignore[arg-type] # it does as a transport
        self._start()

    def on_headers_complete(self) -> None:
        self._head = None
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        is_all_head = before is None or not before.more_body
        super().data_received(data)
        if self._head is not None:
            if is_all_head and self.cycle is before:  # else this piece began with a request before it
                self._head += len(data)
            if self._head > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The headers are too large.")
        protocol = self.transport.get_protocol()
        is_upgraded = protocol is not self
        if is_upgraded and self._behind < len(data):
            protocol.data_received(data[self._behind :])  # type: ignore[attr-defined] # uvicorn would lose it
        has_request = self.cycle is not None and not self.cycle.response_complete
        if is_upgraded or has_request:
            self._stop()
        elif self._silence is None:
            self._start()

    def handle_websocket_upgrade(self) -> None:
        ended = sys.exception()  # of HTTP: it says where
        self._behind = ended.args[0] if isinstance(ended, HttpParserUpgrade) else sys.maxsize
        super().handle_websocket_upgrade()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self.is_gone = True
        if self._on_leaving is not None:
            self._on_leaving()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        super().shutdown()
        if self.cycle is not None and self.cycle.more_body:
            self.cycle.message_event.set()  # the rest of its request is not waited for

    def _start(self) -> None:
        self._silence = self.loop.call_later(self.seconds, self.transport.close)

    def _stop(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None


def bounded(seconds: float, reader_seconds: float) -> type[BoundedProtocol]:
    """HTTP with these limits; uvicorn makes one for each connection by itself."""
    return type("BoundedProtocol", (BoundedProtocol,), {"seconds": seconds, "reader_seconds": reader_seconds})
