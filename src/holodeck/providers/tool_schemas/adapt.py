"""Adapts the schema of one tool to a provider: inlines references, reshapes, and wraps the root if necessary.

The result has the new schema, the list of changes, and a function that restores arguments to the original schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from holodeck.models.model_io import ToolSpec
from holodeck.providers.tool_schemas.argument_route import ArgumentRestorer
from holodeck.providers.tool_schemas.changes import ChangeNotes
from holodeck.providers.tool_schemas.inline_refs import Inliner
from holodeck.providers.tool_schemas.reshape import Shaper, build_renames, merge_root
from holodeck.providers.tool_schemas.rules import SCHEMA_RULES, SchemaRules, SchemaRulesName
from holodeck.providers.tool_schemas.strict import NotStrictError

WRAPPER = "arguments"
"""The only property of a root schema that had to be wrapped."""
_OTHER_TYPES = ("string", "number", "integer", "boolean", "array", "null")
_EMPTY: Mapping[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, kw_only=True)
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
