"""A tool's schema as a provider accepts it, what was changed, and the way back for the arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from holodeck.models.exchange import ToolSpec
from holodeck.providers.schemas.dialect import RULES, Dialect, Rules
from holodeck.providers.schemas.notes import Notes
from holodeck.providers.schemas.references import Inliner
from holodeck.providers.schemas.rename import renames
from holodeck.providers.schemas.route import Route
from holodeck.providers.schemas.shape import Shaper, merged_root
from holodeck.providers.schemas.strict import NotStrictError

WRAPPER = "arguments"
"""The one field of a root that had to be wrapped."""
_OTHER_TYPES = ("string", "number", "integer", "boolean", "array", "null")
_EMPTY: Mapping[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, kw_only=True)
class Adapted:
    """A tool as a provider is offered it."""

    spec: ToolSpec
    changes: tuple[str, ...]
    """What is different from the tool's own schema, for people."""
    restore: Callable[[dict[str, Any]], dict[str, Any]]
    """The model's arguments as the tool's own schema has them."""
    is_looser: bool = False
    """The model may write arguments that the tool refuses: something that limits them was left out."""


def adapt(spec: ToolSpec, dialect: Dialect) -> Adapted:
    """The tool for a dialect. Pure: nothing is fetched, the given schema is not touched."""
    rules, notes = RULES[dialect], Notes()
    try:
        parameters, restore = _parameters(spec.parameters, rules, notes)
        is_strict = rules.is_strict
    except NotStrictError as reason:
        notes = Notes()
        notes.add(f"not strict: {reason}", "")
        parameters, restore = _parameters(spec.parameters, RULES["openai"], notes)
        is_strict = False
    description = spec.description
    if len(description) > rules.max_description:
        description = description[: rules.max_description - 4] + " ..."
        notes.add("shortened: the tool's description", "")
    adapted = replace(spec, description=description, parameters=parameters, strict=is_strict)
    return Adapted(spec=adapted, changes=notes.texts, restore=restore, is_looser=notes.is_looser)


def _parameters(
    schema: Any, rules: Rules, notes: Notes
) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    inlined = Inliner(schema, notes).inlined()
    if inlined is True or inlined is None or inlined == {}:
        inlined = dict(_EMPTY)
    root = inlined if isinstance(inlined, dict) else {"not": {}}
    root = merged_root(root, notes) if "allOf" in rules.refused_at_root else root
    shaper = Shaper(rules, renames(root, rules.name_pattern), notes)
    if _must_be_wrapped(root, rules):
        notes.add(f"wrapped: the arguments are in '{WRAPPER}'", "")
        inner, route = shaper.shape(root, f"/{WRAPPER}")
        whole = {"type": "object", "properties": {WRAPPER: inner}, "required": [WRAPPER], "additionalProperties": False}
        return whole, _unwrapping(route)
    shaped, route = shaper.shape({**root, "type": "object"})
    return {**shaped, "properties": shaped.get("properties", {})}, _restoring(route)


def _must_be_wrapped(root: Mapping[str, Any], rules: Rules) -> bool:
    kind = root.get("type", "object")
    is_object = "object" in kind if isinstance(kind, list) else kind == "object" or kind not in _OTHER_TYPES
    return not is_object or any(key in root for key in rules.refused_at_root)


def _restoring(route: Route) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda arguments: dict(route.back(arguments))


def _unwrapping(route: Route) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A model that forgets the wrapper is understood all the same."""

    def restore(arguments: dict[str, Any]) -> dict[str, Any]:
        inner = arguments[WRAPPER] if set(arguments) == {WRAPPER} else arguments
        restored = route.back(inner)
        return restored if isinstance(restored, dict) else {WRAPPER: restored}

    return restore
