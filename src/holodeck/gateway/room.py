"""The memory that requests may take, all of them together, however they come."""

from __future__ import annotations

from types import TracebackType
from typing import Self

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


class Reservation:
    """Bytes that one request has acquired from `Room` beside its body. `with` releases all of them at its end."""

    __slots__ = ("_room", "_size")

    def __init__(self, room: Room) -> None:
        self._room = room
        self._size = 0

    def acquire(self, size: int) -> None:
        """Take so many bytes. Raises `TooManyError`; it never waits."""
        if size > self._room.left:
            raise no_room()
        self._room.left -= size
        self._size += size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._room.give(self._size)


def no_room() -> TooManyError:
    return TooManyError("The gateway is at its limit of bytes of requests at once.", 1.0)
