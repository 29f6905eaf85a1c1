"""An HTTP request with its body in memory.

Every handler is `async def handler(request: Request) -> Reply | StreamedReply`. An error that a handler raises becomes
a wire error in `http/errors.py`.

One `ByteBudget` (`limits.bodies_bytes`) bounds all request bodies and WebSocket messages of a gateway together, with
the contents of sealed items and the answers of models and MCP servers. `BodyReader` takes the bytes of a body from it
as they arrive, and the application releases them when the request has ended. A `RequestReservation` holds what one
request needs beside its body, such as the parsed JSON and the content of sealed items. Neither waits for bytes to
become free: a request over the budget is refused with `TooManyError`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.http.errors import APIError, client_gone_error, shutting_down_error
from holodeck.gateway.http.replies import JSON, Reply, StreamedReply
from holodeck.gateway.limits import TooManyError
from holodeck.gateway.server.served_request import ServedRequest
from holodeck.gateway.wire.client_kind import ClientKind
from holodeck.lib.byte_budget import ByteBudget, OverBudgetError, Reservation
from holodeck.lib.errors import BadRequestError
from holodeck.lib.json.parse import JSONLimitError, TooManyValuesError, parse_json, parsed_weight
from holodeck.lib.limits import KIB, MIN_BODY_RATE
from holodeck.lib.record import record

# Largest body of an uncounted request that is not counted as a transfer: small ones are accepted under any load.
SMALL_BODY_BYTES = 16 * KIB

_FORM = "application/x-www-form-urlencoded"
# The type of the ASGI message that a WebSocket receives instead of a message over the budget.
OVER_BUDGET_MESSAGE = "holodeck.no_room"


@record
class Request:
    """One authenticated HTTP request with its whole body."""

    caller: Caller
    path_params: Mapping[str, str]
    headers: Mapping[str, str]
    """With names in lower case."""
    query: Mapping[str, str]
    reservation: RequestReservation
    """Bytes of the gateway's budget that this request holds beside its body; the application releases them."""
    scheme: str = "http"
    """Of the connection, which may be one from a proxy."""
    body: bytes = b""
    client_kind: ClientKind = "openai"
    id: str = ""
    """The id for logs and traces, which the reply has in its `x-request-id`."""

    def json(self) -> Any:
        """Parse the body. Raises `BadRequestError` where it is not JSON.

        Not in a thread: the parser holds the interpreter lock, so a thread would block the loop for as long (32 MB:
        0.2 to 0.4 s). 'limits.body_bytes' bounds it.
        """
        try:
            return parse_json(self.body)
        except TooManyValuesError:
            raise too_many_values_error() from None
        except JSONLimitError as error:
            raise BadRequestError(f"The body is {error}.", code="invalid_json") from None
        except ValueError:
            raise BadRequestError("The body is not valid JSON.", code="invalid_json") from None


Handler = Callable[[Request], Awaitable[Reply | StreamedReply]]


class RequestReservation(Reservation):
    """Bytes of the budget that one request holds beside its body, such as the content of its sealed items."""

    __slots__ = ()

    def acquire(self, size: int) -> None:
        """Hold `size` more bytes. Raises `TooManyError`."""
        try:
            self.extend(size)
        except OverBudgetError:
            raise over_budget_error() from None

    def acquire_parsed(self, body: bytes) -> None:
        """Hold the estimated size of the parsed body. Raises `TooManyError`, or `APIError` when it could never fit."""
        weight = parsed_weight(body)
        if weight > self._budget.limit:
            raise too_many_values_error()
        try:
            self.extend(weight)
        except OverBudgetError:
            raise over_budget_error() from None


