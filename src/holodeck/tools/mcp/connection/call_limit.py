"""How many calls of one server run at once. One more waits for its turn, and the wait is part of its time."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holodeck.tools.mcp.errors import ErrorFactory


class CallLimit:
    """Lets so many in, over whichever connections they go. Who is cancelled while waiting has taken nobody's place.

    Those who wait stand in one line for each caller, and the lines take turns: who asks for much waits behind itself.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._free = limit
        self._waiters_by_caller: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def acquire(self, seconds: float, errors: ErrorFactory, caller_id: str = "") -> AsyncIterator[float]:
        """Wait for a place; gives the seconds that are left. Raises MCPTimeoutError when none are."""
        left = seconds
        if self._free:
            self._free -= 1
        else:
            left = await self._wait(seconds, errors, caller_id)
        try:
            yield left
        finally:
            self._release()

    async def _wait(self, seconds: float, errors: ErrorFactory, caller_id: str) -> float:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        turn: asyncio.Future[None] = loop.create_future()
        self._waiters_by_caller.setdefault(caller_id, deque()).append(turn)
        try:
            async with asyncio.timeout_at(deadline):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._release()  # the turn came and was not taken: it is the next one's
            else:
                self._remove_waiter(caller_id, turn)
            if not isinstance(error, TimeoutError):
                raise
            text = f"it was busy with {self._limit} other calls for {seconds:g} s ('max_concurrent_calls')."
            raise errors.timeout(
                "queue", f"{text} This call was not sent; it can be tried again.", is_public=True
            ) from None
        return max(deadline - loop.time(), 0.0)

    def _release(self) -> None:
        while self._waiters_by_caller:
            caller, line = self._waiters_by_caller.popitem(last=False)
            turn = line.popleft()
            if line:
                self._waiters_by_caller[caller] = line
            if not turn.done():  # else who waited was cancelled, and does not know it yet
                turn.set_result(None)
                return
        self._free += 1

    def _remove_waiter(self, caller_id: str, waiter: asyncio.Future[None]) -> None:
        line = self._waiters_by_caller.get(caller_id, deque())
        if waiter in line:
            line.remove(waiter)
        if not line:
            self._waiters_by_caller.pop(caller_id, None)
