"""Builders of JSON Schemas, one for each kind of value that the API has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from holodeck.gateway.api.model import ALTERNATIVES, NAMED, APIModel
from holodeck.models.generation import API, OPTION_OF, OPTIONS

Schema = dict[str, Any]

NULL: Schema = {"type": "null"}


def ref(name: str, about: str = "") -> Schema:
    """Refer to a schema of the document by its name."""
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
    """Describe the only value that a field can have, such as the type of an item."""
    return {"type": "string", "const": value}


def only(value: bool | int, about: str = "") -> Schema:
    """Describe the one value of a flag or a number that is accepted, since clients send it."""
    return {"const": value, **_describe(about)}


def choice(values: Iterable[str], about: str = "") -> Schema:
    return {"type": "string", "enum": list(values), **_describe(about)}


def boolean(about: str = "") -> Schema:
    return {"type": "boolean", **_describe(about)}


def integer(about: str = "", *, minimum: float | None = None, maximum: float | None = None) -> Schema:
    return {"type": "integer", **_without_none({"minimum": minimum, "maximum": maximum}), **_describe(about)}


def number(about: str = "", *, minimum: float | None = None, maximum: float | None = None) -> Schema:
    return {"type": "number", **_without_none({"minimum": minimum, "maximum": maximum}), **_describe(about)}


def array(items: Schema, about: str = "", *, max_items: int | None = None, min_items: int | None = None) -> Schema:
    limits = _without_none({"minItems": min_items, "maxItems": max_items})
    return {"type": "array", "items": items, **limits, **_describe(about)}


def mapping(about: str = "", **limits: Any) -> Schema:
    """Describe an object with any keys. `limits`: other keywords of JSON Schema."""
    return {"type": "object", **limits, **_describe(about)}


def record_of(fields: Mapping[str, Schema], about: str = "", *, optional: Iterable[str] = ()) -> Schema:
    """Describe an object that the gateway sends: it has these fields only, all of them unless they are `optional`."""
    left_out = set(optional)
    return _build_object(fields, [name for name in fields if name not in left_out], about)


def counts_schema(written: Mapping[str, Any], about: str = "") -> Schema:
    """Describe an object of counts, with objects of counts in it, as it is written."""
    fields = {name: counts_schema(each) if isinstance(each, Mapping) else integer() for name, each in written.items()}
    return record_of(fields, about)


def body_of(
    fields: Mapping[str, Schema],
    about: str = "",
    *,
    required: Iterable[str] = (),
    one_of: Iterable[str] = (),
    is_exclusive: bool = False,
) -> Schema:
    """Describe an object that a client sends: all other fields are refused. A field that is not required may be null.

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
    """Describe the same values, or null."""
    if "const" in schema or not isinstance(schema.get("type"), str):
        about = {key: value for key, value in schema.items() if key == "description"}
        return {"anyOf": [{key: value for key, value in schema.items() if key != "description"}, NULL], **about}
    values = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, "type": [schema["type"], "null"], **values}


def any_of(*schemas: Schema, about: str = "") -> Schema:
    return {"anyOf": list(schemas), **_describe(about)}


def variants(names: Mapping[str, str], about: str = "") -> Schema:
    """Describe objects that their `type` tells apart. `names`: of their schemas, by type."""
    mapped = {kind: f"#/components/schemas/{name}" for kind, name in names.items()}
    discriminator = {"propertyName": "type", "mapping": mapped}
    return {
        "oneOf": [ref(name) for name in dict.fromkeys(names.values())],
        "discriminator": discriminator,
        **_describe(about),
    }


def list_field_schemas(model: type[APIModel], *, named: Collection[str] = ()) -> dict[str, Schema]:
    """List the fields of an object that a client sends, for `body_of`. `named`: objects with a schema of their own."""
    document = model.model_json_schema()
    return _plain_fields(document, {name: ref(name) for name in named}, document.get("$defs", {}))


def list_required(model: type[APIModel]) -> list[str]:
    """Return the fields that an object must have."""
    return [field.alias or name for name, field in model.model_fields.items() if field.is_required()]


def model_schema(model: type[APIModel]) -> Schema:
    """Build the schema of the object that a model declares, with its docstring as the description."""
    about = " ".join((model.__doc__ or "").split())
    return body_of(
        list_field_schemas(model),
        about,
        required=list_required(model),
        one_of=model.one_of,
        is_exclusive=model.is_exclusive,
    )