class BodyReader:
    """Reads request bodies within the limits of one body, of all bodies, and of time."""

    def __init__(self, *, limit: int, budget: ByteBudget, seconds: float, is_draining: Callable[[], bool]) -> None:
        """`limit`: bytes of one body; `budget`: of all bodies in memory.

        `seconds`: between two chunks of a body, and for the whole body, which gets more time with each byte that
        arrived (`MIN_BODY_RATE`).
        """
        self._limit = limit
        self._budget = budget
        self._seconds = seconds
        self._is_draining = is_draining

    async def read(self, request: ServedRequest, *, is_form: bool = False) -> bytes:
        """Read the whole body. Its bytes are taken from the budget until the request ends, also when this raises.

        Raises `TooManyError` over the budget, and `APIError` for a body that is compressed, too large, too slow, or
        whose content type is not JSON, or that of a form where it `is_form`. A web page can send all types but JSON
        without the browser's preflight request.
        """
        headers = request.headers
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise _unsupported_encoding_error()
        declared = headers.get("content-length", "")
        has_body = declared not in ("", "0") or "transfer-encoding" in headers
        if (
            has_body
            and headers.get("content-type", "") != JSON
            and not _is_of_type(headers, _FORM if is_form else JSON)
        ):
            raise _wrong_type_error(_FORM if is_form else JSON)
        if declared.isdigit():
            if int(declared) > self._limit:
                raise _body_too_large_error(self._limit)
            if int(declared) > self._budget.available and not self._budget.has_room(int(declared)):
                raise over_budget_error()
        if not request.has_sent_all:
            return await self._receive_all(request)
        body = request.take_body()
        request.body_bytes = len(body)
        self._budget.available -= len(body)
        if len(body) > self._limit or self._budget.available < 0:
            self._check_size(request)
        return body

    async def _receive_all(self, request: ServedRequest) -> bytes:
        chunks: list[bytes] = []
        started_at = asyncio.get_running_loop().time()
        while True:
            chunk = await self._receive_chunk(request, started_at)
            if request.is_disconnected:
                raise client_gone_error()
            request.body_bytes += len(chunk)
            self._budget.available -= len(chunk)
            self._check_size(request)
            chunks.append(chunk)
            if request.has_sent_all and not request.chunks:
                return b"".join(chunks)
            # A request whose body is incomplete has not started: it is refused, not drained.
            if self._is_draining():
                raise shutting_down_error()

    def _check_size(self, request: ServedRequest) -> None:
        if request.body_bytes > self._limit:
            raise _body_too_large_error(self._limit)
        if self._budget.available < 0 and not self._budget.has_room(0):
            raise over_budget_error()

    async def _receive_chunk(self, request: ServedRequest, started_at: float) -> bytes:
        """Receive more of a body that began to arrive at `started_at`."""
        elapsed = asyncio.get_running_loop().time() - started_at
        remaining = self._seconds + request.body_bytes / MIN_BODY_RATE - elapsed
        try:
            async with asyncio.timeout(min(self._seconds, max(remaining, 0.0))):
                return await request.receive()
        except TimeoutError:
            message = f"Nothing of the body came for {self._seconds:g} seconds."
            if remaining < self._seconds:
                taken = elapsed + max(remaining, 0.0)
                message = f"The body came too slowly: {request.body_bytes} bytes in {taken:.0f} seconds."
            raise APIError(408, message, kind="invalid_request", code="request_timeout") from None


def _is_of_type(headers: Mapping[str, str], content_type: str) -> bool:
    return headers.get("content-type", "").partition(";")[0].strip().lower() == content_type


def too_many_values_error() -> APIError:
    message = "The body has more values in it than this gateway reads. Send fewer at a time."
    return APIError(413, message, kind="invalid_request", code="too_large")


def over_budget_error() -> TooManyError:
    return TooManyError("The gateway is at its limit of bytes of requests at once.", 1.0)


def is_small_body(headers: Mapping[str, str]) -> bool:
    """Return whether a body declares at most `SMALL_BODY_BYTES`, so that it is not counted as a transfer."""
    declared = headers.get("content-length", "")
    return declared.isdigit() and int(declared) <= SMALL_BODY_BYTES


def _body_too_large_error(limit: int) -> APIError:
    return APIError(413, f"The body is larger than {limit} bytes.", kind="invalid_request", code="too_large")


def _unsupported_encoding_error() -> APIError:
    message = "The body is compressed, which is not supported. Send it without 'content-encoding'."
    code = "unsupported_encoding"
    return APIError(415, message, kind="invalid_request", code=code, accept_encoding="identity")


def _wrong_type_error(content_type: str) -> APIError:
    form = "JSON" if content_type == JSON else "a form"
    message = f"Send the body as {form}, with the header 'content-type: {content_type}'."
    return APIError(415, message, kind="invalid_request", code="unsupported_media_type", accept=content_type)
