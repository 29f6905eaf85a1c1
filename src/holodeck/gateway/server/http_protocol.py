"""HTTP/1.1 on one connection: uvicorn's protocol with limits of time and size, and fewer writes to the socket.

`GatewayHTTPProtocol` closes a connection whose request head does not arrive in time or is too large, aborts one whose
client stops reading (`SlowClientGuard`), and answers malformed requests with the error object of the API. `Admission`
decides when a request starts; under overload it is refused here, before its body is read and without a task. While
requests wait, data is read a part at a time, and the health of the gateway is answered here at once. It is also the
`Client` of its requests, so that the application learns of a disconnect without a task per request.

`CoalescingTransport` joins what is written to the socket in one turn of the event loop, such as the head and the body
of a reply.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from typing import Any, ClassVar, Literal

import orjson
from httptools import HttpParserUpgrade
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from holodeck.gateway.http.errors import (
    headers_too_large_error,
    is_mcp_path,
    is_messages_path,
    mcp_error_reply,
    messages_error_reply,
    overloaded_error,
    protocol_error_body,
    reply_for,
)
from holodeck.gateway.http.observation import PROBE_PATHS, UNKNOWN_ROUTE, Refusals
from holodeck.gateway.http.replies import HEALTHY, Reply
from holodeck.gateway.server.admission import Admission
from holodeck.gateway.server.disconnect import CLIENT_EXTENSION
from holodeck.gateway.server.slow_clients import SlowClientGuard
from holodeck.lib.ids import new_id
from holodeck.lib.limits import KIB

# Bytes that `CoalescingTransport` buffers at most; more is sent at once, whatever follows.
COALESCED_BYTES = 64 * KIB
# Bytes of a request line with its headers: several of the longest tokens fit in.
MAX_HEAD_BYTES = 64 * KIB
# Headers of a request, as other servers have it: browsers and SDKs send 20, and proxies add some.
MAX_HEADERS = 100


_Door = Literal["messages", "mcp", "other"]
"""The APIs by the form of their errors."""
# How a probe of `/healthz` begins.
_HEALTH_REQUEST = b"GET /healthz HTTP/1."
# As long as the ids of requests, so that the length of a reply does not change.
_ID_PLACE = "x" * len(new_id("req"))


class CoalescingTransport:
    """Transport wrapper that joins the writes of one turn of the event loop into one write.

    After `cork` it buffers beyond that turn, until `flush`, `close`, or more than `COALESCED_BYTES`.
    """

    __slots__ = ("_buffer", "_is_corked", "_loop", "_size", "_transport", "get_protocol", "is_closing")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._buffer: list[bytes] = []
        self._size = 0
        self._is_corked = False
        # Bound here because every request calls them: `__getattr__` is slower.
        self.is_closing = transport.is_closing
        self.get_protocol = transport.get_protocol

    def cork(self) -> None:
        """Buffer what is written next until `flush`, `close`, or more than `COALESCED_BYTES`."""
        self._is_corked = True

    def write(self, data: bytes) -> None:
        if not self._buffer and not self._is_corked:
            self._loop.call_soon(self.flush)
        self._buffer.append(data)
        self._size += len(data)
        # The transport must see large writes at once, so that it can pause the writer.
        if self._size > COALESCED_BYTES:
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
        """Send what is buffered."""
        self._is_corked = False
        chunks, self._buffer, self._size = self._buffer, [], 0
        if chunks and not self.is_closing():
            self._transport.write(chunks[0] if len(chunks) == 1 else b"".join(chunks))

    def __getattr__(self, name: str) -> Any:
        """Return everything else from the wrapped transport."""
        return getattr(self._transport, name)


class _RefusedCycle:
    """In place of uvicorn's state of a request: one that has its reply, so that its body is dropped as it comes."""

    response_complete = True
    more_body = False
    disconnected = False
    keep_alive = True
    message_event = asyncio.Event()


_REFUSED_CYCLE: Any = _RefusedCycle()