def model_schemas(models: Iterable[type[APIModel]]) -> dict[str, Schema]:
    """Build the schemas of the objects that models declare, by name."""
    return {model.__name__: model_schema(model) for model in models}


def _plain_fields(
    found: Mapping[str, Any], references: Mapping[str, Schema], definitions: Mapping[str, Any]
) -> dict[str, Schema]:
    """Return the properties of a pydantic schema, in the form of this document: without titles, defaults and null."""

    def plain_object(model: Mapping[str, Any]) -> Schema:
        fields, needed = _plain_fields(model, references, definitions), model.get("required", ())
        one_of, is_exclusive = model.get(ALTERNATIVES, ((), False))
        return body_of(fields, required=needed, one_of=one_of, is_exclusive=is_exclusive)

    def plain(schema: Mapping[str, Any]) -> Schema:
        if "discriminator" in schema:
            return dict(schema)
        if "properties" in schema and schema.get("additionalProperties") is True:
            return plain_object(schema)
        kept = {key: value for key, value in schema.items() if key not in ("title", "default", "row")}
        if "properties" in kept:
            kept["properties"] = {name: plain(each) for name, each in kept["properties"].items()}
        if "items" in kept:
            kept["items"] = plain(kept["items"])
        if isinstance(kept.get("additionalProperties"), dict):
            kept["additionalProperties"] = plain(kept["additionalProperties"])
        options = [plain(each) for each in (*kept.pop("anyOf", ()), *kept.pop("oneOf", ())) if each != NULL]
        if len(options) == 1:
            kept = {**options[0], **kept}
        elif options:
            kept["anyOf"] = options
        if kept.get("additionalProperties") is True:
            del kept["additionalProperties"]
        if NAMED in kept:
            names = kept.pop(NAMED)
            kept |= ref(names) if isinstance(names, str) else variants(dict(names))
        name = kept.get("$ref", "").removeprefix("#/$defs/")
        if name in references:
            kept |= references[name]
        elif name in definitions:
            del kept["$ref"]
            kept = {**plain_object(definitions[name]), **kept}
        return kept

    # A model has its fields in the order in which they are read; in the document, required ones come first.
    names = sorted(found["properties"], key=lambda name: name not in found.get("required", ()))
    fields = {name: found["properties"][name] for name in names}
    # A field that can only be null, or has no value, is refused.
    return {name: plain(each) for name, each in fields.items() if each.get("type") != "null" and "not" not in each}


def option_schema(name: str, api: API) -> Schema:
    """Describe the values of a generation option in the requests of an API."""
    option = OPTION_OF[name]
    values, about = option.places[api].values, option.about
    match values.kind:
        case "flag":
            return boolean(about)
        case "integer":
            return integer(about, minimum=values.minimum, maximum=values.maximum)
        case "decimal":
            return number(about, minimum=values.minimum, maximum=values.maximum)
        case "choice":
            return choice(values.choices, about)
        case "text":
            return string(about, max_length=values.max_length)
        case "texts":
            return array(string(min_length=1), about, max_items=values.max_length)
        case "text_or_texts":
            return any_of(string(min_length=1), array(string(min_length=1), max_items=values.max_length), about=about)
        case "object":
            return mapping(about)


def option_schemas(api: API) -> dict[str, Schema]:
    """Describe the generation options that are members of the bodies of an API."""
    return {
        option.places[api].path: option_schema(option.name, api)
        for option in OPTIONS
        if api in option.places and "." not in option.places[api].path
    }


def inner_option_schemas(api: API, member: str) -> dict[str, Schema]:
    """Describe the generation options that are in a member of the bodies of an API, such as `text`."""
    paths = {option.name: option.places[api].path.partition(".") for option in OPTIONS if api in option.places}
    return {key: option_schema(name, api) for name, (outer, _, key) in paths.items() if outer == member and key}


def _build_object(fields: Mapping[str, Schema], required: list[str], about: str) -> Schema:
    needed = {"required": required} if required else {}
    return {"type": "object", **_describe(about), "properties": dict(fields), **needed, "additionalProperties": False}


def _describe(about: str) -> Schema:
    return {"description": about} if about else {}


def _without_none(values: Mapping[str, Any]) -> Schema:
    return {key: value for key, value in values.items() if value is not None}
