"""A lock for tasks of several event loops, which are in several threads: each gets it in the order of asking."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class CrossLoopLock:
    """Used as `async with lock.hold()`. A task that waits can be cancelled, and blocks no thread.

    A forked child has the lock as a new one: what held it, or waited for it, is in the parent.
    """

    def __init__(self) -> None:
        self._start_anew()

    def _start_anew(self) -> None:
        self._process = os.getpid()
        self._guard = threading.Lock()
        self._is_held = False
        self._waiters: deque[_Waiter] = deque()

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        await self._acquire()
        try:
            yield
        finally:
            self._release()

    async def _acquire(self) -> None:
        loop = asyncio.get_running_loop()
        granted = loop.create_future()
        if self._process != os.getpid():
            self._start_anew()
        with self._guard:
            if not self._is_held:
                self._is_held = True
                return
            self._waiters.append((loop, granted))
        try:
            await granted
        except asyncio.CancelledError:
            with self._guard:
                is_waiting = (loop, granted) in self._waiters
                if is_waiting:
                    self._waiters.remove((loop, granted))
            # Otherwise `_release` has given the lock to this task, which leaves without it.
            if not is_waiting:
                self._release()
            raise

    def _release(self) -> None:
        """Give the lock to the next task that waits, and skip those whose event loops are closed."""
        with self._guard:
            while self._waiters:
                loop, granted = self._waiters.popleft()
                try:
                    loop.call_soon_threadsafe(_grant, granted)
                except RuntimeError:
                    continue
                return
            self._is_held = False


def _grant(granted: asyncio.Future[None]) -> None:
    # A task that was cancelled in the meantime releases the lock itself.
    if not granted.done():
        granted.set_result(None)
