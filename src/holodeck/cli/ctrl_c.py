"""SIGINT handlers for the parts of a command in which no event loop handles Ctrl-C.

The first press raises `KeyboardInterrupt`, which unwinds the command. A second press ends the process at once: Python's
own handler would raise `KeyboardInterrupt` again, inside the code that cleans up, and print a traceback.
Each function here changes the handler only if it is still the one that `install_interrupt_handler` installed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

# 128 plus the number of SIGINT, as shells report it.
EXIT_INTERRUPTED = 130
# Called before a forced exit, which runs no `finally`: what the command has changed at the terminal.
before_forced_exit: list[Callable[[], None]] = []


def install_interrupt_handler() -> None:
    """Install `interrupt_once`, unless SIGINT is ignored, as a shell sets it for a background job."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt_once)


@contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """Let Ctrl-C end the process at once inside the block.

    For imports: an exception raised during one may be replaced by another, or be lost.
    """
    is_ours = signal.getsignal(signal.SIGINT) is interrupt_once
    if is_ours:
        signal.signal(signal.SIGINT, print_and_exit)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, interrupt_once)


def exit_on_next_interrupt() -> None:
    """Let the next Ctrl-C end the process at once: the command has finished."""
    if signal.getsignal(signal.SIGINT) is interrupt_once:
        signal.signal(signal.SIGINT, exit_interrupted)


def let_asyncio_handle_interrupts() -> None:
    """Restore Python's own handler, which `asyncio.run` requires before it cancels its task on Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is interrupt_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupt_once(_signal: int, _frame: FrameType | None) -> None:
    """Raise `KeyboardInterrupt`; the next press ends the process."""
    signal.signal(signal.SIGINT, exit_interrupted)
    raise KeyboardInterrupt


def print_and_exit(_signal: int, _frame: FrameType | None) -> None:
    """End the process at once, with the line that every stopped command ends with."""
    # A further press would interrupt this handler and print the line twice.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):
        os.write(2, b"\nStopped.\n")
    exit_interrupted(_signal, _frame)


def exit_interrupted(_signal: int, _frame: FrameType | None) -> None:
    """End the process at once with the exit code of an interrupt, and without a message."""
    for restore in tuple(before_forced_exit):
        restore()
    os._exit(EXIT_INTERRUPTED)
