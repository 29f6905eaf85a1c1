"""The memory that requests may take, all of them together, however they come."""

from __future__ import annotations

from holodeck.gateway.rates import TooManyError

NO_ROOM = "holodeck.no_room"
"""What a WebSocket receives instead of a message that does not fit."""


class Room:
    """Bytes that may still come. Whoever takes some gives back as many."""

    __slots__ = ("left",)

    def __init__(self, size: int) -> None:
        self.left = size

    def give(self, size: int) -> None:
        """So many bytes are not in memory any more."""
        self.left += size


def no_room() -> TooManyError:
    return TooManyError("The gateway is at its limit of bytes of requests at once.", 1.0)
