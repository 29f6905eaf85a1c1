"""Asynchronous work that Ctrl-C cancels in order.

The first press cancels the work, which closes what it opened. A further press cancels it again, so that it waits no
longer for a graceful end. Once the work has ended, the next press ends the process at once. `asyncio.run` raises
`KeyboardInterrupt` at the second press, wherever the process happens to be: inside a task whose result is never read,
that prints a traceback. Here each press cancels the task between two steps of the event loop.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

from holodeck.cli.ctrl_c import exit_interrupted, interrupt_once, print_and_exit

# Presses that the event loop may leave unprocessed. The next one ends the process: the loop is blocked, and an
# exception raised from here could be lost in a callback, which prints it as a traceback.
_MAX_UNDELIVERED = 2

T = TypeVar("T")


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in a new event loop and return its result. Raises `KeyboardInterrupt` if Ctrl-C ended it."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        # `run_until_complete` below awaits it.
        task = loop.create_task(work)
        outside = signal.getsignal(signal.SIGINT)
        # A background job ignores SIGINT: there is nothing to handle.
        if outside not in {interrupt_once, signal.default_int_handler}:
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
    """Cancels the task at each press, from within the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
        self.pressed = self.delivered = 0
        self._loop = loop
        self._task = task

    def on_signal(self, _signal: int, _frame: FrameType | None) -> None:
        if self.pressed - self.delivered >= _MAX_UNDELIVERED:
            print_and_exit(_signal, _frame)
        self.pressed += 1
        self._loop.call_soon_threadsafe(self._cancel_task)

    def _cancel_task(self) -> None:
        self.delivered += 1
        self._task.cancel()
