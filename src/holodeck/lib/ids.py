"""Names that are unique without asking anybody: `run_…`, `msg_…`, `call_…`."""

from __future__ import annotations

import os
import secrets

_RANDOM_BYTES = 16  # 128 bits: an id that grants access to something cannot be guessed
_FETCHED = 256  # ids for which the kernel is asked at once: asking costs more than all the rest
_unused: list[str] = []


def new_id(prefix: str) -> str:
    """A fresh id of a kind."""
    while True:
        try:
            return f"{prefix}_{_unused.pop()}"
        except IndexError:
            digits = secrets.token_hex(_RANDOM_BYTES * _FETCHED)
            size = 2 * _RANDOM_BYTES
            _unused.extend(digits[at : at + size] for at in range(0, len(digits), size))


os.register_at_fork(after_in_child=_unused.clear)
