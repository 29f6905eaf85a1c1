"""The schema of one tool adapted to a provider: references inlined, reshaped, and the root wrapped if necessary.

The result has the new schema, the list of changes, and a function that restores arguments to the original schema. Only
local references are followed, without network access; recursion is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from holodeck.lib.limits import MAX_SCHEMA_DEPTH
from holodeck.lib.record import record
from holodeck.models.model_io import ToolSpec
from holodeck.providers.tool_schemas.reshape import Shaper, build_renames, merge_root
from holodeck.providers.tool_schemas.rules import (
    ANNOTATIONS,
    SCHEMA_RULES,
    ArgumentRestorer,
    ChangeNotes,
    SchemaRules,
    SchemaRulesName,
)
from holodeck.providers.tool_schemas.strict import NotStrictError

WRAPPER = "arguments"
"""The only property of a root schema that had to be wrapped."""
_OTHER_TYPES = ("string", "number", "integer", "boolean", "array", "null")
_EMPTY: Mapping[str, Any] = {"type": "object", "properties": {}}

# Nodes of an inlined schema: references can multiply, and a larger schema costs a model more than it is worth.
MAX_INLINED_NODES = 5_000

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose value maps names, not keywords."""
_PLAIN_DATA = frozenset({"enum", "const", "default", "examples", "required", "dependentRequired"})


@record
class AdaptedTool:
    """A tool in the form that a provider accepts."""

    spec: ToolSpec
    changes: tuple[str, ...]
    """Differences from the tool's own schema, as text."""
    restore: Callable[[dict[str, Any]], dict[str, Any]]
    """Converts the model's arguments to the tool's own schema."""
    is_looser: bool = False
    """Whether a constraint was removed, so that the model may write arguments that the tool refuses."""


def adapt_tool(spec: ToolSpec, rules_name: SchemaRulesName) -> AdaptedTool:
    """Adapt a tool to the rules of a provider. Pure: no network access, and the original schema is not modified."""
    rules, notes = SCHEMA_RULES[rules_name], ChangeNotes()
    try:
        parameters, restore = _adapt_parameters(spec.parameters, rules, notes)
        is_strict = rules.is_strict
    except NotStrictError as reason:
        notes = ChangeNotes()
        notes.add(f"not strict: {reason}", "")
        parameters, restore = _adapt_parameters(spec.parameters, SCHEMA_RULES["openai"], notes)
        is_strict = False
    description = spec.description
    if len(description) > rules.max_description:
        description = description[: rules.max_description - 4] + " ..."
        notes.add("shortened: the tool's description", "")
    adapted = replace(spec, description=description, parameters=parameters, strict=is_strict)
    return AdaptedTool(spec=adapted, changes=notes.texts, restore=restore, is_looser=notes.is_looser)


def _adapt_parameters(
    schema: Any, rules: SchemaRules, notes: ChangeNotes
) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    inlined = Inliner(schema, notes).inline()
    if inlined is True or inlined is None or inlined == {}:
        inlined = dict(_EMPTY)
    root = inlined if isinstance(inlined, dict) else {"not": {}}
    root = merge_root(root, notes) if "allOf" in rules.refused_at_root else root
    shaper = Shaper(rules, build_renames(root, rules.name_pattern), notes)
    if _needs_wrapper(root, rules):
        notes.add(f"wrapped: the arguments are in '{WRAPPER}'", "")
        inner, route = shaper.shape(root, f"/{WRAPPER}")
        whole = {"type": "object", "properties": {WRAPPER: inner}, "required": [WRAPPER], "additionalProperties": False}
        return whole, _build_unwrap(route)
    shaped, route = shaper.shape({**root, "type": "object"})
    return {**shaped, "properties": shaped.get("properties", {})}, _build_restore(route)


def _needs_wrapper(root: Mapping[str, Any], rules: SchemaRules) -> bool:
    kind = root.get("type", "object")
    is_object = "object" in kind if isinstance(kind, list) else kind == "object" or kind not in _OTHER_TYPES
    return not is_object or any(key in root for key in rules.refused_at_root)


