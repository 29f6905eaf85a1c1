"""One HTTP request on a connection, from its head to the end of its reply.

`HTTPProtocol` creates a `ServedRequest` when a head has arrived, adds the parts of the body as they come, and starts
the application as a task. The application reads the body with `take_body` and `receive`, and writes the reply, whole
with `write_reply` or in parts with `start_stream`, `write` and `finish`. Writing never waits; `drain` waits for a
client that reads slowly. What is written for a client that has disconnected is dropped.

The request also has what logs, metrics and limits know of it. It ends early by `cancel`, when its caller is revoked,
and by a disconnect of the client once `cancel_on_disconnect` was called; the application finds out by `is_revoked`
and `is_disconnected` which of them it was.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterable, Callable, Mapping
from http import HTTPStatus
from typing import Protocol

from holodeck.gateway.auth.open_requests import OpenRequest
from holodeck.gateway.http.observation import UNKNOWN_ROUTE
from holodeck.gateway.http.replies import Reply

# Statuses without a body (RFC 9110).
_EMPTY_STATUSES = frozenset({204, 304})
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
STATUS_LINES: Mapping[int, bytes] = {
    **{status: f"HTTP/1.1 {status} \r\n".encode() for status in range(200, 600)},
    **{status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus},
}


class Connection(Protocol):
    """The connection of a request, as `HTTPProtocol` is one."""

    client_address: str
    is_reading_paused: bool
    is_write_paused: bool
    send: Callable[[bytes], None]

    @property
    def date_line(self) -> bytes:
        """The `date` of a reply, with its end of line."""
        ...

    def resume_reading(self) -> None: ...

    async def wait_writable(self) -> None: ...

    def end_reply(self, request: ServedRequest) -> None:
        """Go on with the next request, or close the connection where the reply says so."""
        ...

    def close(self) -> None: ...


class ServedRequest(OpenRequest):
    """The head of a request, its body as it arrives, and its reply."""

    __slots__ = (
        "_connection",
        "_is_cancelled_by_disconnect",
        "_is_chunked",
        "body_bytes",
        "chunks",
        "client_address",
        "has_sent_all",
        "header_items",
        "headers",
        "id",
        "is_answered",
        "is_disconnected",
        "is_http_1_0",
        "keep_alive",
        "method",
        "must_send_continue",
        "path",
        "query_string",
        "route",
        "started_at",
        "status",
        "unread_bytes",
        "waiter",
    )

    def __init__(
        self,
        connection: Connection,
        method: str,
        path: str,
        query_string: bytes,
        header_items: list[tuple[bytes, bytes]],
    ) -> None:
        self.caller_id = self.session_id = ""
        self.is_revoked = False
        self.method = method
        self.path = path
        self.query_string = query_string
        self.header_items = header_items
        """Names in lower case and values, in the order in which they were sent."""
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in header_items}
        """The last value of each name."""
        self.keep_alive = True
        """Whether the connection stays open after the reply."""
        self.is_http_1_0 = False
        self.must_send_continue = "expect" in self.headers and self.headers["expect"].lower() == "100-continue"
        self.chunks: list[bytes] = []
        """Parts of the body that have arrived and were not read."""
        self.unread_bytes = 0
        """Of these parts."""
        self.has_sent_all = False
        """Whether the whole body has arrived."""
        self.is_disconnected = False
        self.is_answered = False
        """Whether the reply was written to its end."""
        self.id = ""
        self.status = 0
        """The HTTP status of the reply. 0: no reply was started."""
        self.route = UNKNOWN_ROUTE
        self.body_bytes = 0
        """Bytes of the body that were read; the byte budget has them until the request ends."""
        self.started_at = time.perf_counter()
        self.client_address = connection.client_address
        self._connection = connection
        self.waiter: asyncio.Future[None] | None = None
        """Of the task that waits for more of the body."""
        self._is_cancelled_by_disconnect = False
        self._is_chunked = False

    def take_body(self) -> bytes:
        """Return what has arrived of the body and was not read yet."""
        if self.must_send_continue:
            self.must_send_continue = False
            self._connection.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        chunks, self.chunks, self.unread_bytes = self.chunks, [], 0
        # A large body has paused it, and a paused connection does not see its end.
        if self._connection.is_reading_paused:
            self._connection.resume_reading()
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def receive(self) -> bytes:
        """Wait for more of the body, and return it. Also ends, with nothing, when the client or the server does."""
        taken = self.take_body()
        if not (taken or self.has_sent_all or self.is_disconnected):
            self.waiter = asyncio.get_running_loop().create_future()
            try:
                await self.waiter
            finally:
                self.waiter = None
            taken = self.take_body()
        return taken

    def wake_receiver(self) -> None:
        """End the wait for more of the body."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def cancel_on_disconnect(self) -> None:
        """Cancel the task of this request when the client disconnects, or now if it has."""
        self._is_cancelled_by_disconnect = True
        if self._connection.is_reading_paused:
            self._connection.resume_reading()
        if self.is_disconnected:
            self.task.cancel()

    def disconnect(self) -> None:
        """Note that the client has disconnected."""
        self.is_disconnected = True
        self.wake_receiver()
        if self._is_cancelled_by_disconnect:
            self.task.cancel()

    def write_reply(self, status: int, headers: Mapping[str, str], body: bytes, *, is_last: bool = True) -> None:
        """Write a whole reply. `headers`: all of them but `date` and `connection`. `is_last`: `finish` it as well."""
        head = self._encode_head(status, headers)
        if not self.is_disconnected:
            self._connection.send(head if self.method == "HEAD" else head + body)
        if is_last:
            self.finish()

    def start_stream(self, status: int, headers: Mapping[str, str]) -> None:
        """Write the head of a reply whose body follows in parts."""
        if self.is_http_1_0:
            # Its end is that of the connection: these clients know no chunks.
            self.keep_alive = False
        elif self.method != "HEAD" and status not in _EMPTY_STATUSES:
            self._is_chunked = True
        head = self._encode_head(status, headers)
        if not self.is_disconnected:
            self._connection.send(head)

    def write(self, data: bytes) -> None:
        """Write a part of the body of a stream."""
        if self.is_disconnected or self.method == "HEAD" or not data:
            return
        self._connection.send(b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data)

    async def write_all(self, chunks: AsyncIterable[bytes], silent_seconds: float, comment: bytes) -> None:
        """Write the chunks of a stream as they come, and `comment` for every `silent_seconds` without one.

        Proxies and clients close connections without traffic.
        """
        connection, keepalive = self._connection, _KeepAlive(self, silent_seconds, comment)
        try:
            async for chunk in chunks:
                keepalive.chunks_sent += 1
                if connection.is_write_paused:
                    await connection.wait_writable()
                self.write(chunk)
        finally:
            keepalive.stop()

    async def drain(self) -> None:
        """Wait until the client has read nearly all that was written."""
        if self._connection.is_write_paused:
            await self._connection.wait_writable()

    def write_when_idle(self, data: bytes) -> None:
        """Write a part of the body, unless the client is not reading."""
        if not self._connection.is_write_paused:
            self.write(data)

    def finish(self) -> None:
        """End the reply. Idempotent."""
        if self.is_answered:
            return
        self.is_answered = True
        if not self.is_disconnected:
            if self._is_chunked:
                self._connection.send(b"0\r\n\r\n")
            self._connection.end_reply(self)

    def cut_connection(self) -> None:
        """Close the connection in the middle of a reply, which every client can tell from its proper end."""
        self.is_answered = True
        self._connection.close()

    def _encode_head(self, status: int, headers: Mapping[str, str]) -> bytes:
        self.status = status
        self.must_send_continue = False
        lines = [f"{name}: {value}" for name, value in headers.items()]
        if not self.keep_alive:
            lines.append("connection: close")
        if self._is_chunked:
            lines.append("transfer-encoding: chunked")
        # A value with an end of line would begin another header, or the body.
        written = "".join(lines)
        if not written.isprintable() and _CONTROL.search(written):
            raise ValueError("A header of a reply has a control character.")
        return b"%b%b%b\r\n\r\n" % (STATUS_LINES[status], self._connection.date_line, "\r\n".join(lines).encode())


class _KeepAlive:
    """Writes a comment for every `seconds` in which no chunk was sent, until `stop`.

    A timer compares the number of chunks: a timer that is set again for each would cost more than everything else here.
    """

    __slots__ = ("_chunks_at_check", "_comment", "_request", "_seconds", "_timer", "chunks_sent")

    def __init__(self, request: ServedRequest, seconds: float, comment: bytes) -> None:
        self.chunks_sent = 0
        self._request = request
        self._seconds = seconds
        self._comment = comment
        self._chunks_at_check = -1
        self._timer = asyncio.get_running_loop().call_later(seconds, self._check_idle)

    def stop(self) -> None:
        self._timer.cancel()

    def _check_idle(self) -> None:
        if self.chunks_sent == self._chunks_at_check:
            self._request.write_when_idle(self._comment)
        self._chunks_at_check = self.chunks_sent
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._check_idle)


def encode_reply(reply: Reply, headers: bytes) -> bytes:
    """Encode a reply that is written without a request. `headers`: more lines of its head, each with its end."""
    written = {"content-type": reply.content_type, "content-length": str(len(reply.body)), **reply.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in written.items())
    return STATUS_LINES[reply.status] + lines.encode() + headers + b"\r\n" + reply.body
