"""Standard input, read beside whatever else goes on: a wait that is cancelled leaves no thread behind."""

from __future__ import annotations

import asyncio
import os
import sys


def is_terminal() -> bool:
    """Whether a person is at the other end."""
    source = _descriptor()
    return source is not None and os.isatty(source)


async def read_available(limit: int) -> bytes:
    """What there is, as soon as there is something; nothing at the end."""
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
    except PermissionError:  # a file: it never makes anybody wait
        return os.read(source, limit)
    try:
        await ready
    finally:
        loop.remove_reader(source)
    try:
        return os.read(source, limit)
    except OSError:  # the terminal has gone
        return b""


def discard_typed_ahead() -> None:
    """Drop what was typed before a question was asked: it is no answer to it."""
    import termios

    if is_terminal():
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


def _descriptor() -> int | None:
    return sys.stdin.fileno() if sys.stdin is not None else None
