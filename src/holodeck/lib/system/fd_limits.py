"""A process that serves many at once may have many files open: the usual limit is for programs of another kind."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

# Of a gateway: a request takes two or three, and the usual 1,024 are for one user's program.
MAX_OPEN_FILES = 65_536

_STANDARD_STREAMS = ("stdin", "stdout", "stderr")


def allow_many_open_files() -> None:
    """Raise this process's own limit as far as the system lets it, which asks nobody for a right."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # then it stays as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def fill_standard_streams() -> None:
    """Give input, output and errors that were closed a place that is nowhere.

    Otherwise the next connection is taken for one of them: what is meant for the log reaches a client, and the event
    loop aborts the process when it closes such a one. And a program that writes would find nothing to write to.
    """
    handle = os.open(os.devnull, os.O_RDWR)
    while handle < len(_STANDARD_STREAMS):
        handle = os.open(os.devnull, os.O_RDWR)  # the lowest that is free, until none of the three is
    os.close(handle)
    for number, name in enumerate(_STANDARD_STREAMS):
        if getattr(sys, name) is None:  # which Python makes of one that was closed when it began
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115
