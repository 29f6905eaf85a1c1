"""Whoever stops reading a model's events stops the model at once, also through wrappers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Generic, TypeVar

T = TypeVar("T")


class ClosingIterator(Generic[T]):
    """Closes the iterator on the way out, if it can be closed: `async for` alone leaves that to the collector."""

    __slots__ = ("_events",)

    def __init__(self, events: AsyncIterator[T]) -> None:
        self._events = events

    async def __aenter__(self) -> AsyncIterator[T]:
        return self._events

    async def __aexit__(self, *_: object) -> None:
        close = getattr(self._events, "aclose", None)
        if close is not None:
            await close()
