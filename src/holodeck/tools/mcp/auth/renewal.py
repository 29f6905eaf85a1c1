"""One renewal at a time, however many wait for it, and none of them can cancel it for the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class SharedRenewal(Generic[P, T]):
    """Callers that come while a renewal runs get its outcome; the next caller after it starts another."""

    def __init__(self, renew: Callable[P, Coroutine[Any, Any, T]]) -> None:
        self._renew = renew
        self._running: asyncio.Task[T] | None = None

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        running = self._running
        # A task of an event loop that is gone will never be done.
        if running is None or running.done() or running.get_loop() is not asyncio.get_running_loop():
            running = asyncio.create_task(self._renew(*args, **kwargs), name="mcp-auth-renewal")
            running.add_done_callback(_retrieve_exception)
            self._running = running
        # The shield lets a caller go while the task works on for the others; the work itself is bounded in time.
        return await asyncio.shield(running)


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """When every caller has gone, nobody else looks at the error."""
    if not task.cancelled():
        task.exception()
