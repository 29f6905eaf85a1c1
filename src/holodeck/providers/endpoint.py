"""One address of a model API: a body goes out, events come in, and every way to fail has a sentence."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, NoReturn, Protocol

import orjson

from holodeck.lib.errors import OVERLOADED, ModelError
from holodeck.lib.limits import (
    MAX_MODEL_BODY_BYTES,
    MAX_MODEL_ERROR_BYTES,
    MODEL_CONNECT_TIMEOUT,
    MODEL_REFUSAL,
    MODEL_TAIL,
    SHORTAGE_RETRY_AFTER,
)
from holodeck.lib.posted import AnswerLostError, UnreadableAnswerError
from holodeck.lib.posting import NotAURLError, NoWayThroughError, Poster, UnreachedError, UnsendableError
from holodeck.lib.proxies import proxy_for
from holodeck.lib.shortage import WHAT, is_short
from holodeck.providers.address import Address, host_of
from holodeck.providers.failures import refused
from holodeck.providers.sse import EventDecoder, LineTooLongError

DONE: dict[str, Any] = {"[DONE]": True}
"""Stands among the events for the mark that ends a stream in some dialects."""

_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "text/event-stream",
    "Accept-Encoding": "identity",  # a compressed stream comes in lumps
    "User-Agent": "holodeck",
}
_STREAMS = frozenset({"text/event-stream", "text/plain", "application/octet-stream"})  # some name it wrongly, or not
_TROUBLES = (OSError, LineTooLongError, NotAURLError, UnsendableError)
_OK = HTTPStatus.OK.value
Headers = Callable[[], Mapping[str, str]]


class Answer(Protocol):
    """An answer whose head has come, direct or through a proxy."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def content_type(self) -> str: ...
    @property
    def is_at_end(self) -> bool: ...
    async def read(self) -> bytes: ...
    def close(self) -> None: ...


class Carrier(Protocol):
    """Carries questions to one URL."""

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Answer: ...
    async def close(self) -> None: ...


