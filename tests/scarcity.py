"""A process, this one or another, that can open no more files."""

from __future__ import annotations

import itertools
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def no_more_files(pid: int = 0) -> Iterator[None]:
    """What is open stays open; the next one is one too many. `pid` 0 is this process."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (_first_free(pid), before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def _first_free(pid: int) -> int:
    if pid == 0:
        number = os.dup(0)
        os.close(number)
        return number
    taken = {int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    return next(number for number in itertools.count() if number not in taken)
