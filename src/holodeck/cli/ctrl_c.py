"""Ctrl-C while no work listens for it: the command is left, and pressed again, it ends at once. Never a traceback.

Python raises `KeyboardInterrupt` at each press: at a second one, also within what leaves because of the first.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

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
