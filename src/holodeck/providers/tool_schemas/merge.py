"""`allOf` of plain objects is one object: their properties and what they require, together."""

from __future__ import annotations

from typing import Any

_SIMPLE = frozenset(
    {"type", "properties", "required", "title", "description", "$schema", "$id", "$defs", "definitions"}
)


def merge_all_of(schema: dict[str, Any]) -> dict[str, Any] | None:
    """The one schema that means the same, or None when there is none so simple."""
    rest = {key: value for key, value in schema.items() if key != "allOf"}
    branches = schema["allOf"]
    if not isinstance(branches, list):
        return None
    result: dict[str, Any] = {**rest, "properties": {}, "required": []}
    for part in [rest, *branches]:
        if not _is_simple(part):
            return None
        for name, inner in part.get("properties", {}).items():
            if result["properties"].setdefault(name, inner) != inner:
                return None
        result["required"] += [name for name in part.get("required", ()) if name not in result["required"]]
    return {**result, "type": "object"}


def _is_simple(part: Any) -> bool:
    return (
        isinstance(part, dict)
        and set(part) <= _SIMPLE
        and part.get("type", "object") == "object"
        and isinstance(part.get("properties", {}), dict)
        and isinstance(part.get("required", []), list)
    )
