"""File descriptors of this process: a higher limit for a gateway, and valid standard streams."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

# Descriptors of a gateway: a request takes two or three, and the usual limit of 1,024 is made for interactive programs.
MAX_OPEN_FILES = 65_536

_STANDARD_STREAMS = ("stdin", "stdout", "stderr")


def allow_many_open_files() -> None:
    """Raise the soft limit of this process towards `MAX_OPEN_FILES`, up to its hard limit. Needs no privilege."""
    try:
        import resource
    except ImportError:
        # Windows has no such limit.
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def fill_standard_streams() -> None:
    """Open standard streams that were closed at the start of the process on the null device.

    Otherwise the next socket would get one of their numbers: log lines would reach a client, and the event loop would
    abort the process when it closes that socket. And `sys.stdout` would be None.
    """
    # The system assigns the lowest free number, so this ends when none of the three is free.
    handle = os.open(os.devnull, os.O_RDWR)
    while handle < len(_STANDARD_STREAMS):
        handle = os.open(os.devnull, os.O_RDWR)
    os.close(handle)
    for number, name in enumerate(_STANDARD_STREAMS):
        # Python sets a stream to None if it was closed when the process started.
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115
