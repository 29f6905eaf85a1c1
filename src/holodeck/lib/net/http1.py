"""One HTTP/1.1 connection that carries a POST at a time, and the answer as it comes.

For the APIs of models, which are asked for every turn: a client that can do everything spends several times as long on
cookies, redirects and forms that none of them has. Parsing is the same C library's that our own server uses.
"""

from __future__ import annotations

import asyncio
import select
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import httptools

from holodeck.lib.limits import HTTP_READ_CHUNK, KIB

if TYPE_CHECKING:
    OnConnection = Callable[["HTTP1Connection"], None]

# Of the headers of an answer; real ones have a few KiB.
MAX_HTTP_HEAD_BYTES = 64 * KIB


_OK = 200
_FIRST_REDIRECT_STATUS = 300  # from here on, an answer is none to what was asked
_ENCODINGS = frozenset({"gzip", "x-gzip", "deflate"})
_TOO_LONG = f"its headers have more than {MAX_HTTP_HEAD_BYTES} bytes"
_ZLIB_METHOD = 8  # in the first byte of what has zlib's header; some send "deflate" without one


class ResponseLostError(ConnectionError):
    """The connection ended before the answer was whole."""


class UnreadableResponseError(ResponseLostError):
    """What came is no answer that can be read; the text says why."""


class HTTP1Response:
    """An answer whose head has come. `read` gives what follows; `close` before its end closes the connection."""

    __slots__ = (
        "_chunks",
        "_connection",
        "_data_arrived",
        "_encoding",
        "_error",
        "_inflater",
        "_is_complete",
        "_size",
        "headers",
        "status",
    )

    def __init__(self, connection: HTTP1Connection, status: int, headers: dict[str, str]) -> None:
        """The names in `headers` are in lower case."""
        self.status = status
        self.headers = headers
        self._connection = connection
        encoding = headers.get("content-encoding", "").strip().lower()
        self._encoding = "" if encoding == "identity" else encoding
        self._inflater: zlib._Decompress | None = None
        self._chunks: list[bytes] = []
        self._size = 0
        self._is_complete = False
        self._error: ResponseLostError | None = None
        self._data_arrived: asyncio.Future[None] | None = None

    @property
    def content_type(self) -> str:
        named = self.headers.get("content-type", "application/octet-stream")
        return named.partition(";")[0].partition(",")[0].strip().lower()  # some say it twice

    @property
    def is_at_end(self) -> bool:
        """Whether everything has come and was read."""
        return self._is_complete and not self._chunks

    async def read(self) -> bytes:
        """What has come since the last time, as soon as there is anything. Nothing: it is at its end."""
        while not self._chunks:
            if self._is_complete:
                return b""
            if self._error is not None:
                raise self._error
            self._data_arrived = asyncio.get_running_loop().create_future()
            await self._data_arrived
        if self._encoding:
            await asyncio.sleep(0)  # little can grow to much: others get their turn
            return self._read_inflated()
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks = []
        self._resume_reading()
        return data

    def close(self) -> None:
        """Nobody reads any more."""
        if not self._is_complete:
            self._connection.abort()

    def add(self, data: bytes) -> int:
        """More has come. How much waits to be read now."""
        self._chunks.append(data)
        self._size += len(data)
        self._wake_reader()
        return self._size

    def end(self, error: ResponseLostError | None = None) -> None:
        """Nothing more will come."""
        self._is_complete, self._error = error is None, error
        self._wake_reader()

    def _read_inflated(self) -> bytes:
        """The next part, however much the rest may grow to."""
        packed = b"".join(self._chunks)
        inflate = self._inflater = self._inflater or self._create_inflater(packed)
        try:
            data = inflate.decompress(packed, HTTP_READ_CHUNK)
        except zlib.error as error:
            raise UnreadableResponseError(f"its {self._encoding} is broken") from error
        left = inflate.unconsumed_tail
        has_more = left or (len(data) == HTTP_READ_CHUNK and not inflate.eof)  # also of what it has taken in
        self._chunks = [left] if has_more else []
        if not has_more:
            self._resume_reading()
        return data

    def _create_inflater(self, packed: bytes) -> zlib._Decompress:
        if self._encoding not in _ENCODINGS:
            raise UnreadableResponseError(f"it came as '{self._encoding}', which nobody asked for")
        is_bare = self._encoding == "deflate" and packed[0] & 0x0F != _ZLIB_METHOD
        return zlib.decompressobj(-zlib.MAX_WBITS if is_bare else zlib.MAX_WBITS | 32)

    def _resume_reading(self) -> None:
        self._size = 0
        self._connection.resume()

    def _wake_reader(self) -> None:
        if self._data_arrived is not None and not self._data_arrived.done():
            self._data_arrived.set_result(None)


