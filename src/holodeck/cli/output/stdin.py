"""Standard input without blocking the event loop, and questions whose answer is yes or no. The default is no.

A cancelled read leaves no thread behind.
"""

from __future__ import annotations

import asyncio
import os
import sys

import click


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
