"""Normalises a schema to draft 2020-12: translates keywords of older drafts, drops unknown and malformed ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from holodeck.providers.tool_schemas.changes import ChangeNotes
from holodeck.providers.tool_schemas.rules import IDENTITIES

_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})


def _is_schema(value: Any) -> bool:
    return isinstance(value, (dict, bool))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value) and len(set(value)) == len(value)


def _is_type(value: Any) -> bool:
    if isinstance(value, list):
        return (
            bool(value)
            and all(isinstance(kind, str) for kind in value)
            and len(set(value)) == len(value)
            and set(value) <= _TYPES
        )
    return isinstance(value, str) and value in _TYPES


def _is_regex(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        re.compile(value)
    except re.error:
        return False
    return True


def _is_schemas(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_schema, value))


def _is_named_schemas(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_schema, value.values()))


def _check_all_with(keywords: str, check: Callable[[Any], bool]) -> dict[str, Callable[[Any], bool]]:
    return dict.fromkeys(keywords.split(), check)


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "type": _is_type,
    "required": _is_names,
    "enum": lambda value: isinstance(value, list) and bool(value),
    "examples": lambda value: isinstance(value, list),
    "pattern": _is_regex,
    "properties": _is_named_schemas,
    "patternProperties": lambda value: _is_named_schemas(value) and all(map(_is_regex, value)),
    "dependentSchemas": _is_named_schemas,
    "dependentRequired": lambda value: isinstance(value, dict) and all(map(_is_names, value.values())),
    "multipleOf": lambda value: _is_number(value) and value > 0,
    **_check_all_with(
        "title description format contentEncoding contentMediaType", lambda value: isinstance(value, str)
    ),
    **_check_all_with("uniqueItems deprecated readOnly writeOnly", lambda value: isinstance(value, bool)),
    **_check_all_with("minimum maximum exclusiveMinimum exclusiveMaximum", _is_number),
    **_check_all_with(
        "minLength maxLength minItems maxItems minContains maxContains minProperties maxProperties", _is_count
    ),
    **_check_all_with("anyOf oneOf allOf prefixItems", _is_schemas),
    **_check_all_with("items additionalProperties not if then else contains propertyNames", _is_schema),
    **_check_all_with("unevaluatedItems unevaluatedProperties contentSchema", _is_schema),
}
_KNOWN = IDENTITIES | {*_CHECKS, "const", "default"}
_OLD = frozenset({"dependencies", "disallow", "extends", "divisibleBy"})
"""Keywords of older drafts that are constraints."""


def normalize_schema(schema: Mapping[str, Any], path: str, notes: ChangeNotes) -> dict[str, Any]:
    """Return one level of a schema in draft 2020-12, without keywords that a validator would refuse."""
    result = _modernize(schema)
    for keyword in [keyword for keyword, value in result.items() if keyword in _CHECKS and not _CHECKS[keyword](value)]:
        del result[keyword]
        notes.add(f"left out: a malformed '{keyword}'", path, is_looser=True)
    for keyword in [keyword for keyword in result if keyword not in _KNOWN]:
        del result[keyword]
        notes.add(f"left out: '{keyword}'", path, is_looser=keyword in _OLD)
    return result


def _modernize(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Translate tuples and exclusive limits of older drafts."""
    result = dict(schema)
    if isinstance(result.get("items"), list):
        result["prefixItems"] = result.pop("items")
        if "additionalItems" in result:
            result["items"] = result["additionalItems"]
        if not result["prefixItems"]:
            del result["prefixItems"]
    result.pop("additionalItems", None)
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(result.get(exclusive), bool) and result.pop(exclusive) and limit in result:
            result[exclusive] = result.pop(limit)
    return result
