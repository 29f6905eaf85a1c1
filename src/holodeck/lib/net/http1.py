"""An HTTP/1.1 client connection that sends one request at a time and streams the response.

For model APIs and MCP servers, which are called on every turn: a general client spends several times as long on
features that they do not use. httptools judges every byte, as in our own server. The headers are taken from the bytes
that it has accepted, all at once: a callback for each of them costs more than the rest of a small response.

`HTTP1Connection` is an asyncio protocol. Its owner, `HTTP1Pool`, is notified through `on_free` when a response is
complete and the connection can be reused, and through `on_lost` when it is closed. `HTTP1Response` buffers the body
until `read`; beyond `HTTP_READ_CHUNK` the connection stops reading from the socket. Closing a response before its end,
or cancelling a request, closes the connection.
"""

from __future__ import annotations

import asyncio
import select
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import httptools

from holodeck.lib.byte_budget import Reservation
from holodeck.lib.limits import HTTP_READ_CHUNK, KIB

if TYPE_CHECKING:
    OnConnection = Callable[["HTTP1Connection"], None]

# Bytes of the headers of a response; real ones have a few KiB.
MAX_HTTP_HEAD_BYTES = 64 * KIB

_OK = 200
# From this status on, a response is a redirect or an error: sending the rest of the request is useless.
_FIRST_REDIRECT_STATUS = 300
_ENCODINGS = frozenset({"gzip", "x-gzip", "deflate"})
_TOO_LONG = f"its headers have more than {MAX_HTTP_HEAD_BYTES} bytes"
# Where the status and its words are in a status line: `HTTP/1.1 200 OK`.
_STATUS_AT, _PHRASE_AT = 9, 13
_JOINERS = {"set-cookie": "\n"}
# The method in the first byte of a zlib header; some servers send "deflate" without that header.
_ZLIB_METHOD = 8


class ResponseLostError(ConnectionError):
    """The connection ended before the response was complete."""


class BodyCutError(ResponseLostError):
    """The connection ended in the middle of the body."""


class BodyTooLargeError(ValueError):
    """A body exceeds the reader's limit; the rest was not read."""


class UnreadableResponseError(ResponseLostError):
    """The response cannot be parsed or decompressed; the message says why."""