class HTTP1Connection(asyncio.Protocol):
    """Asks one thing at a time. It says when it can be used again, and when it is gone."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, on_free: OnConnection, on_lost: OnConnection) -> None:
        self.loop = loop
        self.free_since = 0.0
        self._on_free = on_free
        self._on_lost = on_lost
        self._parser = httptools.HttpResponseParser(self)
        self._pending: asyncio.Future[HTTP1Response] | None = None
        self._response: HTTP1Response | None = None
        self._headers: dict[str, str] = {}
        self._head_size = 0
        self._non_body_bytes = 0  # bytes since the last that were of a body
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
        """Whether the server still waits for a question: it neither left nor said anything since, even just now."""
        return not self._transport.is_closing() and not self._has_unread_data()

    async def post(self, head: bytes, body: bytes) -> HTTP1Response:
        """Send a request. Leaving before its answer begins closes the connection."""
        if self._is_closed:
            raise ResponseLostError("the connection was closed")
        asked: asyncio.Future[HTTP1Response] = self.loop.create_future()
        self._pending = asked
        self._non_body_bytes = 0
        try:
            if len(body) <= HTTP_READ_CHUNK:
                self._transport.writelines((head, body))
            else:
                await self._send(head, body, asked)
            return await asked
        except BaseException:
            if self._pending is asked:  # else it has all come, and the connection may be another's already
                self.abort()
            if not asked.cancel() and not asked.cancelled():
                asked.exception()  # seen: nobody else will look
            raise

    def abort(self) -> None:
        self._transport.abort()

    def resume(self) -> None:
        """What had come was read."""
        if self._is_paused and self.is_open:
            self._is_paused = False
            self._transport.resume_reading()

    def _has_unread_data(self) -> bool:
        """Whether something lies in the socket that the loop has not looked at."""
        if self._poller is None:
            self._poller = select.poll()
            self._poller.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(self._poller.poll(0))

    async def _send(self, head: bytes, body: bytes, pending: asyncio.Future[HTTP1Response]) -> None:
        """In pieces, so that others get their turn, and not further than to a refusal or the end of an answer.

        A good answer may begin before the question has ended: some servers send its head at once, and then read on.
        """
        self._is_sending = True
        self._transport.write(head)
        for at in range(0, len(body), HTTP_READ_CHUNK):
            # What the server said is read before more is sent: a write that fails takes it away with the connection.
            while not pending.done() and self._has_unread_data():  # noqa: ASYNC110 - it is the loop that looks
                await asyncio.sleep(0)
            if self._pending is not pending or (pending.done() and pending.result().status >= _FIRST_REDIRECT_STATUS):
                return
            self._transport.write(body[at : at + HTTP_READ_CHUNK])
            if self._write_allowed is not None:
                news = (self._write_allowed,) if pending.done() else (self._write_allowed, pending)
                await asyncio.wait(news, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(0)
        self._is_sending = False

    # What the loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment] # uvloop's is none of asyncio's classes

    def data_received(self, data: bytes) -> None:
        if self._pending is None:  # nobody has
            self.abort()
            return
        self._non_body_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail_unreadable(error.__context__ or error)
            return
        if self._non_body_bytes > MAX_HTTP_HEAD_BYTES:  # the parser keeps a header until it is whole
            self._fail_unreadable(UnreadableResponseError(_TOO_LONG))

    def eof_received(self) -> None:
        # What is still to be sent nobody waits for; the loop would, before it tells that the connection is lost.
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
        waiting, self._write_allowed = self._write_allowed, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    # What the parser finds

    def on_message_begin(self) -> None:
        if self._pending is None:  # more than was asked for
            self.abort()
        self._headers, self._head_size = {}, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_size += len(name) + len(value)
        if self._head_size > MAX_HTTP_HEAD_BYTES:
            raise UnreadableResponseError(_TOO_LONG)
        if self._response is not None:  # behind its body: nothing that is needed
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < _OK or self._pending is None:  # "go on", and the like: the answer follows
            return
        self._response = HTTP1Response(self, status, self._headers)
        if not self._pending.done():
            self._pending.set_result(self._response)

    def on_body(self, data: bytes) -> None:
        self._non_body_bytes = 0
        if self._response is not None and self._response.add(data) > HTTP_READ_CHUNK and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        answer, self._response = self._response, None
        if answer is None:
            return
        self._pending = None
        self._non_body_bytes = 0
        answer.end()
        is_all_sent = not self._is_sending and not self._transport.get_write_buffer_size()
        if is_all_sent and self._parser.should_keep_alive() and self.is_open:
            self.resume()
            self._on_free(self)
        else:
            self.abort()

    def _end_response(self, exc: Exception | None) -> None:
        """The connection has ended, and with it an answer that has no other way to say so."""
        answer = self._response
        if answer is not None and exc is None and _ends_with_connection(answer.headers):
            self._pending = self._response = None
            answer.end()
        else:
            self._fail(ResponseLostError("the connection was closed"))

    def _fail_unreadable(self, error: BaseException) -> None:
        if not isinstance(error, UnreadableResponseError):
            error = UnreadableResponseError(f"it is not HTTP ({error})")
        self._fail(error)
        self.abort()

    def _fail(self, error: ResponseLostError) -> None:
        asked, answer, self._pending, self._response = self._pending, self._response, None, None
        if answer is not None:
            answer.end(error)
        elif asked is not None and not asked.done():
            asked.set_exception(error)


def _ends_with_connection(headers: dict[str, str]) -> bool:
    return "content-length" not in headers and "chunked" not in headers.get("transfer-encoding", "").lower()
