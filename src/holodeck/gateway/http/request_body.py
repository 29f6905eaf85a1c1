"""The bodies of requests: each has a size that it may have, all together have another, and none may take for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from holodeck.gateway.http.errors import APIError, client_gone_error, shutting_down_error
from holodeck.gateway.http.request_scope import RequestScope
from holodeck.gateway.limits import TooManyError
from holodeck.gateway.server.disconnect import Client, Receive
from holodeck.lib.byte_budget import ByteBudget, OverBudgetError, Reservation
from holodeck.lib.json.parse import parsed_weight
from holodeck.lib.limits import KIB, MIN_BODY_RATE

# Of a request that asks no model: it may come although much is going on.
SMALL_BODY_BYTES = 16 * KIB


OVER_BUDGET_MESSAGE = "holodeck.no_room"
"""What a WebSocket receives instead of a message that does not fit."""


class GatewayBudget(ByteBudget):
    """The byte budget of one gateway (`limits.bodies_bytes`)."""

    __slots__ = ()

    def release_bytes(self, size: int) -> None:
        """The same as `release`."""
        self.release(size)


class RequestReservation(Reservation):
    """Bytes that one request holds beside its body, such as the content of its sealed items."""

    __slots__ = ()

    def acquire(self, size: int) -> None:
        """Hold so many bytes more. Raises `TooManyError`."""
        try:
            self.extend(size)
        except OverBudgetError:
            raise over_budget_error() from None

    def acquire_parsed(self, body: bytes) -> None:
        """Hold what a body takes once it is parsed. Raises `TooManyError`, or `APIError` when it could never fit."""
        weight = parsed_weight(body)
        if weight > self.limit:
            message = "The body has more values in it than this gateway reads. Send fewer at a time."
            raise APIError(413, message, kind="invalid_request", code="too_large")
        self.acquire(weight)


def over_budget_error() -> TooManyError:
    return TooManyError("The gateway is at its limit of bytes of requests at once.", 1.0)


_JSON_TYPE = "application/json"


class BodyReader:
    """Reads them, and knows how much of them is in memory."""

    def __init__(self, *, limit: int, budget: GatewayBudget, seconds: float, is_draining: Callable[[], bool]) -> None:
        """`limit`: bytes of one; `budget`: for all that are here at once.

        `seconds`: between two pieces of one, and for all of it, with more time for what has come.
        """
        self._limit = limit
        self._budget = budget
        self._seconds = seconds
        self._is_draining = is_draining

    async def read(
        self, receive: Receive, headers: Mapping[str, str], client: Client | None, request_scope: RequestScope
    ) -> bytes:
        """All of a body; it counts until it is given back.

        Raises `APIError` for one whose header does not say JSON: what a web page can send unasked says text.
        """
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise _unsupported_encoding_error()
        declared = headers.get("content-length", "")
        has_body = declared not in ("", "0") or "transfer-encoding" in headers
        if has_body and headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON_TYPE:
            raise _not_json_error()
        if declared.isdigit() and int(declared) > min(self._limit, self._budget.available):
            raise _body_too_large_error(self._limit) if int(declared) > self._limit else over_budget_error()
        chunks: list[bytes] = []
        began = asyncio.get_running_loop().time()
        while True:
            is_here = client is not None and client.has_sent_all
            message = await (receive() if is_here else self._receive_chunk(receive, began, request_scope.body_bytes))
            if message["type"] == "http.disconnect":
                raise client_gone_error()
            chunk = message.get("body", b"")
            request_scope.body_bytes += len(chunk)
            self._budget.available -= len(chunk)
            if request_scope.body_bytes > self._limit:
                raise _body_too_large_error(self._limit)
            if self._budget.available < 0:
                raise over_budget_error()
            chunks.append(chunk)
            if not message.get("more_body"):
                return b"".join(chunks)
            if self._is_draining():  # what is not yet whole has not begun
                raise shutting_down_error()

    def release(self, request_scope: RequestScope) -> None:
        """A request is over, and so is its body."""
        self._budget.available += request_scope.body_bytes

    async def _receive_chunk(
        self, receive: Receive, started_at: float, received_bytes: int
    ) -> MutableMapping[str, Any]:
        """The next piece of a body of which `received_bytes` bytes have come since `started_at`."""
        passed = asyncio.get_running_loop().time() - started_at
        left = self._seconds + received_bytes / MIN_BODY_RATE - passed
        try:
            async with asyncio.timeout(min(self._seconds, max(left, 0.0))):
                return await receive()
        except TimeoutError:
            message = f"Nothing of the body came for {self._seconds:g} seconds."
            if left < self._seconds:
                message = f"The body came too slowly: {received_bytes} bytes in {passed + max(left, 0.0):.0f} seconds."
            raise APIError(408, message, kind="invalid_request", code="request_timeout") from None


def is_small_body(headers: Mapping[str, str]) -> bool:
    """Whether a body is so small that it need not be counted."""
    declared = headers.get("content-length", "")
    return declared.isdigit() and int(declared) <= SMALL_BODY_BYTES


def _body_too_large_error(limit: int) -> APIError:
    return APIError(413, f"The body is larger than {limit} bytes.", kind="invalid_request", code="too_large")


def _unsupported_encoding_error() -> APIError:
    message, code = "Send the body as it is: this gateway unpacks none.", "unsupported_encoding"
    return APIError(415, message, kind="invalid_request", code=code, accept_encoding="identity")


def _not_json_error() -> APIError:
    message, code = f"Send the body as JSON, with the header 'content-type: {_JSON_TYPE}'.", "unsupported_media_type"
    return APIError(415, message, kind="invalid_request", code=code, accept=_JSON_TYPE)