class GatewayHTTPProtocol(SlowClientGuard, HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits on request heads and on clients that do not read. Also a `Client`.

    A request head may take `seconds` from the first byte, or from the connection, and have `MAX_HEAD_BYTES` and
    `MAX_HEADERS`.
    """

    seconds: ClassVar[float]
    refusals: ClassVar[Refusals]
    admission: ClassVar[Admission]
    _header_timer: asyncio.TimerHandle | None = None
    _header_bytes: int | None = None
    """Bytes of the head that is being received. None: no head is incomplete."""
    _head_size = 0
    """Bytes of the URL and the headers that were parsed."""
    _upgrade_offset = sys.maxsize
    """Where the bytes after a WebSocket handshake begin, in the data that the handshake ended in."""
    _has_request = False
    """True once a request has begun on this connection."""
    _unread = b""
    """Data that waits for a turn of the event loop that has time to read it."""
    _is_read_due = False
    """True while data is read that has waited."""
    _on_disconnect: Callable[[], None] | None = None
    is_disconnected = False

    @property
    def has_sent_all(self) -> bool:
        return self.cycle is not None and not self.cycle.more_body

    def set_disconnect_callback(self, callback: Callable[[], None] | None) -> None:
        self._on_disconnect = callback
        if callback is not None:
            # A large body may have paused reading, and a paused connection does not see its end.
            self.flow.resume_reading()

    def cork(self) -> None:
        self._coalescing_transport.cork()

    def cut_connection(self) -> None:
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Send a 400 as uvicorn does, with the error object of the API as its body; a 431 for a head over a limit."""
        reply = Reply(status=HTTPStatus.BAD_REQUEST, body=protocol_error_body(msg))
        if self._is_head_too_large():
            reply = reply_for(headers_too_large_error(MAX_HEADERS, MAX_HEAD_BYTES), "")
        self.refusals.report(reply.status, orjson.loads(reply.body)["error"], route=UNKNOWN_ROUTE)
        self.transport.write(_encode_reply(reply, b"connection: close\r\n"))
        self.transport.close()

    def on_url(self, url: bytes) -> None:
        self._head_size += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_size += len(name) + len(value)
        if self._is_head_too_large():
            # The parser stops, and uvicorn calls `send_400_response`.
            raise ValueError("the head is too large")
        super().on_header(name, value)

    def _is_head_too_large(self) -> bool:
        return self._head_size > MAX_HEAD_BYTES or (self.headers is not None and len(self.headers) >= MAX_HEADERS)

    def on_response_complete(self) -> None:
        self._coalescing_transport.flush()
        super().on_response_complete()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._has_request = True
        self._header_bytes = self._head_size = 0
        self.scope["extensions"] = {CLIENT_EXTENSION: self}  # type: ignore[dict-item] # of a kind that uvicorn does not know

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        self._coalescing_transport = CoalescingTransport(transport, self.loop)
        super().connection_made(self._coalescing_transport)  # type: ignore[arg-type] # it does as a transport
        self._start_header_timer()

    def on_headers_complete(self) -> None:
        self._header_bytes = None
        if self.admission.is_overloaded and not self.parser.should_upgrade() and self._can_be_refused():
            self._refuse_overloaded()
        else:
            super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        start = super()._start_asgi_task
        if cycle.scope["path"] in PROBE_PATHS:
            start(cycle, app)
        else:
            # A client that has left while its request was in line gets no work done for it.
            self.admission.start(lambda: None if self.is_disconnected else start(cycle, app))

    def _can_be_refused(self) -> bool:
        """Return False for a probe, and for a request behind another one on this connection, whose reply comes
        first."""
        is_probe = self.url.partition(b"?")[0].decode("latin-1") in PROBE_PATHS
        return not is_probe and (self.cycle is None or self.cycle.response_complete)

    def _refuse_overloaded(self, *, must_close: bool = False) -> None:
        """Reply with 503. The connection stays open, and the body is dropped as it comes: a client may send it first.

        Costs a fraction of what a request does: no task, no context, no line of the log.
        """
        self.admission.count_refusal()
        self.refusals.count_overload()
        must_close = must_close or not self.parser.should_keep_alive()
        path = self.url.partition(b"?")[0].decode("latin-1")
        door: _Door = "messages" if is_messages_path(path) else "mcp" if is_mcp_path(path) else "other"
        reply = _encode_overloaded(door, must_close).replace(_ID_PLACE.encode(), new_id("req").encode())
        is_head = self.parser.get_method() == b"HEAD"
        self.transport.write(reply.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if is_head else reply)
        self._cancel_header_timer()
        self.cycle = _REFUSED_CYCLE
        self.on_response_complete()
        if must_close:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self.admission.is_crowded and not self._is_read_due and self._must_wait(data):
            return
        before = self.cycle
        is_all_head = before is None or not before.more_body
        super().data_received(data)
        if self._header_bytes is not None:
            # Otherwise the data began with bytes of an earlier request.
            if is_all_head and self.cycle is before:
                self._header_bytes += len(data)
            if self._header_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self._head_size = self._header_bytes
                self.send_400_response("")
        protocol = self.transport.get_protocol()
        is_upgraded = protocol is not self
        if is_upgraded and self._upgrade_offset < len(data):
            # uvicorn drops what follows the handshake in the same data.
            protocol.data_received(data[self._upgrade_offset :])  # type: ignore[attr-defined] # a BaseProtocol
        has_request = self.cycle is not None and not self.cycle.response_complete
        if is_upgraded or has_request:
            self._cancel_header_timer()
        elif self._header_timer is None:
            self._start_header_timer()

    def _must_wait(self, data: bytes) -> bool:
        """Return whether data is not read now: it waits for a later turn, or is a probe that was answered."""
        if self._unread:
            self._unread += data
            return True
        if not self._has_request and data.startswith(_HEALTH_REQUEST) and data.endswith(b"\r\n\r\n"):
            named = f"x-request-id: {new_id('req')}\r\nconnection: close\r\n".encode()
            self.transport.write(_encode_reply(HEALTHY, named))
            self.transport.close()
            return True
        if self.admission.can_read():
            return False
        # As if it had been read: a connection with data is not idle.
        self._unset_keepalive_if_required()
        self._unread = data
        self.flow.pause_reading()
        self.admission.read_later(self._read_unread)
        return True

    def _read_unread(self) -> None:
        data, self._unread = self._unread, b""
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        self._is_read_due = True
        self.data_received(data)
        self._is_read_due = False

    def handle_websocket_upgrade(self) -> None:
        if self.admission.is_overloaded:
            self._refuse_overloaded(must_close=True)
            return
        # uvicorn calls this while it handles the parser's exception, whose argument is the offset.
        upgrade = sys.exception()
        self._upgrade_offset = upgrade.args[0] if isinstance(upgrade, HttpParserUpgrade) else sys.maxsize
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
            # Wakes the reader of an incomplete body, so that the shutdown does not wait for the rest.
            self.cycle.message_event.set()

    def _start_header_timer(self) -> None:
        self._header_timer = self.loop.call_later(self.seconds, self.transport.close)

    def _cancel_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


def _encode_reply(reply: Reply, headers: bytes) -> bytes:
    """Encode a reply that the protocol writes itself. `headers`: more lines of its head, each with its end."""
    written = {"content-type": reply.content_type, "content-length": str(len(reply.body)), **reply.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in written.items())
    return STATUS_LINE[reply.status] + lines.encode() + headers + b"\r\n" + reply.body


@cache
def _encode_overloaded(door: _Door, must_close: bool) -> bytes:
    """Encode the refusal of an overloaded gateway, with `_ID_PLACE` where the id of the request belongs."""
    reply = reply_for(overloaded_error(), "")
    if door == "messages":
        reply = messages_error_reply(reply, _ID_PLACE)
    elif door == "mcp":
        reply = mcp_error_reply(reply, "")
    named = f"x-request-id: {_ID_PLACE}\r\n".encode()
    return _encode_reply(reply, named + (b"connection: close\r\n" if must_close else b""))


def build_http_protocol(
    seconds: float, reader_seconds: float, refusals: Refusals, admission: Admission
) -> type[GatewayHTTPProtocol]:
    """Build a protocol class with these limits; uvicorn creates an instance for each connection.

    `seconds`: for a request head. `reader_seconds`: without any read by the client. `refusals`: records what is not a
    valid request. `admission`: of the requests of all connections.
    """
    attributes = {
        "seconds": seconds,
        "reader_seconds": reader_seconds,
        "refusals": refusals,
        "admission": admission,
    }
    return type("LimitedHTTPProtocol", (GatewayHTTPProtocol,), attributes)
