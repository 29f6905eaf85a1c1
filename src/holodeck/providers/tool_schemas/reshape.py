"""Schemas in the form that a provider accepts, and the `ArgumentRestorer` that undoes it for arguments.

A schema is first normalised to draft 2020-12: keywords of older drafts are translated, unknown and malformed ones
dropped. `Shaper` removes refused keywords, shortens texts, renames properties and limits the depth. `merge_root` and
`build_renames` prepare the root schema for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from holodeck.lib.limits import MAX_TOOL_NAME_CHARS
from holodeck.providers.tool_schemas.rules import (
    ANNOTATIONS,
    COMBINATIONS,
    IDENTITIES,
    ArgumentRestorer,
    ChangeNotes,
    SchemaRules,
)
from holodeck.providers.tool_schemas.strict import to_strict

_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_OLD = frozenset({"dependencies", "disallow", "extends", "divisibleBy"})
"""Keywords of older drafts that are constraints."""
_SIMPLE = frozenset(
    {"type", "properties", "required", "title", "description", "$schema", "$id", "$defs", "definitions"}
)
_ONE_SCHEMA = ("not", "if", "then", "else", "contains", "unevaluatedItems", "unevaluatedProperties")
_PLAIN_DATA = frozenset({"enum", "const", "default", "examples"})
_ELLIPSIS = " ..."


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


def merge_all_of(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Merge `allOf` of plain objects into one equivalent schema; None if a branch is not that simple."""
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


