"""Ctrl-C while something is done: it is left in order. Pressed again, nothing is waited for; once all is left, it ends.

`asyncio.run` raises `KeyboardInterrupt` at the second Ctrl-C, wherever the process happens to be: within a task that
nobody looks at, that ends as a traceback. Here each press cancels the work, between two steps of the loop.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

INTERRUPTED = 130  # the exit code: 128 and the number of the signal
_UNHEARD = 2  # presses: a loop that has not noticed as many is held by something that does not end

T = TypeVar("T")


def run_work(work: Coroutine[Any, Any, T]) -> T:
    """The result of the work. Raises `KeyboardInterrupt` when Ctrl-C has ended it."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        task = loop.create_task(work)
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # a job in the background has none
            return loop.run_until_complete(task)
        presses = _Presses(loop, task)
        signal.signal(signal.SIGINT, presses.one_more)
        try:
            return loop.run_until_complete(task)
        except asyncio.CancelledError:
            if presses.heard:
                raise KeyboardInterrupt from None
            raise
        finally:
            signal.signal(signal.SIGINT, _leave if presses.made else signal.default_int_handler)


class _Presses:
    """Each one cancels the task, in the loop's own time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
        self.made = self.heard = 0
        self._loop = loop
        self._task = task

    def one_more(self, _signal: int, _frame: FrameType | None) -> None:
        if self.made - self.heard >= _UNHEARD:
            raise KeyboardInterrupt
        self.made += 1
        self._loop.call_soon_threadsafe(self._hear)

    def _hear(self) -> None:
        self.heard += 1
        self._task.cancel()


def _leave(_signal: int, _frame: FrameType | None) -> None:
    """The work is over, and what is left is to say so: that can be done without."""
    os._exit(INTERRUPTED)
