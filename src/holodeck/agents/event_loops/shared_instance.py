"""`SharedInstance`: an object that counted users share, one for each event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass
class _Counted(Generic[T]):
    instance: T
    users: int = 0


class SharedInstance(Generic[T]):
    """Owns an instance of T in each event loop that uses one: built for its first user, closed after its last.

    Tasks and connections belong to the event loop in which they were made, so loops share nothing.
    """

    def __init__(self, close: Callable[[T], Awaitable[None]]) -> None:
        """`close` is awaited in the event loop of the instance."""
        self._close = close
        self._open: dict[asyncio.AbstractEventLoop, _Counted[T]] = {}

    def acquire(self, build: Callable[[], T]) -> T:
        """Return the instance of this event loop, which `build` makes for its first user. One `release` must follow."""
        loop = asyncio.get_running_loop()
        counted = self._open.get(loop)
        if counted is None:
            self._forget_closed_loops()
            counted = self._open[loop] = _Counted(build())
        counted.users += 1
        return counted.instance

    async def release(self) -> None:
        """Close the instance of this event loop after its last user."""
        loop = asyncio.get_running_loop()
        counted = self._open[loop]
        counted.users -= 1
        if not counted.users:
            # A user that comes while it is being closed gets another one.
            del self._open[loop]
            await self._close(counted.instance)

    def find(self) -> T | None:
        """Return the instance of this event loop, if there is one."""
        counted = self._open.get(asyncio.get_running_loop())
        return None if counted is None else counted.instance

    def _forget_closed_loops(self) -> None:
        """Drop the instances of loops that were closed before their users had released them."""
        for loop in [each for each in tuple(self._open) if each.is_closed()]:
            del self._open[loop]
