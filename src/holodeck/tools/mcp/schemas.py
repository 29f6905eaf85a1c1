"""Tells a schema that is checked in microseconds from one that might not end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from holodeck.lib.limits import MAX_INLINE_SCHEMA_NODES

_PLAIN = frozenset(
    {"type", "required", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    | {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
    | {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema"}
    | {"format", "$defs", "definitions"}
)
"""Keywords that cost no more than the value has. `format` is not asserted; definitions cost where they are used."""
_LOCAL = ("#/$defs/", "#/definitions/")


def is_cheap(schema: Mapping[str, Any]) -> bool:
    """True when the schema, with its references followed, is small and has nothing that could take long.

    The walk itself is bounded: references that double, or that lead back to themselves, soon go over the limit.
    """
    waiting: list[Any] = [schema]
    seen = 0
    while waiting:
        seen += 1
        if seen > MAX_INLINE_SCHEMA_NODES:
            return False
        node = waiting.pop()
        if isinstance(node, bool):
            continue
        if not isinstance(node, dict):
            return False
        try:
            waiting.extend(_inner(node, schema))
        except LookupError:
            return False
    return True


def _inner(node: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[Any]:
    """The schemas inside this one. Raises LookupError at anything that is not known to be cheap."""
    for key, value in node.items():
        if key in _PLAIN or key.startswith("x-"):
            if key in ("enum", "required") and len(value) > MAX_INLINE_SCHEMA_NODES:
                raise LookupError(key)
        elif key == "properties":
            yield from _values(value)
        elif key in ("items", "additionalProperties"):
            yield value
        elif key == "anyOf" and isinstance(value, list):
            yield from value
        elif key == "$ref":
            yield _target(value, root)
        else:
            raise LookupError(key)


def _values(value: Any) -> Iterator[Any]:
    yield from value.values() if isinstance(value, dict) else [None]  # None is no schema, and so not cheap


def _target(reference: Any, root: Mapping[str, Any]) -> Any:
    for prefix in _LOCAL:
        if isinstance(reference, str) and reference.startswith(prefix):
            name = reference.removeprefix(prefix)
            if "/" not in name and "~" not in name and "%" not in name:
                return root[prefix[2:-1]][name]
    raise LookupError("$ref")