class HTTP1Response:
    """A response whose headers have arrived. `read` returns the body in parts.

    `close` before the end of the body closes the connection.
    """

    __slots__ = (
        "_chunks",
        "_connection",
        "_encoding",
        "_error",
        "_excerpt",
        "_inflater",
        "_is_complete",
        "_size",
        "_waiting_reader",
        "headers",
        "phrase",
        "status",
    )

    def __init__(self, connection: HTTP1Connection, status: int, phrase: str, headers: dict[str, str]) -> None:
        """`phrase`: the words behind the status. The names in `headers` are lower case.

        Repeated headers are joined by commas, and `set-cookie`, whose dates have commas, by line breaks.
        """
        self.status = status
        self.phrase = phrase
        self.headers = headers
        self._connection = connection
        self._encoding = ""
        if "content-encoding" in headers:
            encoding = headers["content-encoding"].strip().lower()
            self._encoding = "" if encoding == "identity" else encoding
        self._inflater: zlib._Decompress | None = None
        self._chunks: list[bytes] = []
        self._size = 0
        self._is_complete = False
        self._error: ResponseLostError | None = None
        self._excerpt: bytes | None = None
        self._waiting_reader: asyncio.Future[None] | None = None

    @property
    def content_type(self) -> str:
        header = self.headers.get("content-type", "application/octet-stream")
        # Some servers send the header twice; the values are then joined by a comma.
        return header.partition(";")[0].partition(",")[0].strip().lower()

    @property
    def is_at_end(self) -> bool:
        """Whether the whole body has arrived and was read."""
        return self._is_complete and not self._chunks

    async def read(self, seconds: float | None = None) -> bytes:
        """Wait for data and return all that arrived since the last call; empty at the end of the body.

        Raises `ResponseLostError` if the connection ends before that, and `TimeoutError` after `seconds` of silence.
        """
        while True:
            if not self._chunks:
                if self._is_complete:
                    return b""
                if self._error is not None:
                    raise self._error
                await self._wait_data(seconds)
            elif not self._encoding:
                return self._take_chunks()
            else:
                # A few bytes can inflate to a lot: let other tasks run in between.
                await asyncio.sleep(0)
                if data := self._read_inflated():
                    return data

    async def read_all(self, limit: int, reserved: Reservation | None = None) -> bytes:
        """Read the whole body, at most `limit` bytes after decompression, counted in `reserved`.

        Raises `BodyTooLargeError`, `ResponseLostError`, and `OverBudgetError` where `reserved` cannot be extended.
        """
        parts: list[bytes] = []
        size = 0
        while True:
            is_whole = self._is_complete and not self._encoding
            data = self._take_chunks() if is_whole else await self.read()
            size += len(data)
            if size > limit:
                self.close()
                raise BodyTooLargeError(f"more than {limit} bytes")
            if reserved is not None:
                reserved.extend(len(data))
            if is_whole or not data:
                return b"".join((*parts, data)) if parts else data
            parts.append(data)

    async def read_excerpt(self, limit: int) -> bytes:
        """Return the first `limit` bytes of a body that is only quoted. A second call returns the same bytes.

        Raises `ResponseLostError`.
        """
        if self._excerpt is None:
            excerpt = b""
            while len(excerpt) < limit and (data := await self.read()):
                excerpt += data
            if not self.is_at_end:
                self.close()
            self._excerpt = excerpt[:limit]
        return self._excerpt

    def close(self) -> None:
        """Stop reading. Closes the connection unless the response is complete."""
        if not self._is_complete:
            self._connection.abort()

    def add(self, data: bytes) -> int:
        """Append data of the body and return the bytes that are buffered. Called by the connection."""
        self._chunks.append(data)
        self._size += len(data)
        if self._waiting_reader is not None:
            self._wake_reader()
        return self._size

    def end(self, error: ResponseLostError | None = None) -> None:
        """Mark the body as complete, or as lost with `error`. Called by the connection."""
        self._is_complete, self._error = error is None, error
        if self._waiting_reader is not None:
            self._wake_reader()

    def _read_inflated(self) -> bytes:
        """Return at most `HTTP_READ_CHUNK` bytes of the decompressed body."""
        packed = b"".join(self._chunks)
        inflate = self._inflater = self._inflater or self._create_inflater(packed)
        try:
            data = inflate.decompress(packed, HTTP_READ_CHUNK)
        except zlib.error as error:
            raise UnreadableResponseError(f"its {self._encoding} is broken") from error
        rest = inflate.unconsumed_tail
        # The inflater may also hold output of input that it has already consumed.
        has_more = rest or (len(data) == HTTP_READ_CHUNK and not inflate.eof)
        self._chunks = [rest] if has_more else []
        if not has_more:
            self._size = 0
            self._connection.resume()
        return data

    def _create_inflater(self, packed: bytes) -> zlib._Decompress:
        if self._encoding not in _ENCODINGS:
            raise UnreadableResponseError(f"it came as '{self._encoding}', which nobody asked for")
        is_bare = self._encoding == "deflate" and packed[0] & 0x0F != _ZLIB_METHOD
        return zlib.decompressobj(-zlib.MAX_WBITS if is_bare else zlib.MAX_WBITS | 32)

    async def _wait_data(self, seconds: float | None) -> None:
        loop = asyncio.get_running_loop()
        waiting = self._waiting_reader = loop.create_future()
        if seconds is None:
            await waiting
            return
        # Not `asyncio.timeout`, which cancels the task and costs several times as much.
        timer = loop.call_later(seconds, _time_out, waiting)
        try:
            await waiting
        finally:
            timer.cancel()

    def _take_chunks(self) -> bytes:
        """Return the body that is buffered, and read on from the socket."""
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks, self._size = [], 0
        if not self._is_complete:
            self._connection.resume()
        return data

    def _wake_reader(self) -> None:
        waiting, self._waiting_reader = self._waiting_reader, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)