class Endpoint:
    """Where a model is asked. Its connections are made when first needed, and kept until `close`."""

    def __init__(self, url: str, *, address: Address, headers: Headers) -> None:
        self._url = url
        self.address = address
        self._headers = headers
        self._carrier: Carrier | None = None
        self._proxy = ""

    async def ask(
        self, body: Mapping[str, Any], *, is_over: Callable[[], bool]
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """The decoded events of one answer, as they come, several when they came together.

        Once `is_over`, nothing more is read. Leaving the iterator before that closes the connection at once.
        """
        try:
            answer = await self._reached().post(orjson.dumps(body), {**_HEADERS, **self._headers()})
        except _TROUBLES as error:
            raise self._explanation(error) from _cause(error)
        try:
            if answer.status != _OK:
                await self._refuse(answer)
            if answer.content_type in _STREAMS:
                decoder = EventDecoder()
                while not (is_over() or answer.is_at_end):
                    events: list[dict[str, Any]] = []
                    try:
                        for data in await self._more(answer, decoder):
                            events.append(self._decoded(data))
                    except ModelError:
                        yield events  # what came before it stands
                        if not is_over():
                            raise
                    else:
                        yield events
                if not is_over():
                    yield self._remains(decoder)
            else:
                yield [await self._whole(answer)]
            if not answer.is_at_end:
                await self._tail(answer)
        finally:
            answer.close()

    async def close(self) -> None:
        """Let go of the connections. The next question makes new ones."""
        carrier, self._carrier = self._carrier, None
        if carrier is not None:
            await carrier.close()

    def _reached(self) -> Carrier:
        if self._carrier is None:
            try:
                proxy = proxy_for(self._url)
            except ValueError as error:
                raise NotAURLError from error
            if proxy is None:
                self._carrier = Poster(self._url, connect_timeout=MODEL_CONNECT_TIMEOUT)
            else:
                from holodeck.providers.proxied import ProxiedPoster

                self._proxy = host_of(proxy if "://" in proxy else f"//{proxy}")
                self._carrier = ProxiedPoster(self._url, proxy, connect_timeout=MODEL_CONNECT_TIMEOUT)
        return self._carrier

    async def _more(self, answer: Answer, decoder: EventDecoder) -> list[bytes]:
        try:
            return decoder.feed(await answer.read())
        except _TROUBLES as error:  # spelled out here: a context manager for each chunk costs as much as the chunk
            raise self._explanation(error) from _cause(error)

    def _remains(self, decoder: EventDecoder) -> list[dict[str, Any]]:
        """An event without its blank line; or half of one that was cut, which is no JSON and no event."""
        try:
            return [self._decoded(data) for data in decoder.end()]
        except ModelError:
            return []

    def _decoded(self, data: bytes) -> dict[str, Any]:
        if data == b"[DONE]":
            return DONE
        try:
            event = orjson.loads(data)
        except orjson.JSONDecodeError:
            event = None
        if isinstance(event, dict):
            return event
        shown = data[:MAX_MODEL_ERROR_BYTES].decode("utf-8", "replace")
        raise self.address.error(f"it sent an event that is not a JSON object: {shown}", is_retryable=True)

    async def _whole(self, answer: Answer) -> dict[str, Any]:
        """The answer of a server that does not stream."""
        body = await self._body(answer)
        if len(body) > MAX_MODEL_BODY_BYTES:
            raise self.address.error(f"its answer is too big to be one: more than {MAX_MODEL_BODY_BYTES} bytes.")
        try:
            whole = orjson.loads(body)
        except orjson.JSONDecodeError:
            whole = None
        if isinstance(whole, dict):
            return whole
        raise self.address.error(
            f"it answered with {answer.content_type} instead of an event stream. "
            "Check the path of the endpoint (most servers want /v1 at its end)."
        )

    async def _refuse(self, answer: Answer) -> NoReturn:
        pieces: list[bytes] = []
        with suppress(OSError):  # the status says enough, whatever becomes of the words
            async with asyncio.timeout(MODEL_REFUSAL):
                await _read_into(pieces, answer, MAX_MODEL_ERROR_BYTES)
        words = b"".join(pieces)[:MAX_MODEL_ERROR_BYTES]
        raise refused(self.address, answer.status, answer.headers, words, through=self._proxy)

    async def _body(self, answer: Answer) -> bytes:
        """All of a body, or its beginning when it goes over the limit."""
        pieces: list[bytes] = []
        try:
            await _read_into(pieces, answer, MAX_MODEL_BODY_BYTES)
        except _TROUBLES as error:
            raise self._explanation(error) from _cause(error)
        return b"".join(pieces)

    @staticmethod
    async def _tail(answer: Answer) -> None:
        """Read the end of a stream that said its last word, so that its connection is kept; not for long."""
        with suppress(TimeoutError, AnswerLostError):
            async with asyncio.timeout(MODEL_TAIL):
                while not answer.is_at_end:
                    await answer.read()

    def _explanation(self, error: Exception) -> ModelError:
        if isinstance(error, OSError) and not isinstance(error, AnswerLostError) and is_short(error):
            what = f"it was not asked: {WHAT}. Ask again in a moment."
            return self.address.error(what, is_retryable=True, retry_after=SHORTAGE_RETRY_AFTER, code=OVERLOADED)
        match error:
            case UnreachedError(reason=NoWayThroughError(is_final=True) as reason):
                return self.address.error(_why(reason))
            case UnreachedError():
                return self._unreached(_why(error.reason))
            case NotAURLError():
                return self.address.error("its endpoint is not a URL.")
            case UnsendableError():
                return self.address.error(
                    "its key has a line break or another character that no key has, and was not sent. "
                    f"Check the key in {self.address.key_source}."
                )
            case UnreadableAnswerError():
                return self._unreached(f"its answer cannot be read: {error}. Check the endpoint and its port.")
            case LineTooLongError():
                return self.address.error(f"its answer is too big to be one: {error}.")
        return self._unreached("the connection was lost before the answer was complete. Ask again.")

    def _unreached(self, what: str) -> ModelError:
        return self.address.error(what, is_retryable=True)


async def _read_into(pieces: list[bytes], answer: Answer, limit: int) -> None:
    size = 0
    while size <= limit and not answer.is_at_end:
        pieces.append(await answer.read())
        size += len(pieces[-1])


def _why(reason: OSError) -> str:
    match reason:
        case NoWayThroughError():
            return f"{reason}. Check HTTPS_PROXY, HTTP_PROXY and NO_PROXY in the environment."
        case socket.gaierror():
            return "its host name is not known. Check the endpoint."
        case ssl.SSLError():
            return f"TLS failed ({reason}). Check the endpoint and the certificates."
        case TimeoutError():
            return f"no connection within {MODEL_CONNECT_TIMEOUT:.0f} s. Check the endpoint and the network."
    what = os.strerror(reason.errno) if reason.errno else "connection failed"  # asyncio's own words are for programmers
    return f"it could not be reached ({what}). Is the server running?"


def _cause(error: Exception) -> Exception | None:
    """The error itself, unless its text has the URL, whose query may hold a key."""
    return None if isinstance(error, NotAURLError) else error
