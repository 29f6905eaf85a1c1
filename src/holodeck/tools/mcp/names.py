"""Tool names that every model accepts: letters, digits, `_`, `-`, at most 64, unique in a server, always the same."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from holodeck.lib.limits import MAX_TOOL_NAME_CHARS

_UNFIT = re.compile(r"[^a-zA-Z0-9_]")
_HASH_CHARS = 8


def normalize_tool_name(name: str) -> str:
    """Every other character becomes `-`; a name that is too long is cut and gets a hash of the whole."""
    fit = _UNFIT.sub("-", name)
    return fit if len(fit) <= MAX_TOOL_NAME_CHARS else _hashed(fit, name)


def model_names(names: Iterable[str]) -> dict[str, str]:
    """From the server's own names to names for the model; of two that would become the same, one gets a hash.

    The order of the list does not matter: a name that needs no change keeps it, else the first in the alphabet does.
    """
    own = list(dict.fromkeys(names))
    given: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(own, key=lambda name: (normalize_tool_name(name) != name, name)):
        fit = normalize_tool_name(name)
        given[name] = fit if fit not in taken else _hashed(fit, name)
        taken.add(given[name])
    return {name: given[name] for name in own}


def _hashed(fit: str, name: str) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
    return f"{fit[: MAX_TOOL_NAME_CHARS - _HASH_CHARS - 1]}-{digest}"
