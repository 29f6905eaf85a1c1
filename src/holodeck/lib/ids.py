"""Names that are unique without asking anybody: `run_…`, `msg_…`, `call_…`."""

from __future__ import annotations

import secrets

_RANDOM_BYTES = 12  # 96 bits: two equal ones will not be seen


def new_id(prefix: str) -> str:
    """A fresh id of a kind."""
    return f"{prefix}_{secrets.token_hex(_RANDOM_BYTES)}"
