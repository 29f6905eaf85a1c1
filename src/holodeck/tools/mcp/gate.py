"""How many calls of one server run at once. One more waits for its turn, and the wait is part of its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holodeck.tools.mcp.faults import Faults


class Gate:
    """Lets so many in. Who is cancelled while waiting has taken nobody's place."""

    def __init__(self, limit: int, faults: Faults) -> None:
        self._limit = limit
        self._faults = faults
        self._places = asyncio.Semaphore(limit)

    @asynccontextmanager
    async def entered(self, seconds: float) -> AsyncIterator[float]:
        """Wait for a place; gives the seconds that are left. Raises MCPTimeoutError when none are."""
        left = seconds
        if self._places.locked():
            left = await self._wait(seconds)
        else:
            await self._places.acquire()
        try:
            yield left
        finally:
            self._places.release()

    async def _wait(self, seconds: float) -> float:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        try:
            async with asyncio.timeout_at(deadline):
                await self._places.acquire()
        except TimeoutError:
            text = f"it was busy with {self._limit} other calls for {seconds:g} s ('max_concurrent_calls')."
            raise self._faults.timeout("queue", f"{text} This call was not sent; it can be tried again.") from None
        return max(deadline - loop.time(), 0.0)
