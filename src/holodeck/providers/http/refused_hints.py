"""Hints that a server refuses as unknown. They change no answer, so the request is sent again without them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from holodeck.lib.errors import ModelError

_REFUSED = frozenset({400, 422})


def find_refused_hints(error: ModelError, names: Iterable[str]) -> frozenset[str]:
    """Return those of the names that an error of the server is about, if it has refused the request."""
    if error.status not in _REFUSED:
        return frozenset()
    text = str(error)
    return frozenset(name for name in names if re.search(rf"\b{name}\b", text) is not None)
