"""A process, this one or another, that can open no more files."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

# Descriptors that are open in every process, so that none below is free. The lowest free one would do only if no file
# were open for a moment just then: once closed, its descriptor is free.
STANDARD_STREAMS = 3


@contextmanager
def exhaust_open_files(pid: int = 0) -> Iterator[None]:
    """What is open stays open; the next one is one too many. `pid` 0 is this process."""
    before, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    _set_limit(pid, STANDARD_STREAMS)
    try:
        yield
    finally:
        _set_limit(pid, before)


def _set_limit(pid: int, files: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (files, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))
