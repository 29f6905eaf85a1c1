"""Ctrl-C while no work listens for it: the command is left, and pressed again, it ends at once. Never a traceback.

Python raises `KeyboardInterrupt` at each press: at a second one, also within what leaves because of the first.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

EXIT_INTERRUPTED = 130  # the exit code: 128 and the number of the signal


def install_interrupt_handler() -> None:
    """From now on. A job in the background was told to ignore it, and does."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt_once)


@contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """A press ends it at once: what is raised within an import may come out as something else, or not at all."""
    is_ours = signal.getsignal(signal.SIGINT) is interrupt_once
    if is_ours:
        signal.signal(signal.SIGINT, _print_and_exit)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, interrupt_once)


def exit_on_next_interrupt() -> None:
    """Nothing is left that a press could leave."""
    if signal.getsignal(signal.SIGINT) is interrupt_once:
        signal.signal(signal.SIGINT, exit_interrupted)


def let_asyncio_handle_interrupts() -> None:
    """`asyncio.run` cancels its work at a press, if nobody else listens."""
    if signal.getsignal(signal.SIGINT) is interrupt_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupt_once(_signal: int, _frame: FrameType | None) -> None:
    """Raise `KeyboardInterrupt`; the next press ends it."""
    signal.signal(signal.SIGINT, exit_interrupted)
    raise KeyboardInterrupt


def _print_and_exit(_signal: int, _frame: FrameType | None) -> None:
    # The next press would run this within itself, and say it twice.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):
        os.write(2, b"\nStopped.\n")
    os._exit(EXIT_INTERRUPTED)


def exit_interrupted(_signal: int, _frame: FrameType | None) -> None:
    """What is left is to say that it was left: that can be done without."""
    os._exit(EXIT_INTERRUPTED)


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
