"""A process, this one or another, that can open no more files."""

from __future__ import annotations

import itertools
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Descriptors that are open in every process, so that none below is free. The lowest free one would do only if no file
# were open for a moment just then: once closed, its descriptor is free.
STANDARD_STREAMS = 3


@contextmanager
def exhaust_open_files(pid: int = 0) -> Iterator[None]:
    """What is open stays open; the next one is one too many. `pid` 0 is this process."""
    with limit_restored(pid):
        _set_limit(pid, STANDARD_STREAMS)
        yield


@contextmanager
def limit_restored(pid: int) -> Iterator[None]:
    """Give a process its limit of open files back at the end."""
    before, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    try:
        yield
    finally:
        _set_limit(pid, before)


def lower_limit(pid: int) -> None:
    """Lower the limit to the first free descriptor. One that is closed and opened again in its turn stays usable.

    A file that is open for a moment frees its descriptor once it is closed: repeat this until none is free.
    """
    taken = {int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    free = next(number for number in itertools.count() if number not in taken)
    _set_limit(pid, min(free, resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]))


def _set_limit(pid: int, files: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (files, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))
