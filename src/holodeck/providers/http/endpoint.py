"""One URL of a model API: posts a request body and yields the decoded events of the response.

`Endpoint` owns an `HTTP1Pool`, which it creates on the first request and keeps until `close`. Responses are event
streams, or one JSON document, as the server has it and whatever was asked for. Every failure is raised as a
`ModelError` with a text for users.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import suppress
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, NoReturn
from urllib.parse import urlsplit, urlunsplit

import orjson

from holodeck.lib.byte_budget import OverBudgetError, Reservation
from holodeck.lib.errors import OVERLOADED, UNAVAILABLE, ModelError
from holodeck.lib.json.parse import parse_deep_json, parse_json
from holodeck.lib.limits import KIB, MIB
from holodeck.lib.net.http1 import HTTP1Response, ResponseLostError, UnreadableResponseError
from holodeck.lib.net.http1_pool import ConnectFailedError, HTTP1Pool, InvalidHeaderError, InvalidURLError
from holodeck.lib.net.http1_proxy import ProxyError
from holodeck.lib.net.proxies import find_proxy
from holodeck.lib.net.sse import EventTooLargeError, SSEDecoder, SSEEvent
from holodeck.lib.net.tls import unreachable_reason
from holodeck.lib.system.fd_shortage import SHORTAGE_TEXT, is_file_shortage
from holodeck.providers.http.errors import RETRYABLE_STATUSES, refusal_error
from holodeck.providers.http.model_address import ModelAddress, host_of

# Seconds to connect to an API: name lookup, TCP and TLS.
MODEL_CONNECT_TIMEOUT = 15.0
# Seconds to read the body of an error whose status is known.
MODEL_REFUSAL_TIMEOUT = 5.0
# Seconds for an API to end the stream after its last event, so that the connection can be reused.
MODEL_TAIL_TIMEOUT = 0.05
# Bytes of a response that is one document.
MAX_MODEL_BODY_BYTES = 64 * MIB
# Bytes of a document for each byte of its answer: JSON writes a character as up to six, and has more than the answer.
DOCUMENT_BYTES_PER_BYTE = 8
# Bytes that any document may have, for what is in it beside the answer, such as sealed reasoning.
MIN_DOCUMENT_BYTES = MIB
# Bytes read of a body that only explains an error.
MAX_MODEL_ERROR_BYTES = 64 * KIB
# Seconds to wait when this machine has no free file descriptors: some requests have ended by then.
SHORTAGE_RETRY_AFTER = 1.0

DONE: dict[str, Any] = {"[DONE]": True}
"""The event for the `[DONE]` mark, which ends a stream in some dialects."""

_HEADERS = {
    "Content-Type": "application/json",
    # A compressed stream arrives in large, late chunks.
    "Accept-Encoding": "identity",
    "User-Agent": "holodeck",
}
_STREAM, _DOCUMENT = "text/event-stream", "application/json"
# Some servers declare a stream with a wrong type, or with none.
_STREAM_TYPES = frozenset({_STREAM, "text/plain", "application/octet-stream"})
_NETWORK_ERRORS = (OSError, EventTooLargeError, InvalidURLError, InvalidHeaderError)
# The ends of the URLs of OpenAI's dialects: their servers have other APIs beside these.
_SIBLINGS = ("/chat/completions", "/responses")
_OK = HTTPStatus.OK.value
Headers = Callable[[], Mapping[str, str]]
NO_REQUEST_HEADERS: Mapping[str, str] = MappingProxyType({})


class Endpoint:
    """The URL of a model API, with its connections."""

    def __init__(self, url: str, *, address: ModelAddress, headers: Headers) -> None:
        self._url = url
        self.address = address
        self._headers = headers
        self._pool: HTTP1Pool | None = None
        self._proxy = ""

    def find_sibling(self, path: str) -> Endpoint | None:
        """Return the URL of another API of an OpenAI-compatible server, with the same key.

        None: it is no such server.
        """
        parts = urlsplit(self._url)
        base = next((parts.path.removesuffix(api) for api in _SIBLINGS if parts.path.endswith(api)), None)
        if base is None:
            return None
        return Endpoint(urlunsplit(parts._replace(path=base + path)), address=self.address, headers=self._headers)

    async def stream_events(
        self,
        body: Mapping[str, Any],
        *,
        is_finished: Callable[[], bool],
        headers: Mapping[str, str] = NO_REQUEST_HEADERS,
        answer_bytes: int | None = None,
        memory: Reservation | None = None,
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Post `body` and yield the decoded events of the response, in the batches in which they arrive.

        `headers`: those of this request, beside those of the endpoint. Stops reading once `is_finished` returns True.
        `answer_bytes`: the limit of an answer, of which a document has a few times as many. `memory`: counts a document
        while it is read.
        Closing the iterator before that closes the connection at once.
        """
        is_streamed = bool(body.get("stream"))
        try:
            sent = {"Accept": _STREAM if is_streamed else _DOCUMENT, **headers, **self._build_headers()}
            response = await self._require_pool().send("POST", sent, orjson.dumps(body))
        except _NETWORK_ERRORS as error:
            raise self._explain(error) from _cause(error)
        try:
            if response.status != _OK:
                await self._raise_refusal(response)
            if response.content_type == _STREAM or (is_streamed and response.content_type in _STREAM_TYPES):
                decoder = SSEDecoder()
                while not (is_finished() or response.is_at_end):
                    events: list[dict[str, Any]] = []
                    try:
                        self._decode_into(events, await self._read_events(response, decoder))
                    except ModelError:
                        # Events before the malformed one are valid, and may complete the answer.
                        yield events
                        if not is_finished():
                            raise
                    else:
                        yield events
                if not is_finished():
                    yield self._flush_decoder(decoder)
            else:
                yield [await self._read_whole(response, answer_bytes, memory, is_streamed=is_streamed)]
            if not response.is_at_end:
                await self._drain(response)
        finally:
            response.close()

    async def close(self) -> None:
        """Close the connections. A later request opens new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    def _require_pool(self) -> HTTP1Pool:
        if self._pool is None:
            try:
                proxy = find_proxy(self._url)
            except ValueError as error:
                raise InvalidURLError from error
            self._pool = HTTP1Pool(self._url, connect_timeout=MODEL_CONNECT_TIMEOUT, proxy=proxy)
            self._proxy = host_of(proxy if "://" in proxy else f"//{proxy}") if proxy is not None else ""
        return self._pool

    def _build_headers(self) -> dict[str, str]:
        headers = {**_HEADERS, **self._headers()}
        for name, value in self.address.extra_headers.items():
            headers[name] = value.reveal()
        # No key has such a character: it was copied with a mistake.
        if not "".join(headers.values()).isascii():
            raise InvalidHeaderError
        return headers

    async def _read_events(self, response: HTTP1Response, decoder: SSEDecoder) -> list[SSEEvent]:
        # No context manager for the conversion of errors: one per chunk costs as much as the chunk.
        try:
            return decoder.feed(await response.read())
        except _NETWORK_ERRORS as error:
            raise self._explain(error) from _cause(error)

    def _flush_decoder(self, decoder: SSEDecoder) -> list[dict[str, Any]]:
        """Return an event without its final blank line. A truncated one is no JSON, and is ignored."""
        events: list[dict[str, Any]] = []
        with suppress(ModelError):
            self._decode_into(events, decoder.flush())
        return events

    def _decode_into(self, events: list[dict[str, Any]], found: Iterable[SSEEvent]) -> None:
        """Add the events of a read to `events`. Raises `ModelError` at the first that is none."""
        for _, data in found:
            try:
                event = DONE if data == b"[DONE]" else parse_deep_json(data)
            except ValueError:
                event = None
            if not isinstance(event, dict):
                shown = data[:MAX_MODEL_ERROR_BYTES].decode("utf-8", "replace")
                raise self.address.error(f"it sent an event that is not a JSON object: {shown}", is_retryable=True)
            events.append(event)

    async def _read_whole(
        self, response: HTTP1Response, answer_bytes: int | None, memory: Reservation | None, *, is_streamed: bool
    ) -> dict[str, Any]:
        """Read a response that is one document. `is_streamed`: a stream was asked for."""
        limit = MAX_MODEL_BODY_BYTES
        if answer_bytes is not None:
            limit = min(limit, answer_bytes * DOCUMENT_BYTES_PER_BYTE + MIN_DOCUMENT_BYTES)
        before = 0 if memory is None else memory.size
        try:
            body = await self._read_body(response, limit, memory)
        finally:
            if memory is not None:
                memory.resize(before)
        if len(body) > limit:
            raise self.address.error(f"its answer is too big to be one: more than {limit} bytes.")
        try:
            document = parse_json(body)
        except ValueError:
            document = None
        if isinstance(document, dict):
            return document
        if not is_streamed and response.content_type == _DOCUMENT:
            # Like a stream that is cut short: the server, or something on the way, broke off.
            raise self.address.error("its document ended before the answer was complete. Ask again.", is_retryable=True)
        raise self.address.error(
            f"it answered with {response.content_type} instead of {'an event stream' if is_streamed else 'JSON'}. "
            "Check the path of the endpoint (most servers want /v1 at its end)."
        )

    async def _raise_refusal(self, response: HTTP1Response) -> NoReturn:
        chunks: list[bytes] = []
        # If the body cannot be read, the status says enough.
        with suppress(OSError):
            async with asyncio.timeout(MODEL_REFUSAL_TIMEOUT):
                await _read_into(chunks, response, MAX_MODEL_ERROR_BYTES)
        body = b"".join(chunks)[:MAX_MODEL_ERROR_BYTES]
        raise refusal_error(self.address, response.status, response.headers, body, proxy=self._proxy)

    async def _read_body(self, response: HTTP1Response, limit: int, memory: Reservation | None = None) -> bytes:
        """Read the whole body, or its beginning if it exceeds the limit."""
        chunks: list[bytes] = []
        try:
            await _read_into(chunks, response, limit, memory)
        except OverBudgetError as error:
            what = "there was no memory left for its answer ('limits.bodies_bytes'). Ask again later."
            raise self.address.error(what, code=OVERLOADED) from error
        except _NETWORK_ERRORS as error:
            raise self._explain(error) from _cause(error)
        return b"".join(chunks)

    @staticmethod
    async def _drain(response: HTTP1Response) -> None:
        """Read to the end of a finished stream, for a short time, so that its connection can be reused."""
        with suppress(TimeoutError, ResponseLostError):
            async with asyncio.timeout(MODEL_TAIL_TIMEOUT):
                while not response.is_at_end:
                    await response.read()

    def _explain(self, error: Exception) -> ModelError:
        if isinstance(error, OSError) and not isinstance(error, ResponseLostError) and is_file_shortage(error):
            what = f"it was not asked: {SHORTAGE_TEXT}. Ask again in a moment."
            return self.address.error(what, is_retryable=True, retry_after=SHORTAGE_RETRY_AFTER, code=OVERLOADED)
        match error:
            case ConnectFailedError(reason=ProxyError() as reason):
                what = f"{_proxy_reason(reason)}. Check HTTPS_PROXY, HTTP_PROXY and NO_PROXY in the environment."
                is_retryable = _is_retryable_proxy(reason)
                return self.address.error(what, is_retryable=is_retryable, code=UNAVAILABLE if is_retryable else "")
            case ConnectFailedError(reason=ResponseLostError() as reason):
                return self._explain(reason)
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
            case EventTooLargeError():
                return self.address.error(f"its answer is too big to be one: {error}.")
        return self._retryable_error("the connection was lost before the answer was complete. Ask again.")

    def _retryable_error(self, what: str) -> ModelError:
        return self.address.error(what, is_retryable=True, code=UNAVAILABLE)


async def _read_into(
    chunks: list[bytes], response: HTTP1Response, limit: int, memory: Reservation | None = None
) -> None:
    size = 0
    while size <= limit and not response.is_at_end:
        chunks.append(await response.read())
        size += len(chunks[-1])
        if memory is not None:
            memory.extend(len(chunks[-1]))


def _unreached_reason(reason: OSError) -> str:
    match reason:
        case socket.gaierror():
            return "its host name is not known. Check the endpoint."
        case ssl.SSLError():
            return f"TLS failed ({reason}). Check the endpoint and the certificates."
        case TimeoutError():
            return f"no connection within {MODEL_CONNECT_TIMEOUT:.0f} s. Check the endpoint and the network."
    # The text of asyncio's errors is for programmers.
    what = os.strerror(reason.errno) if reason.errno else "connection failed"
    return f"it could not be reached ({what}). Is the server running?"


def _proxy_reason(error: ProxyError) -> str:
    name = f"its proxy at {error.authority}"
    if not error.authority:
        return "the proxy in the environment is no HTTP proxy"
    if error.status:
        wants_login = error.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED
        wish = ", it wants the login of somebody it knows: http://NAME:PASSWORD@HOST" if wants_login else ""
        return f"{name} refused ({error.status} {error.phrase}".rstrip() + f"){wish}"
    if isinstance(error.reason, socket.gaierror):
        return f"{name} has a host name that is not known"
    return f"{name} could not be reached ({unreachable_reason(error.reason or error)})"


def _is_retryable_proxy(error: ProxyError) -> bool:
    if error.status:
        return error.status >= HTTPStatus.INTERNAL_SERVER_ERROR or error.status in RETRYABLE_STATUSES
    return bool(error.authority)


def _cause(error: Exception) -> Exception | None:
    """Return the error as a cause, unless its text has the URL, whose query may contain a key."""
    return None if isinstance(error, InvalidURLError) else error
