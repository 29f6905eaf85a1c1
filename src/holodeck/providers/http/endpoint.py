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
from holodeck.lib.limits import KIB, MIB
from holodeck.lib.net.http1 import ResponseLostError, UnreadableResponseError
from holodeck.lib.net.http1_pool import ConnectFailedError, HTTP1Pool, InvalidHeaderError, InvalidURLError, ProxyError
from holodeck.lib.net.proxies import find_proxy
from holodeck.lib.net.sse import LineTooLongError, SSEDecoder
from holodeck.lib.system.fd_shortage import SHORTAGE_TEXT, is_file_shortage
from holodeck.providers.http.errors import refusal_error
from holodeck.providers.http.model_address import ModelAddress, host_of

# To reach an API: name, connection and TLS.
MODEL_CONNECT_TIMEOUT = 15.0
# For the words of a refusal whose status is known.
MODEL_REFUSAL_TIMEOUT = 5.0
# For an API to end the stream after its last event, so that the connection can be used again.
MODEL_TAIL_TIMEOUT = 0.05
# Of an answer that came in one piece.
MAX_MODEL_BODY_BYTES = 64 * MIB
# Of a body that only explains an error.
MAX_MODEL_ERROR_BYTES = 64 * KIB
# Seconds; some of what is going on has ended by then.
SHORTAGE_RETRY_AFTER = 1.0


DONE: dict[str, Any] = {"[DONE]": True}
"""Stands among the events for the mark that ends a stream in some dialects."""

_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "text/event-stream",
    "Accept-Encoding": "identity",  # a compressed stream comes in lumps
    "User-Agent": "holodeck",
}
_STREAM_TYPES = frozenset(
    {"text/event-stream", "text/plain", "application/octet-stream"}
)  # some name it wrongly, or not
_NETWORK_ERRORS = (OSError, LineTooLongError, InvalidURLError, InvalidHeaderError)
_OK = HTTPStatus.OK.value
Headers = Callable[[], Mapping[str, str]]


class HTTPResponse(Protocol):
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


class HTTPTransport(Protocol):
    """Carries questions to one URL."""

    async def post(self, body: bytes, headers: Mapping[str, str]) -> HTTPResponse: ...
    async def close(self) -> None: ...


