"""A schema in OpenAI's strict mode: all properties required, no others allowed, and a type everywhere."""

from __future__ import annotations

from typing import Any

from holodeck.providers.tool_schemas.rules import ArgumentRestorer, ChangeNotes

_TYPES = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    dict: "object",
    list: "array",
}
_NOTHING: dict[str, Any] = {"not": {}}
_NESTED = frozenset({"object", "array"})


class NotStrictError(Exception):
    """The schema cannot be expressed in strict mode: the tool is then sent as not strict."""


def to_strict(schema: dict[str, Any], restorer: ArgumentRestorer, path: str, notes: ChangeNotes) -> dict[str, Any]:
    """Convert one level of a schema whose inner levels are strict already. Raises `NotStrictError`."""
    if "allOf" in schema:
        raise NotStrictError(f"'allOf' at {path or '/'}")
    if "oneOf" in schema:
        schema["anyOf"] = [*schema.get("anyOf", ()), *schema.pop("oneOf")]
        notes.add("turned into 'anyOf': 'oneOf'", path, is_looser=True)
    if "anyOf" in schema:
        extra = set(schema) - {"anyOf", "description"}
        if extra:
            raise NotStrictError(f"'anyOf' beside {', '.join(sorted(extra))} at {path or '/'}")
        schema["anyOf"] = [each for each in schema["anyOf"] if each != _NOTHING]
        if not schema["anyOf"]:
            raise NotStrictError(f"no alternative at {path or '/'}")
        return schema
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if "type" not in schema and values:
        kinds = list(dict.fromkeys(_TYPES[type(value)] for value in values))
        schema["type"] = kinds[0] if len(kinds) == 1 else kinds
    return _require_type(schema, restorer, path)


def _require_type(schema: dict[str, Any], restorer: ArgumentRestorer, path: str) -> dict[str, Any]:
    kind = schema.get("type")
    if kind is None:
        # The object around it removes a property that accepts nothing.
        if schema == _NOTHING:
            return schema
        raise NotStrictError(f"anything at {path or '/'}")
    if isinstance(kind, list) and set(kind) & _NESTED:
        raise NotStrictError(f"several types at {path or '/'}")
    if kind == "object":
        return _strict_object(schema, restorer, path)
    if kind == "array" and ("prefixItems" in schema or schema.get("items", {}) in ({}, _NOTHING)):
        raise NotStrictError(f"an array of anything at {path or '/'}")
    return schema


def _strict_object(schema: dict[str, Any], restorer: ArgumentRestorer, path: str) -> dict[str, Any]:
    properties: dict[str, Any] = schema.get("properties", {})
    is_open = isinstance(schema.get("additionalProperties"), dict) or "patternProperties" in schema
    if is_open or (path and not properties):
        raise NotStrictError(f"an object with free names at {path or '/'}")
    required = set(schema.get("required", ()))
    if required - set(properties):
        raise NotStrictError(f"a required field that is not described at {path or '/'}")
    strict: dict[str, Any] = {}
    for name, inner in properties.items():
        if inner == _NOTHING:
            if name in required:
                raise NotStrictError(f"a field that cannot be given at {path}/properties/{name}")
            continue
        strict[name] = inner
        if name not in required and not _is_nullable(inner):
            strict[name] = _add_null(inner)
            restorer.nulls.add(name)
    return {**schema, "properties": strict, "required": list(strict), "additionalProperties": False}


def _is_nullable(schema: dict[str, Any]) -> bool:
    if "anyOf" in schema:
        return any(_is_nullable(each) for each in schema["anyOf"])
    kind = schema.get("type")
    is_typed = kind == "null" or (isinstance(kind, list) and "null" in kind)
    return is_typed and None in schema.get("enum", [None]) and schema.get("const") is None


def _add_null(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema.get("type")
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if "const" in schema or kind in ("object", "array"):
        description = {"description": schema["description"]} if "description" in schema else {}
        return {"anyOf": [schema, {"type": "null"}], **description}
    kinds = kind if isinstance(kind, list) else [kind]
    values = {"enum": [*schema["enum"], *([] if None in schema["enum"] else [None])]} if "enum" in schema else {}
    return {**schema, "type": [*kinds, *([] if "null" in kinds else ["null"])], **values}
