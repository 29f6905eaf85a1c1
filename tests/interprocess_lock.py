"""One at a time, over all workers of all test runs in this checkout: for what is made once or cannot be shared."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOCKS = Path(__file__).parents[1] / ".cache" / "locks"


@contextmanager
def interprocess_lock(name: str) -> Iterator[None]:
    """Hold the lock of this name; it is released as well when the process dies."""
    _LOCKS.mkdir(parents=True, exist_ok=True)
    with (_LOCKS / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
