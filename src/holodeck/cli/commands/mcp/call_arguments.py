"""Parsing of the arguments of `holodeck mcp call`, converted to the types of the tool's input schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from holodeck.lib.errors import ConfigError, Problem

_ARTICLES = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "null": "null"}


def parse_call_arguments(words: Sequence[str], schema: Mapping[str, Any], stdin_text: str) -> dict[str, Any]:
    """Return the arguments from JSON objects, `key=value` pairs, and `-` for `stdin_text`; later ones win.

    With an empty schema only the form of the words is checked. Raises `ConfigError`.
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
    """Whether a `key=value` pair is among the words, whose type only the schema of the tool tells."""
    return any(word != "-" and not word.lstrip().startswith("{") for word in words)


def parse_typed_value(text: str, name: str, schema: Mapping[str, Any]) -> Any:
    """Convert a value to a type of its property; without one, to JSON if it is valid JSON, else to text.

    Raises `ConfigError` if the text is not JSON and the property is not a string.
    """
    properties = schema.get("properties")
    allowed = _allowed_types(properties.get(name)) if isinstance(properties, Mapping) else set()
    if allowed == {"string"}:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        if allowed and "string" not in allowed:
            expected = " or ".join(_ARTICLES.get(kind, f"JSON ({kind})") for kind in sorted(allowed))
            raise _argument_error(f"'{name}' must be {expected}") from None
        return text
    if "string" in allowed and not isinstance(value, (int, float, bool, type(None), list, dict)):
        # A quoted text is passed on with its quotes, as it was typed.
        return text
    return value if not allowed or _has_type(value, allowed) else text if "string" in allowed else value


def _allowed_types(schema: object) -> set[str]:
    """Return the JSON types that a schema allows; empty if it does not say."""
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


def _has_type(value: object, allowed: set[str]) -> bool:
    kinds: dict[str, bool] = {
        "boolean": isinstance(value, bool),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": isinstance(value, (int, float)) and not isinstance(value, bool),
        "null": value is None,
        "array": isinstance(value, list),
        "object": isinstance(value, dict),
    }
    return any(kinds.get(kind, False) for kind in allowed)


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
