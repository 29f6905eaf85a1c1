"""Whoever stops reading a model's events stops the model at once, also through wrappers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


@asynccontextmanager
async def left_at_the_end(events: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Closes the iterator on the way out, if it can be closed: `async for` alone leaves that to the collector."""
    try:
        yield events
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()
