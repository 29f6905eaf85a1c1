"""Reshapes a schema by the rules of a provider, and builds the `ArgumentRestorer` that undoes it for arguments.

`Shaper` removes refused keywords, shortens texts, renames properties and limits the depth. `merge_root` and
`build_renames` prepare the root schema for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from holodeck.lib.limits import MAX_TOOL_NAME_CHARS
from holodeck.providers.tool_schemas.changes import ArgumentRestorer, ChangeNotes
from holodeck.providers.tool_schemas.normalize import normalize_schema
from holodeck.providers.tool_schemas.rules import ANNOTATIONS, COMBINATIONS, IDENTITIES, SchemaRules
from holodeck.providers.tool_schemas.strict import to_strict

_SIMPLE = frozenset(
    {"type", "properties", "required", "title", "description", "$schema", "$id", "$defs", "definitions"}
)
_ONE_SCHEMA = ("not", "if", "then", "else", "contains", "unevaluatedItems", "unevaluatedProperties")
_PLAIN_DATA = frozenset({"enum", "const", "default", "examples"})
_ELLIPSIS = " ..."


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
