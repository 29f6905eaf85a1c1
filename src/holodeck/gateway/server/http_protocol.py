"""A client that opens a connection and neither says what it wants nor takes what it gets is shown out."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, ClassVar

from httptools import HttpParserUpgrade
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holodeck.gateway.http.errors import protocol_error_body
from holodeck.gateway.http.replies import JSON
from holodeck.gateway.server.disconnect import CLIENT_EXTENSION
from holodeck.gateway.server.slow_clients import SlowClientGuard
from holodeck.lib.limits import KIB

# Of what is written at one moment: then it is sent, whatever follows.
COALESCED_BYTES = 64 * KIB
# Of a request line and headers: several of the longest tokens fit in.
MAX_HEAD_BYTES = 64 * KIB


class CoalescingTransport:
    """A transport in front of another one. The head of an answer waits for its body, but not beyond this moment."""

    __slots__ = ("_buffer", "_is_corked", "_loop", "_size", "_transport", "get_protocol", "is_closing")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._buffer: list[bytes] = []
        self._size = 0
        self._is_corked = False
        self.is_closing = transport.is_closing  # asked with every request; what is looked for in vain here takes longer
        self.get_protocol = transport.get_protocol

    def cork(self) -> None:
        """What comes next is whole at once, and is sent by `flush`, `close`, or when it is much."""
        self._is_corked = True

    def write(self, data: bytes) -> None:
        if not self._buffer and not self._is_corked:
            self._loop.call_soon(self.flush)
        self._buffer.append(data)
        self._size += len(data)
        if self._size > COALESCED_BYTES:  # so that the transport can say that it has enough
            self.flush()

    def close(self) -> None:
        self.flush()
        self._transport.close()
        protocol = self.get_protocol()
        if isinstance(protocol, SlowClientGuard):
            protocol.watch_last_write()

    def write_eof(self) -> None:
        self.flush()
        self._transport.write_eof()

    def flush(self) -> None:
        """Hold nothing any longer."""
        self._is_corked = False
        held, self._buffer, self._size = self._buffer, [], 0
        if held and not self.is_closing():
            self._transport.write(held[0] if len(held) == 1 else b"".join(held))

    def __getattr__(self, name: str) -> Any:
        """Everything else is as it is there."""
        return getattr(self._transport, name)


class GatewayHTTPProtocol(SlowClientGuard, HttpToolsProtocol):
    """HTTP, with a limit on the time from the first byte (or the connection) to the end of the headers, and on them.

    It is the `Client` of its requests: who waits for its leaving needs no task for that.
    """

    seconds: ClassVar[float]
    _header_timer: asyncio.TimerHandle | None = None
    _header_bytes: int | None = None
    """Bytes of headers that have not ended yet."""
    _upgrade_offset = sys.maxsize
    """Where what is behind the request for a WebSocket begins, in what came with it."""
    _on_disconnect: Callable[[], None] | None = None
    is_disconnected = False

    @property
    def has_sent_all(self) -> bool:
        return self.cycle is not None and not self.cycle.more_body

    def set_disconnect_callback(self, callback: Callable[[], None] | None) -> None:
        self._on_disconnect = callback
        if callback is not None:
            self.flow.resume_reading()  # a large body may have stopped it, and nobody leaves unseen

    def cork(self) -> None:
        self._coalescing_transport.cork()

    def cut_connection(self) -> None:
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """As uvicorn, with the error object that every other refusal has."""
        body = protocol_error_body(msg)
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: {JSON}\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()

    def on_response_complete(self) -> None:
        self._coalescing_transport.flush()
        super().on_response_complete()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._header_bytes = 0
        self.scope["extensions"] = {CLIENT_EXTENSION: self}  # type: ignore[dict-item] # of a kind that uvicorn does not know

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        self._coalescing_transport = CoalescingTransport(transport, self.loop)
        super().connection_made(self._coalescing_transport)  # type: ignore[arg-type] # it does as a transport
        self._start_header_timer()

    def on_headers_complete(self) -> None:
        self._header_bytes = None
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        is_all_head = before is None or not before.more_body
        super().data_received(data)
        if self._header_bytes is not None:
            if is_all_head and self.cycle is before:  # else this piece began with a request before it
                self._header_bytes += len(data)
            if self._header_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The headers are too large.")
        protocol = self.transport.get_protocol()
        is_upgraded = protocol is not self
        if is_upgraded and self._upgrade_offset < len(data):
            protocol.data_received(data[self._upgrade_offset :])  # type: ignore[attr-defined] # uvicorn would lose it
        has_request = self.cycle is not None and not self.cycle.response_complete
        if is_upgraded or has_request:
            self._cancel_header_timer()
        elif self._header_timer is None:
            self._start_header_timer()

    def handle_websocket_upgrade(self) -> None:
        ended = sys.exception()  # of HTTP: it says where
        self._upgrade_offset = ended.args[0] if isinstance(ended, HttpParserUpgrade) else sys.maxsize
        super().handle_websocket_upgrade()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_header_timer()
        self.is_disconnected = True
        if self._on_disconnect is not None:
            self._on_disconnect()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        super().shutdown()
        if self.cycle is not None and self.cycle.more_body:
            self.cycle.message_event.set()  # the rest of its request is not waited for

    def _start_header_timer(self) -> None:
        self._header_timer = self.loop.call_later(self.seconds, self.transport.close)

    def _cancel_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


def build_http_protocol(seconds: float, reader_seconds: float) -> type[GatewayHTTPProtocol]:
    """HTTP with these limits; uvicorn makes one for each connection by itself."""
    return type("LimitedHTTPProtocol", (GatewayHTTPProtocol,), {"seconds": seconds, "reader_seconds": reader_seconds})