def _time_out(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_exception(TimeoutError())


class HTTP1Connection(asyncio.Protocol):
    """A client connection that carries one request at a time; see the module for its lifecycle."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, on_free: OnConnection, on_lost: OnConnection) -> None:
        self.loop = loop
        self.free_since = 0.0
        self._on_free = on_free
        self._on_lost = on_lost
        self._parser = httptools.HttpResponseParser(self)
        self._pending: asyncio.Future[HTTP1Response] | None = None
        self._response: HTTP1Response | None = None
        # The bytes that were received before the headers of the response were complete.
        self._head: list[bytes] = []
        # Bytes received since the last byte of a body.
        self._non_body_bytes = 0
        self._is_paused = False
        self._is_closed = False
        self._poller: select.poll | None = None
        self._write_allowed: asyncio.Future[None] | None = None
        self._is_sending = False
        self._transport: asyncio.Transport

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    @property
    def is_idle(self) -> bool:
        """Whether the connection can carry a request: neither closed nor with unexpected data, even just now."""
        if self._transport.is_closing():
            return False
        return not (self._has_unread_data() if self._poller is None else self._poller.poll(0))

    async def send(self, head: bytes, body: bytes) -> HTTP1Response:
        """Send a request and wait for the headers of its response. Cancellation closes the connection.

        Raises `ResponseLostError` if the connection ends first.
        """
        if self._is_closed:
            raise ResponseLostError("the connection was closed")
        pending: asyncio.Future[HTTP1Response] = self.loop.create_future()
        self._pending = pending
        self._non_body_bytes = 0
        try:
            if len(body) <= HTTP_READ_CHUNK:
                self._transport.writelines((head, body))
            else:
                await self._send_chunks(head, body, pending)
            return await pending
        except BaseException:
            # Otherwise the response is complete, and the connection may already carry another request.
            if self._pending is pending:
                self.abort()
            if not pending.cancel() and not pending.cancelled():
                # Mark the exception as retrieved; it is not needed.
                pending.exception()
            raise

    def abort(self) -> None:
        self._transport.abort()

    def resume(self) -> None:
        """Read from the socket again, after the buffered body was read."""
        if self._is_paused and self.is_open:
            self._is_paused = False
            self._transport.resume_reading()

    def _has_unread_data(self) -> bool:
        """Return whether the socket has data that the event loop has not read yet."""
        if self._poller is None:
            self._poller = select.poll()
            self._poller.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(self._poller.poll(0))

    async def _send_chunks(self, head: bytes, body: bytes, pending: asyncio.Future[HTTP1Response]) -> None:
        """Send a large body in chunks, so that other tasks run in between, until an error or the end of the response.

        A successful response may start before the whole request is sent: some servers send its headers first.
        """
        self._is_sending = True
        self._transport.write(head)
        for at in range(0, len(body), HTTP_READ_CHUNK):
            # Data of the server is read before more is sent: a failed write would discard it with the connection.
            while not pending.done() and self._has_unread_data():  # noqa: ASYNC110 - the event loop does the reading
                await asyncio.sleep(0)
            if self._pending is not pending or (pending.done() and pending.result().status >= _FIRST_REDIRECT_STATUS):
                return
            self._transport.write(body[at : at + HTTP_READ_CHUNK])
            if self._write_allowed is not None:
                futures = (self._write_allowed,) if pending.done() else (self._write_allowed, pending)
                await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(0)
        self._is_sending = False

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment] # uvloop's transports do not inherit asyncio's

    def data_received(self, data: bytes) -> None:
        if self._pending is None:
            # Data without a request.
            self.abort()
            return
        self._non_body_bytes += len(data)
        if self._response is None:
            self._head.append(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail_unreadable(error.__context__ or error)
            return
        if self._non_body_bytes > MAX_HTTP_HEAD_BYTES:
            self._fail_unreadable(UnreadableResponseError(_TOO_LONG))

    def eof_received(self) -> None:
        # Abort: the event loop would otherwise send the rest of the request before it calls `connection_lost`.
        self._end_response(None)
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        self._end_response(exc)
        self.resume_writing()
        self._on_lost(self)

    def pause_writing(self) -> None:
        self._write_allowed = self.loop.create_future()

    def resume_writing(self) -> None:
        allowed, self._write_allowed = self._write_allowed, None
        if allowed is not None and not allowed.done():
            allowed.set_result(None)

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        if self._pending is None:
            # A second response to one request.
            self.abort()

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < _OK or self._pending is None:
            # An informational response, such as 100 Continue: the final one follows.
            return
        head, self._head = self._head, []
        self._response = HTTP1Response(self, status, *_parse_head(head[0] if len(head) == 1 else b"".join(head)))
        if not self._pending.done():
            self._pending.set_result(self._response)

    def on_body(self, data: bytes) -> None:
        self._non_body_bytes = 0
        if self._response is not None and self._response.add(data) > HTTP_READ_CHUNK and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        response, self._response = self._response, None
        if response is None:
            return
        self._pending = None
        self._non_body_bytes = 0
        response.end()
        is_all_sent = not self._is_sending and not self._transport.get_write_buffer_size()
        if is_all_sent and self._parser.should_keep_alive() and not self._transport.is_closing():
            if self._is_paused:
                self.resume()
            self._on_free(self)
        else:
            self.abort()

    def _end_response(self, exc: Exception | None) -> None:
        """Complete a response that ends with the connection, or fail one that does not."""
        response = self._response
        if response is not None and exc is None and _ends_with_connection(response.headers):
            self._pending = self._response = None
            response.end()
        else:
            kind = ResponseLostError if response is None else BodyCutError
            self._fail(kind("the connection was closed"))

    def _fail_unreadable(self, error: BaseException) -> None:
        if not isinstance(error, UnreadableResponseError):
            error = UnreadableResponseError(f"it is not HTTP ({error})")
        self._fail(error)
        self.abort()

    def _fail(self, error: ResponseLostError) -> None:
        pending, response, self._pending, self._response = self._pending, self._response, None, None
        if response is not None:
            response.end(error)
        elif pending is not None and not pending.done():
            pending.set_exception(error)


def _parse_head(received: bytes) -> tuple[str, dict[str, str]]:
    """Return the words behind the status, and the headers, of the first response that is not informational.

    `received` begins with it, or with informational ones, and httptools has accepted the whole head: each line ends
    with CR LF, and has a colon after the name. Raises `UnreadableResponseError` for one over the limit.
    """
    start = 0
    while True:
        # Line ends before a response are ignored, also bare ones.
        while received.startswith((b"\r", b"\n"), start):
            start += 1
        end = received.find(b"\r\n\r\n", start)
        if end < 0:
            raise UnreadableResponseError("its headers do not end with an empty line")
        if not received.startswith(b"1", start + _STATUS_AT):
            break
        start = end + 4
    if end - start > MAX_HTTP_HEAD_BYTES:
        raise UnreadableResponseError(_TOO_LONG)
    status_line, *lines = received[start:end].decode("latin-1").split("\r\n")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        key, text = name.lower(), value.strip(" \t")
        headers[key] = text if key not in headers else f"{headers[key]}{_JOINERS.get(key, ', ')}{text}"
    return status_line[_PHRASE_AT:], headers


def _ends_with_connection(headers: dict[str, str]) -> bool:
    return "content-length" not in headers and "chunked" not in headers.get("transfer-encoding", "").lower()
