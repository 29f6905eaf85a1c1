"""Ctrl-C while something is done: it is left in order. Pressed again, nothing is waited for; once all is left, it ends.

`asyncio.run` raises `KeyboardInterrupt` at the second Ctrl-C, wherever the process happens to be: within a task that
nobody looks at, that ends as a traceback. Here each press cancels the work, between two steps of the loop.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

from holodeck.cli.ctrl_c import exit_interrupted, interrupt_once

_MAX_UNDELIVERED = 2  # presses: a loop that has not noticed as many is held by something that does not end

T = TypeVar("T")


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
    """The result of the work. Raises `KeyboardInterrupt` when Ctrl-C has ended it."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        task = loop.create_task(work)
        outside = signal.getsignal(signal.SIGINT)
        if outside not in {interrupt_once, signal.default_int_handler}:  # a job in the background has none
            return loop.run_until_complete(task)
        presses = _CtrlCHandler(loop, task)
        signal.signal(signal.SIGINT, presses.on_signal)
        try:
            return loop.run_until_complete(task)
        except asyncio.CancelledError:
            if presses.delivered:
                raise KeyboardInterrupt from None
            raise
        finally:
            signal.signal(signal.SIGINT, exit_interrupted if presses.pressed else outside)


class _CtrlCHandler:
    """Each one cancels the task, in the loop's own time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
        self.pressed = self.delivered = 0
        self._loop = loop
        self._task = task

    def on_signal(self, _signal: int, _frame: FrameType | None) -> None:
        if self.pressed - self.delivered >= _MAX_UNDELIVERED:
            raise KeyboardInterrupt
        self.pressed += 1
        self._loop.call_soon_threadsafe(self._cancel_task)

    def _cancel_task(self) -> None:
        self.delivered += 1
        self._task.cancel()