def _build_restore(restorer: ArgumentRestorer) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda arguments: dict(restorer.restore(arguments))


def _build_unwrap(restorer: ArgumentRestorer) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that removes the wrapper; arguments without it are accepted as well."""

    def restore(arguments: dict[str, Any]) -> dict[str, Any]:
        inner = arguments[WRAPPER] if set(arguments) == {WRAPPER} else arguments
        restored = restorer.restore(inner)
        return restored if isinstance(restored, dict) else {WRAPPER: restored}

    return restore


class Inliner:
    """Copies a schema without references, within a bounded number of nodes and depth."""

    def __init__(self, root: Any, notes: ChangeNotes) -> None:
        self._root, self._notes = root, notes
        self._nodes = 0

    def inline(self) -> Any:
        """Return a copy of the schema without references."""
        return self._inline_schema(self._root, "", (), 0)

    def _inline_schema(self, schema: Any, path: str, open_references: tuple[str, ...], depth: int) -> Any:
        if not isinstance(schema, Mapping):
            return schema
        self._nodes += 1
        if self._nodes > MAX_INLINED_NODES or depth > 2 * MAX_SCHEMA_DEPTH:
            self._notes.add("cut: the schema is too large", path, is_looser=True)
            return _outline(schema)
        reference = next((key for key in _REFERENCES if isinstance(schema.get(key), str)), None)
        if reference is not None:
            return self._inline_reference(schema, reference, path, open_references, depth)
        return {
            str(key): self._inline_value(str(key), value, path, open_references, depth) for key, value in schema.items()
        }

    def _inline_value(self, key: str, value: Any, path: str, open_references: tuple[str, ...], depth: int) -> Any:
        here = f"{path}/{key}"
        if key in {"$defs", "definitions"} or key in _PLAIN_DATA:
            return value
        if key in _NAMED and isinstance(value, Mapping):
            return {
                str(name): self._inline_schema(inner, f"{here}/{name}", open_references, depth + 1)
                for name, inner in value.items()
            }
        if isinstance(value, list):
            return [
                self._inline_schema(inner, f"{here}/{index}", open_references, depth + 1)
                for index, inner in enumerate(value)
            ]
        return self._inline_schema(value, here, open_references, depth + 1)

    def _inline_reference(
        self, schema: Mapping[str, Any], key: str, path: str, open_references: tuple[str, ...], depth: int
    ) -> Any:
        target_name = schema[key]
        rest = {name: value for name, value in schema.items() if name not in _REFERENCES}
        found, target = self._look_up(target_name)
        if not found:
            self._notes.add("left out: a reference that is not in the schema", path, is_looser=True)
            return self._inline_schema(rest, path, open_references, depth)
        if target_name in open_references:
            self._notes.add("cut: a schema that contains itself", path, is_looser=True)
            return {**_outline(target), **{name: rest[name] for name in rest if name in ANNOTATIONS}}
        self._notes.add("inlined: a reference", path)
        inlined = self._inline_schema(target, path, (*open_references, target_name), depth + 1)
        siblings = self._inline_schema(rest, path, open_references, depth)
        if not isinstance(inlined, dict):
            return inlined if not siblings else {"allOf": [inlined, siblings]}
        return {**inlined, **siblings} if set(siblings) <= ANNOTATIONS else {"allOf": [inlined, siblings]}

    def _look_up(self, reference: str) -> tuple[bool, Any]:
        """Return whether a JSON pointer within this schema leads to a schema, and that schema."""
        if reference in {"#", "#/"}:
            return True, self._root
        if not reference.startswith("#/"):
            return False, None
        here = self._root
        for raw in reference[2:].split("/"):
            part = unquote(raw).replace("~1", "/").replace("~0", "~")
            if isinstance(here, Mapping) and part in here:
                here = here[part]
            elif isinstance(here, list) and part.isdigit() and int(part) < len(here):
                here = here[int(part)]
            else:
                return False, None
        return isinstance(here, (Mapping, bool)), here


def _outline(schema: Any) -> dict[str, Any]:
    """Return a stub for a schema that is cut: its type, which still helps a model."""
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    return {"type": kind} if isinstance(kind, str) else {}
