"""Property names that a provider accepts, one for each name that it does not, the same everywhere in a schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from holodeck.lib.limits import MAX_TOOL_NAME_CHARS

_PLAIN_DATA = frozenset({"enum", "const", "default", "examples"})


def build_renames(schema: Any, pattern: re.Pattern[str] | None) -> dict[str, str]:
    """New names by old ones, for the property names in the schema that the pattern does not allow."""
    if pattern is None:
        return {}
    names = dict.fromkeys(_property_names(schema))
    taken = {name for name in names if pattern.fullmatch(name)}
    found: dict[str, str] = {}
    for name in names:
        if name not in taken:
            found[name] = _unused_name(
                re.sub(r"[^a-zA-Z0-9_.-]", "_", name)[: MAX_TOOL_NAME_CHARS - 4] or "field", taken
            )
            taken.add(found[name])
    return found


def _unused_name(name: str, taken: set[str]) -> str:
    candidates = (name if number == 1 else f"{name}_{number}" for number in range(1, len(taken) + 2))
    return next(candidate for candidate in candidates if candidate not in taken)


def _property_names(schema: Any) -> Iterator[str]:
    """Every property name that the schema mentions."""
    if isinstance(schema, list):
        for inner in schema:
            yield from _property_names(inner)
    if not isinstance(schema, Mapping):
        return
    for key in ("properties", "dependentRequired", "dependentSchemas"):
        if isinstance(schema.get(key), Mapping):
            yield from schema[key]
            for inner in schema[key].values():
                yield from _property_names(inner) if key != "dependentRequired" else inner
    if isinstance(schema.get("required"), list):
        yield from (name for name in schema["required"] if isinstance(name, str))
    if isinstance(schema.get("patternProperties"), Mapping):
        yield from _property_names(list(schema["patternProperties"].values()))
    for key, inner in schema.items():
        if key not in _PLAIN_DATA and key not in {"properties", "dependentRequired", "dependentSchemas", "required"}:
            yield from _property_names(inner)
