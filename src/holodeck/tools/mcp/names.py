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
    """From the server's own names to names for the model; two that would become the same are told apart by a hash.

    A name that needs no change keeps it, whatever the order of the list.
    """
    own = list(dict.fromkeys(names))
    taken = {name for name in own if normalize_tool_name(name) == name}
    given = {name: name for name in own if name in taken}
    for name in own:
        if name in given:
            continue
        fit = normalize_tool_name(name)
        if fit in taken:
            fit = _hashed(fit, name)
        given[name] = fit
        taken.add(fit)
    return {name: given[name] for name in own}


def _hashed(fit: str, name: str) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
    return f"{fit[: MAX_TOOL_NAME_CHARS - _HASH_CHARS - 1]}-{digest}"
