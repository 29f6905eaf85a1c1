"""The byte budget of a gateway: bodies of requests, messages of WebSockets, and what MCP servers answer."""

from __future__ import annotations

from holodeck.gateway.http.errors import APIError
from holodeck.gateway.limits import TooManyError
from holodeck.lib.byte_budget import ByteBudget, OverBudgetError, Reservation
from holodeck.lib.json.parse import parsed_weight

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
