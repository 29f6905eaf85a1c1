"""The byte budget of a gateway: bodies of requests, messages of WebSockets, and what MCP servers answer."""

from __future__ import annotations

from holodeck.gateway.rates import TooManyError
from holodeck.lib.byte_budget import ByteBudget, OverBudgetError, Reservation

NO_ROOM = "holodeck.no_room"
"""What a WebSocket receives instead of a message that does not fit."""


class Room(ByteBudget):
    """The byte budget of one gateway (`limits.bodies_bytes`)."""

    __slots__ = ()

    def give(self, size: int) -> None:
        """The same as `release`."""
        self.release(size)


class RequestReservation(Reservation):
    """Bytes that one request holds beside its body, such as the content of its sealed items."""

    __slots__ = ()

    def acquire(self, size: int) -> None:
        """Hold so many bytes more. Raises `TooManyError`."""
        try:
            self.grow(size)
        except OverBudgetError:
            raise no_room() from None


def no_room() -> TooManyError:
    return TooManyError("The gateway is at its limit of bytes of requests at once.", 1.0)
