"""One HTTP/1.1 connection that carries a POST at a time, and the answer as it comes.

For the APIs of models, which are asked for every turn: a client that can do everything spends several times as long on
cookies, redirects and forms that none of them has. Parsing is the same C library's that our own server uses.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import httptools

from holodeck.lib.limits import HTTP_READ_CHUNK, MAX_HTTP_HEAD_BYTES

if TYPE_CHECKING:
    Freed = Callable[["Connection"], None]

_OK = 200
_ENCODINGS = frozenset({"gzip", "x-gzip", "deflate"})


class AnswerLostError(ConnectionError):
    """The connection ended before the answer was whole, or brought something that is no HTTP."""


class Posted:
    """An answer whose head has come. `read` gives what follows; `close` before its end closes the connection."""

    __slots__ = ("_connection", "_error", "_inflate", "_is_whole", "_news", "_pieces", "_size", "headers", "status")

    def __init__(self, connection: Connection, status: int, headers: dict[str, str]) -> None:
        """The names in `headers` are in lower case."""
        self.status = status
        self.headers = headers
        self._connection = connection
        encoding = headers.get("content-encoding", "").lower()
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32) if encoding in _ENCODINGS else None
        self._pieces: list[bytes] = []
        self._size = 0
        self._is_whole = False
        self._error: AnswerLostError | None = None
        self._news: asyncio.Future[None] | None = None

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "application/octet-stream").partition(";")[0].strip().lower()

    @property
    def is_at_end(self) -> bool:
        """Whether everything has come and was read."""
        return self._is_whole and not self._pieces

    async def read(self) -> bytes:
        """What has come since the last time, as soon as there is anything. Nothing: it is at its end."""
        while not self._pieces:
            if self._is_whole:
                return b""
            if self._error is not None:
                raise self._error
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        if self._inflate is not None:
            return self._inflated(self._inflate)
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces = []
        self._taken()
        return data

    def close(self) -> None:
        """Nobody reads any more."""
        if not self._is_whole:
            self._connection.abort()

    def add(self, data: bytes) -> int:
        """More has come. How much waits to be read now."""
        self._pieces.append(data)
        self._size += len(data)
        self._tell()
        return self._size

    def end(self, error: AnswerLostError | None = None) -> None:
        """Nothing more will come."""
        self._is_whole, self._error = error is None, error
        self._tell()

    def _inflated(self, inflate: zlib._Decompress) -> bytes:
        """The next part, however much the rest may grow to."""
        packed = b"".join(self._pieces)
        try:
            data = inflate.decompress(packed, HTTP_READ_CHUNK)
        except zlib.error as error:
            raise AnswerLostError(f"its {self.headers['content-encoding']} cannot be read") from error
        left = inflate.unconsumed_tail
        self._pieces = [left] if left else []
        if not left:
            self._taken()
        return data

    def _taken(self) -> None:
        self._size = 0
        self._connection.resume()

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


class Connection(asyncio.Protocol):
    """Asks one thing at a time. It says when it can be used again, and when it is gone."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, on_free: Freed, on_lost: Freed) -> None:
        self.loop = loop
        self.free_since = 0.0
        self._on_free = on_free
        self._on_lost = on_lost
        self._parser = httptools.HttpResponseParser(self)
        self._asked: asyncio.Future[Posted] | None = None
        self._answer: Posted | None = None
        self._headers: dict[str, str] = {}
        self._head_size = 0
        self._is_paused = False
        self._may_write: asyncio.Future[None] | None = None
        self._is_sending = False
        self._transport: asyncio.Transport

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    async def post(self, head: bytes, body: bytes) -> Posted:
        """Send a request. Leaving before its answer begins closes the connection."""
        self._asked = self.loop.create_future()
        try:
            if len(body) <= HTTP_READ_CHUNK:
                self._transport.writelines((head, body))
            else:
                await self._send(head, body)
            return await self._asked
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        self._transport.abort()

    def resume(self) -> None:
        """What had come was read."""
        if self._is_paused and self.is_open:
            self._is_paused = False
            self._transport.resume_reading()

    async def _send(self, head: bytes, body: bytes) -> None:
        """In pieces, so that others get their turn. An answer that comes before the end is a refusal: stop there."""
        assert self._asked is not None  # noqa: S101 - `post` has just made it
        self._is_sending = True
        self._transport.write(head)
        for at in range(0, len(body), HTTP_READ_CHUNK):
            if self._asked.done():
                return
            self._transport.write(body[at : at + HTTP_READ_CHUNK])
            if self._may_write is not None:
                await asyncio.wait((self._may_write, self._asked), return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(0)
        self._is_sending = False

    # What the loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment] # uvloop's is none of asyncio's classes

    def data_received(self, data: bytes) -> None:
        if self._asked is None:  # nobody has
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(AnswerLostError(f"it does not speak HTTP ({error})"))
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        answer = self._answer
        if answer is not None and exc is None and not {"content-length", "transfer-encoding"} & answer.headers.keys():
            self._asked = self._answer = None
            answer.end()  # it had no other way to say so
        else:
            self._fail(AnswerLostError("the connection was closed"))
        self.resume_writing()
        self._on_lost(self)

    def pause_writing(self) -> None:
        self._may_write = self.loop.create_future()

    def resume_writing(self) -> None:
        waiting, self._may_write = self._may_write, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    # What the parser finds

    def on_message_begin(self) -> None:
        if self._asked is None:  # more than was asked for
            self.abort()
        self._headers, self._head_size = {}, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_size += len(name) + len(value)
        if self._head_size > MAX_HTTP_HEAD_BYTES:
            raise AnswerLostError(f"headers of more than {MAX_HTTP_HEAD_BYTES} bytes")
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < _OK or self._asked is None:  # "go on", and the like: the answer follows
            return
        self._answer = Posted(self, status, self._headers)
        if not self._asked.done():
            self._asked.set_result(self._answer)

    def on_body(self, data: bytes) -> None:
        if self._answer is not None and self._answer.add(data) > HTTP_READ_CHUNK and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            return
        self._asked = None
        answer.end()
        if self._parser.should_keep_alive() and not self._is_sending and self.is_open:
            self.resume()
            self._on_free(self)
        else:
            self.abort()

    def _fail(self, error: AnswerLostError) -> None:
        asked, answer, self._asked, self._answer = self._asked, self._answer, None, None
        if answer is not None:
            answer.end(error)
        elif asked is not None and not asked.done():
            asked.set_exception(error)