class Shaper:
    """Reshapes one schema, in which references are already inlined."""

    def __init__(self, rules: SchemaRules, names: Mapping[str, str], notes: ChangeNotes) -> None:
        self._rules, self._names, self._notes = rules, names, notes

    def shape(self, schema: Any, path: str = "", depth: int = 0) -> tuple[dict[str, Any], ArgumentRestorer]:
        """Return the reshaped schema, and the restorer for its values."""
        if schema is False:
            return {"not": {}}, ArgumentRestorer()
        if not isinstance(schema, Mapping):
            schema = {}
        if depth > self._rules.max_depth:
            self._notes.add("cut: nested too deep", path, is_looser=True)
            kind = schema.get("type")
            schema = {"type": kind} if isinstance(kind, str) else {}
        route = ArgumentRestorer()
        result = self._remove_refused(normalize_schema(schema, path, self._notes), path)
        self._shorten_texts(result, path)
        self._shape_combinations(result, route, path, depth)
        self._shape_object(result, route, path, depth)
        self._shape_array(result, route, path, depth)
        for key in _ONE_SCHEMA:
            if key in result:
                result[key], branch = self.shape(result[key], f"{path}/{key}", depth)
                route.branches.append(branch)
        return (to_strict(result, route, path, self._notes) if self._rules.is_strict else result), route

    def _remove_refused(self, schema: dict[str, Any], path: str) -> dict[str, Any]:
        for key in [key for key in schema if key in self._rules.refused]:
            del schema[key]
            if key not in IDENTITIES:
                self._notes.add(f"left out: '{key}'", path, is_looser=key not in ANNOTATIONS)
        return schema

    def _shorten_texts(self, schema: dict[str, Any], path: str) -> None:
        limit = self._rules.max_field_description
        if len(schema.get("description", "")) > limit:
            schema["description"] = schema["description"][: limit - len(_ELLIPSIS)] + _ELLIPSIS
            self._notes.add("shortened: a description", path)
        if len(schema.get("enum", ())) > self._rules.max_enum:
            self._notes.add(f"left out: an enumeration of {len(schema['enum'])} values", path, is_looser=True)
            del schema["enum"]

    def _shape_combinations(self, schema: dict[str, Any], restorer: ArgumentRestorer, path: str, depth: int) -> None:
        for key in COMBINATIONS:
            if key not in schema:
                continue
            shaped = [self.shape(each, f"{path}/{key}/{at}", depth) for at, each in enumerate(schema[key])]
            schema[key] = [each for each, _ in shaped]
            restorer.branches += [branch for _, branch in shaped]

    def _shape_object(self, schema: dict[str, Any], restorer: ArgumentRestorer, path: str, depth: int) -> None:
        if "properties" in schema or schema.get("type") == "object":
            shaped: dict[str, Any] = {}
            for name, inner in schema.get("properties", {}).items():
                new = self._rename_property(name, restorer, path)
                shaped[new], restorer.fields[new] = self.shape(inner, f"{path}/properties/{name}", depth + 1)
            schema["properties"] = shaped
        if "required" in schema:
            schema["required"] = [self._rename_property(name, restorer, path) for name in schema["required"]]
        if "dependentRequired" in schema:
            schema["dependentRequired"] = {
                self._names.get(name, name): [self._names.get(each, each) for each in needed]
                for name, needed in schema["dependentRequired"].items()
            }
        if "dependentSchemas" in schema:
            for name, inner in dict(schema.pop("dependentSchemas")).items():
                shaped_inner, branch = self.shape(inner, f"{path}/dependentSchemas/{name}", depth)
                schema.setdefault("dependentSchemas", {})[self._names.get(name, name)] = shaped_inner
                restorer.branches.append(branch)
        self._shape_unnamed_properties(schema, restorer, path, depth)

    def _shape_unnamed_properties(
        self, schema: dict[str, Any], restorer: ArgumentRestorer, path: str, depth: int
    ) -> None:
        """Reshape `additionalProperties` and `patternProperties`."""
        others: list[ArgumentRestorer] = []
        if isinstance(schema.get("additionalProperties"), dict):
            inner = schema["additionalProperties"]
            schema["additionalProperties"], other = self.shape(inner, f"{path}/additionalProperties", depth + 1)
            others.append(other)
        if "patternProperties" in schema:
            shaped = {}
            for pattern, inner in schema["patternProperties"].items():
                shaped[pattern], other = self.shape(inner, f"{path}/patternProperties/{pattern}", depth + 1)
                others.append(other)
            schema["patternProperties"] = shaped
        if others:
            restorer.others = ArgumentRestorer(branches=others)

    def _shape_array(self, schema: dict[str, Any], restorer: ArgumentRestorer, path: str, depth: int) -> None:
        elements: list[ArgumentRestorer] = []
        if "prefixItems" in schema:
            shaped = [
                self.shape(each, f"{path}/prefixItems/{at}", depth + 1) for at, each in enumerate(schema["prefixItems"])
            ]
            schema["prefixItems"] = [each for each, _ in shaped]
            elements += [element for _, element in shaped]
        if isinstance(schema.get("items"), dict):
            schema["items"], element = self.shape(schema["items"], f"{path}/items", depth + 1)
            elements.append(element)
        elif schema.get("items") is False and "prefixItems" not in schema:
            schema["items"] = {"not": {}}
        elif self._rules.needs_items and schema.get("type") == "array" and not isinstance(schema.get("items"), bool):
            schema["items"] = {}
            self._notes.add("added: empty 'items'", path)
        if schema.get("items") is True:
            schema["items"] = {}
        if elements:
            restorer.items = ArgumentRestorer(branches=elements)

    def _rename_property(self, name: str, restorer: ArgumentRestorer, path: str) -> str:
        new = self._names.get(name, name)
        if new != name:
            restorer.names[new] = name
            self._notes.add(f"renamed: '{name}' is '{new}'", path)
        return new


def merge_root(schema: dict[str, Any], notes: ChangeNotes) -> dict[str, Any]:
    """Merge a root with `allOf` of plain objects into one object; return any other root unchanged."""
    if "allOf" not in schema:
        return schema
    merged = merge_all_of(schema)
    if merged is not None:
        notes.add("merged: 'allOf'", "")
    return merged if merged is not None else schema


def build_renames(schema: Any, pattern: re.Pattern[str] | None) -> dict[str, str]:
    """Return new names, by original names, for properties whose name the pattern does not allow."""
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
    """Yield every property name in the schema."""
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
