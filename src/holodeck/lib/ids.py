"""Ids that need no coordination: `run_…`, `msg_…`, `call_…`.

Ids are made in batches. An id begins with the second in which its batch was made, the rest is random. So new ids are
neighbours in the index of a database: with random ids alone each insert changes another page, and storing a small row
costs nearly twice as much.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable

MakeId = Callable[[str], str]
"""Returns a new id with a prefix."""

# 128 bits: an id that grants access to a resource cannot be guessed.
_RANDOM_BYTES = 16
# Ids generated per system call: the system call costs more than everything else.
_FETCHED = 256
_unused: list[str] = []


def new_id(prefix: str) -> str:
    """Return a new id with this prefix."""
    while True:
        try:
            return f"{prefix}_{_unused.pop()}"
        except IndexError:
            second = f"{int(time.time()):08x}"
            digits = secrets.token_hex(_RANDOM_BYTES * _FETCHED)
            size = 2 * _RANDOM_BYTES
            _unused.extend(second + digits[at : at + size] for at in range(0, len(digits), size))


# Parent and child would otherwise hand out the same ids.
os.register_at_fork(after_in_child=_unused.clear)
