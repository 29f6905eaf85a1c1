"""Arguments of a tool call: from the text that a model wrote to values that fit, or words about what is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from holodeck.lib.bounded_json import parse_json
from holodeck.lib.limits import MAX_ARGUMENT_CHECK_BYTES, MAX_SHOWN_CHARS


class BadArgumentsError(ValueError):
    """The arguments cannot be used; the message tells the model why."""


def parse_arguments(text: str) -> dict[str, Any]:
    """The arguments as a mapping. Nothing at all means none."""
    if not text.strip():
        return {}
    try:
        value = parse_json(text)
    except ValueError as error:
        near = text[:MAX_SHOWN_CHARS]
        raise BadArgumentsError(f"The arguments are not valid JSON ({error}). They begin: {near}") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadArgumentsError('The arguments must be a JSON object, such as {"name": "value"}.')
    return value


def check_arguments(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Raise with the first things that do not fit. A schema that cannot be used checks nothing."""
    try:
        text = json.dumps(schema, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return
    if len(text) > MAX_ARGUMENT_CHECK_BYTES or _is_costly(text):
        return  # its server checks it, too; a hostile schema must not stall the loop
    validator = _validator(text)
    if validator is None:
        return
    problems = [
        f"{'.'.join(map(str, error.instance_path)) or 'arguments'}: {error.message[:200]}"
        for _, error in zip(range(5), validator.iter_errors(dict(arguments)), strict=False)
    ]
    if problems:
        raise BadArgumentsError("The arguments do not fit the tool: " + "; ".join(problems))


def _is_costly(schema: str) -> bool:
    """Patterns and references can make a small schema take for ever."""
    return '"pattern"' in schema or '"patternProperties"' in schema or '"$ref"' in schema or '"$dynamicRef"' in schema


@lru_cache(maxsize=512)
def _validator(schema: str) -> Any:  # the library's classes have no common public type
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(json.loads(schema))
    except ValueError:
        return None
