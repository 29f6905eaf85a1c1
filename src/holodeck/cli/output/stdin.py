"""Standard input without blocking the event loop, and questions whose answer is yes or no. The default is no.

A cancelled read leaves no thread behind. `HeldKeys` keeps what is typed during output off the screen.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from holodeck.cli import ctrl_c

# Positions of the input and local modes in the attributes of a terminal.
_INPUT_MODES, _LOCAL_MODES = 0, 3


def is_terminal() -> bool:
    """Return whether standard input is a terminal."""
    source = _descriptor()
    return source is not None and os.isatty(source)


async def read_available(limit: int) -> bytes:
    """Wait for input and return at most `limit` bytes of it; empty at the end of input."""
    source = _descriptor()
    if source is None:
        return b""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    try:
        loop.add_reader(source, wake)
    # A regular file cannot be waited for, and reading it does not block.
    except PermissionError:
        return os.read(source, limit)
    try:
        await ready
    finally:
        loop.remove_reader(source)
    try:
        return os.read(source, limit)
    # The terminal was closed.
    except OSError:
        return b""


def discard_typed_ahead() -> None:
    """Discard what was typed before a question was shown: it is no answer to it."""
    import termios

    if is_terminal():
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


class HeldKeys:
    """Keys without a reader: they are not echoed into the output, and wait as typed for the next reader.

    Ctrl-C stays a signal. A terminal is as it was before after `release`, and before a forced exit.
    """

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def hold(self) -> None:
        """Stop the echo. Without a terminal, or at a second call, nothing is done."""
        import termios

        source = _descriptor()
        if self._before is not None or source is None or not os.isatty(source):
            return
        self._before = termios.tcgetattr(source)
        held = termios.tcgetattr(source)
        held[_INPUT_MODES] &= ~termios.ICRNL
        held[_LOCAL_MODES] &= ~(termios.ECHO | termios.ICANON)
        # Ctrl-C, which stops an answer, does not discard the next question.
        held[_LOCAL_MODES] |= termios.NOFLSH
        ctrl_c.before_forced_exit.append(self.release)
        termios.tcsetattr(source, termios.TCSANOW, held)

    def release(self) -> None:
        """Put the terminal back as it was."""
        import termios

        before, self._before = self._before, None
        if before is None:
            return
        ctrl_c.before_forced_exit.remove(self.release)
        # The terminal may be closed by now.
        with suppress(OSError, ValueError, termios.error):
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, before)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Release the keys inside the block, in which something reads them."""
        was_held = self._before is not None
        self.release()
        try:
            yield
        finally:
            if was_held:
                self.hold()


def _descriptor() -> int | None:
    return sys.stdin.fileno() if sys.stdin is not None else None


def can_ask() -> bool:
    """Return whether a person can read a question and answer it."""
    return is_terminal() and sys.stderr is not None and sys.stderr.isatty()


def ask_yes_or_no(question: str, explanation: str) -> bool:
    """Ask on standard error, and return whether the answer is yes. The end of input means no; Ctrl-C stops the command.

    `explanation`: lines that `?` shows.
    """
    # What was typed before the question is no answer to it.
    discard_typed_ahead()
    while True:
        click.echo(f"{question} [y/N] (? for help) ", nl=False, err=True)
        line = sys.stdin.readline()
        word = line.strip().lower()
        if word in {"y", "yes"}:
            return True
        if word in {"", "n", "no"}:
            if not line:
                click.echo(err=True)
            return False
        click.echo(explanation if word == "?" else "  Please answer y or n.", nl=word != "?", err=True)
