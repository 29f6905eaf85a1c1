"""Options of a request: format and length of the answer, sampling, reasoning, `metadata` and `include`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, cast, get_args

from holodeck.gateway.api.model import APIModel
from holodeck.gateway.api.models.create_response import (
    LOGPROBS,
    MAX_METADATA_KEY_CHARS,
    MAX_METADATA_PAIRS,
    MAX_METADATA_VALUE_CHARS,
    CreateResponse,
    ReasoningOptions,
    TextOptions,
)
from holodeck.gateway.api.models.text_format import ChatSchemaFormat, NamedSchema, PlainFormat, SchemaFormat
from holodeck.gateway.api.models.tools import ToolContext
from holodeck.gateway.wire.request.json_fields import JSONFields, refuse, refuse_type
from holodeck.gateway.wire.request.schemas import RequestSchemas
from holodeck.gateway.wire.request.validation import read_body, require_kind
from holodeck.models.generation import (
    API,
    DEFAULT_OPTIONS,
    OPTION_OF,
    OPTIONS,
    GenerationOptions,
    RequestPlace,
    Values,
)

TEXT_FORMAT: Mapping[str, Any] = {"type": "text"}
_PLAIN: Mapping[str, type[APIModel]] = {"text": PlainFormat, "json_object": PlainFormat}
_FORMATS: Mapping[str, type[APIModel]] = {**_PLAIN, "json_schema": SchemaFormat}
_CHAT_FORMATS: Mapping[str, type[APIModel]] = {**_PLAIN, "json_schema": ChatSchemaFormat}


def _build_reader(place: RequestPlace) -> Callable[[JSONFields], Any]:
    key, values = place.path, place.values
    match values.kind:
        case "flag":
            return lambda fields: fields.get_flag(key)
        case "integer":
            limits: dict[str, Any] = {"minimum": values.minimum, "maximum": values.maximum}
            return lambda fields: fields.get_integer(key, **limits)
        case "decimal":
            limits = {"minimum": values.minimum, "maximum": values.maximum}
            return lambda fields: fields.get_decimal(key, **limits)
        case "choice":
            return lambda fields: fields.get_choice(key, values.choices)
        case "text":
            return lambda fields: fields.get_text(key, max_length=values.max_length)
        case "texts" | "text_or_texts":
            return lambda fields: _read_texts(fields, key, values)
        case "object":
            return lambda fields: _read_cache_options(fields, key)


_READERS: Mapping[API, tuple[tuple[str, str, Callable[[JSONFields], Any]], ...]] = {
    api: tuple(
        (option.name, option.places[api].path, _build_reader(option.places[api]))
        for option in OPTIONS
        if api in option.places and "." not in option.places[api].path
    )
    for api in get_args(API)
}
"""The options that are members of a body, by the API: name, member and reader."""


def read_options(fields: JSONFields, api: API, names: Collection[str] = OPTION_OF) -> dict[str, Any]:
    """Read the options that are members of a body and not null, or only those of some names.

    Raises `BadRequestError`, which names the field.
    """
    found = {}
    for name, key, read in _READERS[api]:
        if key in fields.value and name in names:
            value = read(fields)
            if value is not None:
                found[name] = value
    return found


def read_generation_options(body: CreateResponse, fields: JSONFields) -> tuple[GenerationOptions, Mapping[str, Any]]:
    """Read the options of a body and of its other members. Returns them, and the format as the response repeats it."""
    wants_logprobs = body.include is not None and LOGPROBS in body.include
    if not (fields.value or wants_logprobs or body.text or body.reasoning):
        return DEFAULT_OPTIONS, TEXT_FORMAT
    text, reasoning = body.text or TextOptions(), body.reasoning or ReasoningOptions()
    echo, schema = TEXT_FORMAT, None
    if text.format is not None:
        echo, schema = read_format(text.format, "text.format")
    found = read_options(fields, "responses")
    top_logprobs = found.pop("top_logprobs", 0)
    options = GenerationOptions(
        response_format=schema,
        json_mode=is_json_mode(echo),
        verbosity=text.verbosity,
        effort=reasoning.effort,
        summary=reasoning.summary or reasoning.generate_summary,
        top_logprobs=top_logprobs if top_logprobs or wants_logprobs else None,
        **found,
    )
    return options, echo


def _read_cache_options(fields: JSONFields, key: str) -> dict[str, Any] | None:
    options = fields.get_mapping(key)
    # The provider has stored no response that it could compare with.
    return options and {name: value for name, value in options.items() if name != "comparison_response_id"}


def is_json_mode(text_format: Mapping[str, Any]) -> bool:
    """Return True for the format of an answer that is a JSON object without a schema."""
    return bool(text_format["type"] == "json_object")


def _read_texts(fields: JSONFields, key: str, values: Values) -> tuple[str, ...]:
    if values.kind == "text_or_texts" and isinstance(fields.value[key], str):
        texts = [fields.require_text(key)]
    else:
        texts = fields.get_strings(key, max_length=values.max_length or 0) or []
    if "" in texts:
        refuse(f"Invalid '{key}': empty string.", key, "empty_string")
    return tuple(texts)


def read_format(
    value: object, where: str, *, is_nested: bool = False
) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """Read a format: `text`, `json_object` or `json_schema`. Returns it as the response repeats it, and its schema.

    `is_nested`: the schema is in an object of its own, as in chat completions.
    """
    model = require_kind(value, where, _CHAT_FORMATS if is_nested else _FORMATS)
    found = read_body(model, value, where, ToolContext(schemas=RequestSchemas().budget))
    if isinstance(found, PlainFormat):
        return {"type": found.type}, None
    return _build_format(found.json_schema if isinstance(found, ChatSchemaFormat) else cast(SchemaFormat, found))


def _build_format(found: NamedSchema) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a named schema as the response repeats it, and as the model gets it."""
    echo = {
        "type": "json_schema",
        "name": found.name,
        "description": found.description,
        "schema": found.json_schema,
        "strict": found.strict or False,
    }
    about = {"description": found.description} if found.description else {}
    return echo, {"title": found.name, **about, **found.json_schema}


def check_metadata(metadata: Mapping[str, Any], where: str = "metadata") -> None:
    """Refuse pairs that the API does not allow. Raises `BadRequestError`, which names the first."""
    if len(metadata) > MAX_METADATA_PAIRS:
        message = (
            f"Invalid '{where}': too many properties. Expected at most {MAX_METADATA_PAIRS}, but got {len(metadata)}."
        )
        refuse(message, where, "object_above_max_properties")
    for key, value in metadata.items():
        if not isinstance(value, str):
            refuse_type(f"{where}.{key[:MAX_METADATA_KEY_CHARS]}", "a string", value)
        if len(key) > MAX_METADATA_KEY_CHARS or len(value) > MAX_METADATA_VALUE_CHARS:
            limits = f"{MAX_METADATA_KEY_CHARS} characters for a key and {MAX_METADATA_VALUE_CHARS} for a value"
            name = f"{where}.{key[:MAX_METADATA_KEY_CHARS]}"
            refuse(f"Invalid '{name}': string too long. Expected at most {limits}.", name, "string_above_max_length")
