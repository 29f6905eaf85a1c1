"""One address of a model API: a body goes out, events come in, and every way to fail has a sentence."""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any, NoReturn

import aiohttp
import orjson

from holodeck.lib import net
from holodeck.lib.errors import ModelError
from holodeck.lib.limits import (
    HTTP_READ_CHUNK,
    MAX_MODEL_BODY_BYTES,
    MAX_MODEL_ERROR_BYTES,
    MODEL_CONNECT_TIMEOUT,
    MODEL_TAIL,
)
from holodeck.providers.address import Address
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
_TROUBLES = (aiohttp.ClientError, OSError, LineTooLongError, net.BodyTooLargeError)
Headers = Callable[[], Mapping[str, str]]


class Endpoint:
    """Where a model is asked. Its connections are made when first needed, and kept until `close`."""

    def __init__(self, url: str, *, address: Address, headers: Headers) -> None:
        self._url = url
        self.address = address
        self._headers = headers
        self._client: aiohttp.ClientSession | None = None

    async def ask(
        self, body: Mapping[str, Any], *, is_over: Callable[[], bool]
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """The decoded events of one answer, as they come, several when they came together.

        Once `is_over`, nothing more is read. Leaving the iterator before that closes the connection at once.
        """
        with self._explained():
            response = await self._session().post(
                self._url,
                data=_payload(orjson.dumps(body)),
                headers={**_HEADERS, **self._headers()},
                allow_redirects=False,
                proxy=net.proxy_for(self._url),
            )
        try:
            if response.status != HTTPStatus.OK:
                await self._refuse(response)
            if response.content_type in _STREAMS:
                decoder = EventDecoder()
                while not (is_over() or response.content.at_eof()):
                    yield await self._more(response, decoder)
                if not is_over():
                    yield self._remains(decoder)
            else:
                yield [await self._whole(response)]
            await self._tail(response)
        finally:
            response.close()

    async def close(self) -> None:
        """Let go of the connections. The next question makes new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _session(self) -> aiohttp.ClientSession:
        if self._client is None or self._client.closed:
            self._client = net.http_client(connect_timeout=MODEL_CONNECT_TIMEOUT)
        return self._client

    async def _more(self, response: aiohttp.ClientResponse, decoder: EventDecoder) -> list[dict[str, Any]]:
        try:
            found = decoder.feed(await response.content.readany())
        except _TROUBLES as error:  # spelled out here: a context manager for each chunk costs as much as the chunk
            raise self._explanation(error) from _cause(error)
        return [self._decoded(data) for data in found]

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

    async def _whole(self, response: aiohttp.ClientResponse) -> dict[str, Any]:
        """The answer of a server that does not stream."""
        with self._explained():
            body = await net.read_body(response, MAX_MODEL_BODY_BYTES)
        try:
            answer = orjson.loads(body)
        except orjson.JSONDecodeError:
            answer = None
        if isinstance(answer, dict):
            return answer
        raise self.address.error(
            f"it answered with {response.content_type} instead of an event stream. "
            "Check the path of the endpoint (most servers want /v1 at its end)."
        )

    async def _refuse(self, response: aiohttp.ClientResponse) -> NoReturn:
        with self._explained():
            body = await net.read_excerpt(response, MAX_MODEL_ERROR_BYTES)
        raise refused(self.address, response.status, response.headers, body)

    @staticmethod
    async def _tail(response: aiohttp.ClientResponse) -> None:
        """Read the end of a stream that said its last word, so that its connection is kept; not for long."""
        if response.content.at_eof():
            return
        with suppress(TimeoutError, aiohttp.ClientError):
            async with asyncio.timeout(MODEL_TAIL):
                while not response.content.at_eof():
                    await response.content.readany()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what the HTTP client raises into a sentence."""
        try:
            yield
        except _TROUBLES as error:
            raise self._explanation(error) from _cause(error)

    def _explanation(self, error: Exception) -> ModelError:
        match error:
            case aiohttp.ClientConnectorDNSError():
                return self._unreached("its host name is not known. Check the endpoint.")
            case aiohttp.ClientSSLError() | ssl.SSLError():
                return self._unreached(f"TLS failed ({error}). Check the endpoint and the certificates.")
            case aiohttp.ClientConnectorError():
                reason = error.os_error.strerror or "connection failed"
                return self._unreached(f"it could not be reached ({reason}). Is the server running?")
            case aiohttp.ConnectionTimeoutError():
                limit = f"{MODEL_CONNECT_TIMEOUT:.0f} s"
                return self._unreached(f"no connection within {limit}. Check the endpoint and the network.")
            case aiohttp.InvalidURL():
                return self.address.error("its endpoint is not a URL.")
            case LineTooLongError() | net.BodyTooLargeError():
                return self.address.error(f"its answer is too big to be one: {error}.")
        return self._unreached("the connection was lost before the answer was complete. Ask again.")

    def _unreached(self, what: str) -> ModelError:
        return self.address.error(what, is_retryable=True)


def _payload(body: bytes) -> bytes | io.BytesIO:
    """Bytes are sent in one piece, which is cheapest; what is large goes in several, so that others get their turn."""
    return body if len(body) <= HTTP_READ_CHUNK else io.BytesIO(body)


def _cause(error: Exception) -> Exception | None:
    """The error itself, unless its text has the URL, whose query may hold a key."""
    return error if isinstance(error, aiohttp.ClientConnectorError | LineTooLongError) else None
