"""Builders of JSON Schemas, one for each kind of value that the API has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Schema = dict[str, Any]

NULL: Schema = {"type": "null"}


def ref(name: str, about: str = "") -> Schema:
    """A schema of the document by its name."""
    return {"$ref": f"#/components/schemas/{name}", **_describe(about)}


def string(
    about: str = "",
    *,
    max_length: int | None = None,
    min_length: int | None = None,
    pattern: str | None = None,
    example: str | None = None,
) -> Schema:
    limits = {"minLength": min_length, "maxLength": max_length, "pattern": pattern}
    examples = {} if example is None else {"examples": [example]}
    return {"type": "string", **_without_none(limits), **examples, **_describe(about)}


def constant(value: str) -> Schema:
    """The only value that a field can have, such as the type of an item."""
    return {"type": "string", "const": value}


def only(value: bool | int, about: str = "") -> Schema:
    """The one value of a flag or a number that is accepted, since clients send it."""
    return {"const": value, **_describe(about)}


def choice(values: Iterable[str], about: str = "") -> Schema:
    return {"type": "string", "enum": list(values), **_describe(about)}


def boolean(about: str = "") -> Schema:
    return {"type": "boolean", **_describe(about)}


def integer(about: str = "", *, minimum: int | None = None, maximum: int | None = None) -> Schema:
    return {"type": "integer", **_without_none({"minimum": minimum, "maximum": maximum}), **_describe(about)}


def number(about: str = "", *, minimum: float | None = None, maximum: float | None = None) -> Schema:
    return {"type": "number", **_without_none({"minimum": minimum, "maximum": maximum}), **_describe(about)}


def array(items: Schema, about: str = "", *, max_items: int | None = None, min_items: int | None = None) -> Schema:
    limits = _without_none({"minItems": min_items, "maxItems": max_items})
    return {"type": "array", "items": items, **limits, **_describe(about)}


def mapping(about: str = "", **limits: Any) -> Schema:
    """An object with any keys. `limits`: other keywords of JSON Schema."""
    return {"type": "object", **limits, **_describe(about)}


def record_of(fields: Mapping[str, Schema], about: str = "", *, optional: Iterable[str] = ()) -> Schema:
    """An object that the gateway sends: it has these fields and no others, all of them unless they are `optional`."""
    left_out = set(optional)
    return _build_object(fields, [name for name in fields if name not in left_out], about)


def body_of(
    fields: Mapping[str, Schema],
    about: str = "",
    *,
    required: Iterable[str] = (),
    one_of: Iterable[str] = (),
    is_exclusive: bool = False,
) -> Schema:
    """An object that a client sends: every other field is refused. A field that is not required may be null.

    `one_of`: fields of which it must have one at least; if that `is_exclusive`, only one that is not null.
    """
    needed = list(required)
    known = {name: schema if name in needed else nullable(schema) for name, schema in fields.items()}
    alternatives: list[Schema] = [{"required": [name]} for name in one_of]
    if is_exclusive:
        alternatives = [{**each, "properties": {each["required"][0]: {"not": NULL}}} for each in alternatives]
    word = "oneOf" if is_exclusive else "anyOf"
    return {**_build_object(known, needed, about), **({word: alternatives} if alternatives else {})}


def nullable(schema: Schema) -> Schema:
    """The same values, or null."""
    if "const" in schema or not isinstance(schema.get("type"), str):
        about = {key: value for key, value in schema.items() if key == "description"}
        return {"anyOf": [{key: value for key, value in schema.items() if key != "description"}, NULL], **about}
    values = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, "type": [schema["type"], "null"], **values}


def any_of(*schemas: Schema, about: str = "") -> Schema:
    return {"anyOf": list(schemas), **_describe(about)}


def variants(names: Mapping[str, str], about: str = "") -> Schema:
    """Objects that their `type` tells apart. `names`: of their schemas, by type."""
    mapped = {kind: f"#/components/schemas/{name}" for kind, name in names.items()}
    discriminator = {"propertyName": "type", "mapping": mapped}
    return {
        "oneOf": [ref(name) for name in dict.fromkeys(names.values())],
        "discriminator": discriminator,
        **_describe(about),
    }


def _build_object(fields: Mapping[str, Schema], required: list[str], about: str) -> Schema:
    needed = {"required": required} if required else {}
    return {"type": "object", **_describe(about), "properties": dict(fields), **needed, "additionalProperties": False}


def _describe(about: str) -> Schema:
    return {"description": about} if about else {}


def _without_none(values: Mapping[str, Any]) -> Schema:
    return {key: value for key, value in values.items() if value is not None}
