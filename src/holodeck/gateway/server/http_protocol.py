"""HTTP/1.1 on one connection, parsed by httptools: limits of time and size, and one write for a whole reply.

`HTTPProtocol` creates a `ServedRequest` for each head, and starts the application for it, one request of a connection
after the other. It closes a connection whose request head does not arrive in time or is too large, or that is idle for
too long, aborts one whose client stops reading (`SlowClientGuard`), and answers malformed requests with the error
object of the API. `Admission` decides when a request starts; under overload it is refused here, before its body is read
and without a task. While requests wait, data is read a part at a time, and the health of the gateway is answered here
at once. A WebSocket handshake is passed to uvicorn's protocol of WebSockets, with the connection.

uvloop sends what is written in one turn of the event loop by one system call, so that nothing is joined here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import cache
from http import HTTPStatus
from typing import Any, ClassVar, Literal
from urllib.parse import unquote

import orjson
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, parse_url
from uvicorn.config import Config
from uvicorn.server import ServerState

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
from holodeck.gateway.http.replies import Reply
from holodeck.gateway.server.admission import Admission
from holodeck.gateway.server.health_thread import encode_health, is_health_request
from holodeck.gateway.server.served_request import ServedRequest, encode_reply
from holodeck.gateway.server.slow_clients import SlowClientGuard
from holodeck.lib.ids import new_id
from holodeck.lib.limits import KIB

# Bytes of a body that are buffered before the application reads them.
MAX_UNREAD_BYTES = 64 * KIB
# Bytes of a request line with its headers: several of the longest tokens fit in.
MAX_HEAD_BYTES = 64 * KIB
# Headers of a request, as other servers have it: browsers and SDKs send 20, and proxies add some.
MAX_HEADERS = 100

ServeHTTP = Callable[[ServedRequest], Coroutine[Any, Any, None]]
"""The application: answers one request, whatever happens."""
_Door = Literal["messages", "mcp", "other"]
"""The APIs by the form of their errors."""
# As long as the ids of requests, so that the length of a reply does not change.
_ID_PLACE = "x" * len(new_id("req"))
_NEVER = float("inf")


class HTTPProtocol(SlowClientGuard):
    """One connection, and the `Connection` of its requests.

    A request head may take `seconds` from its first byte, or from the connection, and have `MAX_HEAD_BYTES` and
    `MAX_HEADERS`. A connection may be idle for `timeout_keep_alive` of uvicorn's configuration.
    """

    seconds: ClassVar[float]
    refusals: ClassVar[Refusals]
    admission: ClassVar[Admission]
    serve: ServeHTTP

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], _loop: Any = None) -> None:
        self.loop: asyncio.AbstractEventLoop = _loop or asyncio.get_running_loop()
        self.is_reading_paused = False
        self.is_write_paused = False
        self.client_address = ""
        self.send: Callable[[bytes], None]
        self._config = config
        self._server_state = server_state
        self._app_state = app_state
        self._parser = HttpRequestParser(self)
        # As other servers do: what follows a request with `connection: close` is ignored.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._writable = asyncio.Event()
        self._deadline = _NEVER
        """When the connection is closed unless a request comes first, in the time of the event loop."""
        self._timer: asyncio.TimerHandle | None = None
        """Looks at the deadline, and is not set again for each request: it may look too early."""
        self._timer_at = _NEVER
        self._url = b""
        self._header_items: list[tuple[bytes, bytes]] = []
        self._head_size = 0
        """Bytes of the URL and the headers that were parsed."""
        self._has_begun_head = False
        """Whether the time of a request head runs."""
        self._head_bytes = 0
        """Bytes that have arrived of a head that is not complete."""
        self._boundaries = 0
        """Heads and bodies that were complete."""
        self._is_in_body = False
        self._incoming: ServedRequest | None = None
        """The request whose body is arriving. None: what arrives of it is dropped."""
        self._current: ServedRequest | None = None
        """The request that is being answered."""
        self._pipeline: deque[ServedRequest] = deque()
        """Requests that arrived before the current one was answered."""
        self._handshake = b""
        """The head of a request for a WebSocket."""
        self._has_request = False
        """True once a request has begun on this connection."""
        self._unread = b""
        """Data that waits for a turn of the event loop that has time to read it."""
        self._is_read_due = False
        """True while data is read that has waited."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as of a stream
        self.transport = transport
        self.send = transport.write
        self._server_state.connections.add(self)  # type: ignore[arg-type] # in place of one of uvicorn's
        peer = transport.get_extra_info("peername")
        self.client_address = str(peer[0]) if isinstance(peer, tuple) else ""
        self._set_deadline(self.seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server_state.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self._writable.set()
        for request in (self._current, *self._pipeline):
            if request is not None:
                request.disconnect()
        # It has this protocol's methods.
        del self._parser
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.admission.is_crowded and not self._is_read_due and self._must_wait(data):
            return
        boundaries = self._boundaries
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            if self._handshake:
                self._open_websocket(data[upgrade.args[0] :])
                return
        except HttpParserError:
            self._refuse_invalid()
            return
        # Otherwise the data was that of a body, or began with bytes of an earlier request.
        if not self._is_in_body and self._boundaries == boundaries:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self._head_size = self._head_bytes
                self._refuse_invalid()
        if self._current is None and not self._has_begun_head:
            self._has_begun_head = True
            self._set_deadline(self.seconds)

    # The callbacks of the parser.

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._head_size += len(url)
        self._has_request = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_size += len(name) + len(value)
        if self._head_size > MAX_HEAD_BYTES or len(self._header_items) >= MAX_HEADERS:
            # The parser stops, and raises another error.
            raise ValueError("the head is too large")
        self._header_items.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        parser, url, header_items = self._parser, self._url, self._header_items
        if self._head_size > MAX_HEAD_BYTES:
            raise ValueError("the head is too large")
        self._url, self._header_items = b"", []
        self._head_size = self._head_bytes = 0
        self._boundaries += 1
        self._is_in_body = True
        self._incoming = None
        method = parser.get_method()
        if parser.should_upgrade() and _is_websocket(header_items):
            lines = (b"%b: %b\r\n" % each for each in header_items)
            self._handshake = b"%b %b HTTP/1.1\r\n%b\r\n" % (method, url, b"".join(lines))
            return
        if url.startswith(b"/") and b"%" not in url and b"#" not in url:
            raw_path, _, query_string = url.partition(b"?")
            path = raw_path.decode("ascii")
        else:
            path, query_string = _parse_url(url)
        keep_alive = parser.should_keep_alive()
        admission = self.admission
        # A request behind another one is not refused: the reply of the other one comes first.
        if admission.is_crowded and admission.is_overloaded and path not in PROBE_PATHS and self._current is None:
            self._refuse_overloaded(method, path, must_close=not keep_alive)
            return
        request = ServedRequest(self, method.decode("ascii"), path, query_string, header_items)
        if not keep_alive or parser.get_http_version() == "1.0":
            request.is_http_1_0 = parser.get_http_version() == "1.0"
            request.keep_alive = False
        self._incoming = request
        if self._current is None:
            self._admit(request)
        else:
            self.pause_reading()
            self._pipeline.append(request)

    def on_body(self, body: bytes) -> None:
        request = self._incoming
        if request is None or request.is_answered:
            return
        request.chunks.append(body)
        request.unread_bytes += len(body)
        if request.unread_bytes > MAX_UNREAD_BYTES:
            self.pause_reading()
        if request.waiter is not None:
            request.wake_receiver()

    def on_message_complete(self) -> None:
        self._boundaries += 1
        self._is_in_body = False
        request = self._incoming
        if request is not None:
            request.has_sent_all = True
            if request.waiter is not None:
                request.wake_receiver()

    # What requests need of their connection.

    @property
    def date_line(self) -> bytes:
        lines = b""
        for each in self._server_state.default_headers:
            lines += b"%b: %b\r\n" % each
        return lines

    def pause_reading(self) -> None:
        if not self.is_reading_paused:
            self.is_reading_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again, unless there are requests to be answered first."""
        if self.is_reading_paused and not (self._pipeline or self._unread or self.transport.is_closing()):
            self.is_reading_paused = False
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        self.is_write_paused = True
        self._writable.clear()
        super().pause_writing()

    def resume_writing(self) -> None:
        self.is_write_paused = False
        self._writable.set()
        super().resume_writing()

    async def wait_writable(self) -> None:
        await self._writable.wait()

    def end_reply(self, request: ServedRequest) -> None:
        self._current = None
        if not request.keep_alive:
            self.close()
        elif self.transport.is_closing():
            return
        elif self._pipeline:
            self._admit(self._pipeline.popleft())
        else:
            self._set_deadline(self._config.timeout_keep_alive)
            if self.is_reading_paused:
                self.resume_reading()

    def close(self) -> None:
        """Close the connection when everything was sent."""
        self.transport.close()
        self.watch_last_write()

    def shutdown(self) -> None:
        """Close the connection now, or after the reply to the current request."""
        request = self._current
        if request is None:
            self.close()
        else:
            request.keep_alive = False
            # The reader of an incomplete body does not wait for the rest.
            request.wake_receiver()
        self.shorten_stall_time()

    def _admit(self, request: ServedRequest) -> None:
        """Start the application for a request, now or in its turn."""
        self._current = request
        self._deadline = _NEVER
        self._has_begun_head = False
        if request.path in PROBE_PATHS:
            self._start()
        else:
            self.admission.start(self._start)

    def _start(self) -> None:
        request = self._current
        # A client that has left while its request was in line gets no work done for it.
        if request is not None and not request.is_disconnected:
            # uvicorn's server waits for its tasks at its end, and cancels them.
            request.task = task = self.loop.create_task(self.serve(request))
            tasks = self._server_state.tasks
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    def _set_deadline(self, seconds: float) -> None:
        self._deadline = self.loop.time() + seconds
        if self._deadline < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = self._deadline
            self._timer = self.loop.call_at(self._timer_at, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer_at = _NEVER
        remaining = self._deadline - self.loop.time()
        if remaining <= 0:
            self.close()
        elif self._deadline != _NEVER:
            self._set_deadline(remaining)

    def _refuse_invalid(self) -> None:
        """Send a 400 with the error object of the API, or a 431 for a head over a limit, and close the connection."""
        reply = Reply(status=HTTPStatus.BAD_REQUEST, body=protocol_error_body("Invalid HTTP request received."))
        if self._head_size > MAX_HEAD_BYTES or len(self._header_items) >= MAX_HEADERS:
            reply = reply_for(headers_too_large_error(MAX_HEADERS, MAX_HEAD_BYTES), "")
        self.refusals.report(reply.status, orjson.loads(reply.body)["error"], route=UNKNOWN_ROUTE)
        self.send(encode_reply(reply, b"connection: close\r\n"))
        self.close()

    def _refuse_overloaded(self, method: bytes, path: str, *, must_close: bool) -> None:
        """Reply with 503. The connection stays open, and the body is dropped as it comes: a client may send it first.

        Costs a fraction of what a request does: no task, no context, no line of the log.
        """
        self.admission.count_refusal()
        self.refusals.count_overload()
        door: _Door = "messages" if is_messages_path(path) else "mcp" if is_mcp_path(path) else "other"
        reply = _encode_overloaded(door, must_close).replace(_ID_PLACE.encode(), new_id("req").encode())
        self.send(reply.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if method == b"HEAD" else reply)
        self._has_begun_head = False
        if must_close:
            self.close()
        else:
            self._set_deadline(self._config.timeout_keep_alive)

    def _must_wait(self, data: bytes) -> bool:
        """Return whether data is not read now: it waits for a later turn, or is a probe that was answered."""
        if self._unread:
            self._unread += data
            return True
        if not self._has_request and is_health_request(data):
            self.send(encode_health())
            self.close()
            return True
        if self.admission.can_read():
            return False
        # As if it had been read: a connection with data is not idle.
        if not self._has_begun_head:
            self._deadline = _NEVER
        self._unread = data
        self.pause_reading()
        self.admission.read_later(self._read_unread)
        return True

    def _read_unread(self) -> None:
        data, self._unread = self._unread, b""
        if self.transport.is_closing():
            return
        self.resume_reading()
        self._is_read_due = True
        self.data_received(data)
        self._is_read_due = False

    def _open_websocket(self, rest: bytes) -> None:
        """Pass the connection with the handshake, and the bytes after it, to the protocol of WebSockets."""
        if self.admission.is_overloaded:
            method, _, path = self._handshake.partition(b" ")
            self._refuse_overloaded(method, path.partition(b" ")[0].decode("latin-1"), must_close=True)
            return
        self._deadline = _NEVER
        if self._timer is not None:
            self._timer.cancel()
        self._server_state.connections.discard(self)
        protocol: Any = self._config.ws_protocol_class(  # type: ignore[misc,call-arg] # it has one
            config=self._config, server_state=self._server_state, app_state=self._app_state
        )
        protocol.connection_made(self.transport)
        protocol.data_received(self._handshake)
        self.transport.set_protocol(protocol)
        if rest:
            protocol.data_received(rest)


def _parse_url(url: bytes) -> tuple[str, bytes]:
    """Return the decoded path and the query of any URL of a request. Raises where it has no path."""
    parsed = parse_url(url)
    return unquote(parsed.path.decode("ascii")), parsed.query or b""


def _is_websocket(header_items: list[tuple[bytes, bytes]]) -> bool:
    headers = dict(header_items)
    names = [each.strip().lower() for each in headers.get(b"connection", b"").split(b",")]
    return b"upgrade" in names and headers.get(b"upgrade", b"").lower() == b"websocket"


@cache
def _encode_overloaded(door: _Door, must_close: bool) -> bytes:
    """Encode the refusal of an overloaded gateway, with `_ID_PLACE` where the id of the request belongs."""
    reply = reply_for(overloaded_error(), "")
    if door == "messages":
        reply = messages_error_reply(reply, _ID_PLACE)
    elif door == "mcp":
        reply = mcp_error_reply(reply, "")
    named = f"x-request-id: {_ID_PLACE}\r\n".encode()
    return encode_reply(reply, named + (b"connection: close\r\n" if must_close else b""))


def build_http_protocol(
    serve: ServeHTTP, seconds: float, reader_seconds: float, refusals: Refusals, admission: Admission
) -> type[HTTPProtocol]:
    """Build a protocol class with these limits; uvicorn creates an instance for each connection.

    `serve`: the application. `seconds`: for a request head. `reader_seconds`: without any read by the client.
    `refusals`: records what is not a valid request. `admission`: of the requests of all connections.
    """
    attributes = {
        "serve": staticmethod(serve),
        "seconds": seconds,
        "reader_seconds": reader_seconds,
        "refusals": refusals,
        "admission": admission,
    }
    return type("LimitedHTTPProtocol", (HTTPProtocol,), attributes)