class Endpoint:
    """Where a model is asked. Its connections are made when first needed, and kept until `close`."""

    def __init__(self, url: str, *, address: ModelAddress, headers: Headers) -> None:
        self._url = url
        self.address = address
        self._headers = headers
        self._transport: HTTPTransport | None = None
        self._proxy = ""

    async def stream_events(
        self, body: Mapping[str, Any], *, is_finished: Callable[[], bool]
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """The decoded events of one answer, as they come, several when they came together.

        Once `is_finished`, nothing more is read. Leaving the iterator before that closes the connection at once.
        """
        try:
            answer = await self._require_transport().post(orjson.dumps(body), {**_HEADERS, **self._headers()})
        except _NETWORK_ERRORS as error:
            raise self._explain(error) from _cause(error)
        try:
            if answer.status != _OK:
                await self._raise_refusal(answer)
            if answer.content_type in _STREAM_TYPES:
                decoder = SSEDecoder()
                while not (is_finished() or answer.is_at_end):
                    events: list[dict[str, Any]] = []
                    try:
                        for data in await self._read_events(answer, decoder):
                            events.append(self._decode_event(data))
                    except ModelError:
                        yield events  # what came before it stands
                        if not is_finished():
                            raise
                    else:
                        yield events
                if not is_finished():
                    yield self._flush_decoder(decoder)
            else:
                yield [await self._read_whole(answer)]
            if not answer.is_at_end:
                await self._drain(answer)
        finally:
            answer.close()

    async def close(self) -> None:
        """Let go of the connections. The next question makes new ones."""
        carrier, self._transport = self._transport, None
        if carrier is not None:
            await carrier.close()

    def _require_transport(self) -> HTTPTransport:
        if self._transport is None:
            try:
                proxy = find_proxy(self._url)
            except ValueError as error:
                raise InvalidURLError from error
            if proxy is None:
                self._transport = HTTP1Pool(self._url, connect_timeout=MODEL_CONNECT_TIMEOUT)
            else:
                from holodeck.providers.http.proxy import ProxiedTransport

                self._proxy = host_of(proxy if "://" in proxy else f"//{proxy}")
                self._transport = ProxiedTransport(self._url, proxy, connect_timeout=MODEL_CONNECT_TIMEOUT)
        return self._transport

    async def _read_events(self, answer: HTTPResponse, decoder: SSEDecoder) -> list[bytes]:
        try:
            return decoder.feed(await answer.read())
        except (
            _NETWORK_ERRORS
        ) as error:  # spelled out here: a context manager for each chunk costs as much as the chunk
            raise self._explain(error) from _cause(error)

    def _flush_decoder(self, decoder: SSEDecoder) -> list[dict[str, Any]]:
        """An event without its blank line; or half of one that was cut, which is no JSON and no event."""
        try:
            return [self._decode_event(data) for data in decoder.flush()]
        except ModelError:
            return []

    def _decode_event(self, data: bytes) -> dict[str, Any]:
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

    async def _read_whole(self, answer: HTTPResponse) -> dict[str, Any]:
        """The answer of a server that does not stream."""
        body = await self._read_body(answer)
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

    async def _raise_refusal(self, answer: HTTPResponse) -> NoReturn:
        pieces: list[bytes] = []
        with suppress(OSError):  # the status says enough, whatever becomes of the words
            async with asyncio.timeout(MODEL_REFUSAL_TIMEOUT):
                await _read_into(pieces, answer, MAX_MODEL_ERROR_BYTES)
        words = b"".join(pieces)[:MAX_MODEL_ERROR_BYTES]
        raise refusal_error(self.address, answer.status, answer.headers, words, proxy=self._proxy)

    async def _read_body(self, answer: HTTPResponse) -> bytes:
        """All of a body, or its beginning when it goes over the limit."""
        pieces: list[bytes] = []
        try:
            await _read_into(pieces, answer, MAX_MODEL_BODY_BYTES)
        except _NETWORK_ERRORS as error:
            raise self._explain(error) from _cause(error)
        return b"".join(pieces)

    @staticmethod
    async def _drain(answer: HTTPResponse) -> None:
        """Read the end of a stream that said its last word, so that its connection is kept; not for long."""
        with suppress(TimeoutError, ResponseLostError):
            async with asyncio.timeout(MODEL_TAIL_TIMEOUT):
                while not answer.is_at_end:
                    await answer.read()

    def _explain(self, error: Exception) -> ModelError:
        if isinstance(error, OSError) and not isinstance(error, ResponseLostError) and is_file_shortage(error):
            what = f"it was not asked: {SHORTAGE_TEXT}. Ask again in a moment."
            return self.address.error(what, is_retryable=True, retry_after=SHORTAGE_RETRY_AFTER, code=OVERLOADED)
        match error:
            case ConnectFailedError(reason=ProxyError(is_final=True) as reason):
                return self.address.error(_unreached_reason(reason))
            case ConnectFailedError():
                return self._retryable_error(_unreached_reason(error.reason))
            case InvalidURLError():
                return self.address.error("its endpoint is not a URL.")
            case InvalidHeaderError():
                return self.address.error(
                    "its key has a line break or another character that no key has, and was not sent. "
                    f"Check the key in {self.address.key_source}."
                )
            case UnreadableResponseError():
                return self._retryable_error(f"its answer cannot be read: {error}. Check the endpoint and its port.")
            case LineTooLongError():
                return self.address.error(f"its answer is too big to be one: {error}.")
        return self._retryable_error("the connection was lost before the answer was complete. Ask again.")

    def _retryable_error(self, what: str) -> ModelError:
        return self.address.error(what, is_retryable=True)


async def _read_into(chunks: list[bytes], answer: HTTPResponse, limit: int) -> None:
    size = 0
    while size <= limit and not answer.is_at_end:
        chunks.append(await answer.read())
        size += len(chunks[-1])


def _unreached_reason(reason: OSError) -> str:
    match reason:
        case ProxyError():
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
    return None if isinstance(error, InvalidURLError) else error
