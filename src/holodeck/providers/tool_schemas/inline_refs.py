"""Replaces references by their targets. Only local ones are followed, without network access; recursion is cut."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from holodeck.lib.limits import MAX_SCHEMA_DEPTH
from holodeck.providers.tool_schemas.changes import ChangeNotes

# Nodes of an inlined schema: references can multiply, and a larger schema costs a model more than it is worth.
MAX_INLINED_NODES = 5_000

_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"})
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose value maps names, not keywords."""
_PLAIN_DATA = frozenset({"enum", "const", "default", "examples", "required", "dependentRequired"})


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
            return {**_outline(target), **{name: rest[name] for name in rest if name in _ANNOTATIONS}}
        self._notes.add("inlined: a reference", path)
        inlined = self._inline_schema(target, path, (*open_references, target_name), depth + 1)
        siblings = self._inline_schema(rest, path, open_references, depth)
        if not isinstance(inlined, dict):
            return inlined if not siblings else {"allOf": [inlined, siblings]}
        return {**inlined, **siblings} if set(siblings) <= _ANNOTATIONS else {"allOf": [inlined, siblings]}

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
