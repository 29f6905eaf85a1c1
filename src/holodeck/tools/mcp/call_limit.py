"""The limit on concurrent calls of one server, fair among its callers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque

from holodeck.tools.mcp.errors import ErrorFactory

QUEUE_PHASE = "queue"
"""The phase of the error of a call that got no slot in time, and was not sent."""


class CallLimit:
    """Limits the concurrent calls of one server; shared by all clients of that server.

    A semaphore that is fair among callers. Waiting calls stand in one queue per caller, and the queues take turns: a
    caller with many calls delays its own calls, not those of others. The wait counts against the timeout of a call. A
    call that is cancelled while it waits leaves its queue.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._free = limit
        self._waiters_by_caller: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    def try_acquire(self) -> bool:
        """Take a slot if one is free. Otherwise return False: then `wait` for one."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def wait(self, seconds: float, errors: ErrorFactory, caller_id: str = "") -> float:
        """Wait for a slot and return the rest of `seconds`. Raises MCPTimeoutError when they are over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        turn: asyncio.Future[None] = loop.create_future()
        self._waiters_by_caller.setdefault(caller_id, deque()).append(turn)
        try:
            async with asyncio.timeout_at(deadline):
                await turn
        except BaseException as error:
            # The slot was assigned in the same moment, and goes to the next waiter.
            if turn.done() and not turn.cancelled():
                self.release()
            else:
                self._remove_waiter(caller_id, turn)
            if not isinstance(error, TimeoutError):
                raise
            text = f"it was busy with {self._limit} other calls for {seconds:g} s ('max_concurrent_calls')."
            raise errors.timeout(
                QUEUE_PHASE, f"{text} This call was not sent; it can be tried again.", is_public=True
            ) from None
        return max(deadline - loop.time(), 0.0)

    def release(self) -> None:
        """Pass the slot on to the next caller that waits, or free it."""
        while self._waiters_by_caller:
            caller, queue = self._waiters_by_caller.popitem(last=False)
            turn = queue.popleft()
            if queue:
                self._waiters_by_caller[caller] = queue
            # A waiter whose future is done was cancelled, and has not left the queue yet.
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _remove_waiter(self, caller_id: str, waiter: asyncio.Future[None]) -> None:
        queue = self._waiters_by_caller.get(caller_id, deque())
        if waiter in queue:
            queue.remove(waiter)
        if not queue:
            self._waiters_by_caller.pop(caller_id, None)
