"""What a person types after the name of a tool becomes its arguments, typed by the tool's own schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from holodeck.lib.errors import ConfigError, Problem

_ARTICLES = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "null": "null"}


def parse_call_arguments(words: Sequence[str], schema: Mapping[str, Any], stdin_text: str) -> dict[str, Any]:
    """The arguments: JSON objects, `key=value` pairs, and `-` for the JSON that was given; later ones win.

    Raises `ConfigError`. With an empty schema only the form of the words is checked.
    """
    arguments: dict[str, Any] = {}
    for word in words:
        if word == "-":
            arguments |= _parse_object(stdin_text, "the input")
        elif word.lstrip().startswith("{"):
            arguments |= _parse_object(word, "the argument")
        else:
            name, separator, text = word.partition("=")
            if not separator or not name:
                raise _argument_error(f"'{word}' is not key=value, a JSON object or '-'")
            arguments[name] = parse_typed_value(text, name, schema)
    return arguments


def is_argument(word: str) -> bool:
    """Whether a word has the form of an argument."""
    return word == "-" or word.lstrip().startswith("{") or "=" in word[1:]


def needs_schema(words: Sequence[str]) -> bool:
    """Whether there is a pair whose type only the tool knows."""
    return any(word != "-" and not word.lstrip().startswith("{") for word in words)


def parse_typed_value(text: str, name: str, schema: Mapping[str, Any]) -> Any:
    """A value as the schema wants it; where it says nothing, JSON if it is JSON, else text."""
    properties = schema.get("properties")
    wanted = _allowed_types(properties.get(name)) if isinstance(properties, Mapping) else set()
    if wanted == {"string"}:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        if wanted and "string" not in wanted:
            expected = " or ".join(_ARTICLES.get(kind, f"JSON ({kind})") for kind in sorted(wanted))
            raise _argument_error(f"'{name}' must be {expected}") from None
        return text
    if "string" in wanted and not isinstance(value, (int, float, bool, type(None), list, dict)):
        return text  # a quoted text is taken with its quotes, as it was typed
    return value if not wanted or _has_type(value, wanted) else text if "string" in wanted else value


def _allowed_types(schema: object) -> set[str]:
    """The JSON types that a property may have, as far as its schema says."""
    if not isinstance(schema, Mapping):
        return set()
    kinds = schema.get("type")
    found = {kinds} if isinstance(kinds, str) else set(kinds) if isinstance(kinds, list) else set()
    for key in ("anyOf", "oneOf"):
        for choice in schema.get(key) or () if isinstance(schema.get(key), list) else ():
            found |= _allowed_types(choice)
    values = schema.get("enum")
    if not found and isinstance(values, list) and values and all(isinstance(value, str) for value in values):
        found = {"string"}
    return {kind for kind in found if isinstance(kind, str)}


def _has_type(value: object, wanted: set[str]) -> bool:
    kinds: dict[str, bool] = {
        "boolean": isinstance(value, bool),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": isinstance(value, (int, float)) and not isinstance(value, bool),
        "null": value is None,
        "array": isinstance(value, list),
        "object": isinstance(value, dict),
    }
    return any(kinds.get(kind, False) for kind in wanted)


def _parse_object(text: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _argument_error(f"{what} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise _argument_error(f"{what} is not a JSON object", 'Arguments have names: {"a": 2}')
    return value


def _argument_error(message: str, fix: str = "") -> ConfigError:
    return ConfigError.of(
        [Problem(message=message, fix=fix or "For example: text=hello count=3, or '{\"count\": 3}'.")]
    )
