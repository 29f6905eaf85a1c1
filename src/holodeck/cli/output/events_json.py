"""Events and results as JSON: all fields, bytes as base64, secrets as `***`, control characters as escapes."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from holodeck.lib.json.parse import parse_json
from holodeck.lib.redaction import MASK
from holodeck.lib.secret import Secret
from holodeck.models.events import Event, RunResult
from holodeck.models.items import Usage

_INVISIBLE = re.compile("[\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


def event_line(number: int, event: Event) -> str:
    """Return one event of a run as one line of JSON."""
    return json_text({"sequence_number": number, "type": event.type, **to_plain_data(event)})


# The history repeats `items` and what the user has asked; the others are for programs in Python.
_FIELDS_FOR_PYTHON = frozenset({"history", "is_parsed", "parsed_output"})


def result_data(result: RunResult, *, has_format: bool) -> dict[str, Any]:
    """Return the result of a run as data for `--json`. `has_format`: a complete answer is JSON, as `structured`."""
    data: dict[str, Any] = to_plain_data(result)
    is_structured = has_format and result.status == "completed"
    return {**data, "structured": parse_json(result.text) if is_structured else None}


def to_plain_data(value: object) -> Any:  # noqa: PLR0911 - one for each kind of value
    """Convert dataclasses and their values, at any depth, to data that JSON can hold. NaN and infinity become None."""
    match value:
        case Enum():
            return value.value
        case float():
            return value if math.isfinite(value) else None
        case None | bool() | int() | str():
            return value
        case Usage():
            return {**_fields_data(value), "total_tokens": value.total_tokens}
        case RunResult():
            return {name: item for name, item in _fields_data(value).items() if name not in _FIELDS_FOR_PYTHON}
        case Secret():
            return MASK
        case bytes() | bytearray():
            return base64.b64encode(value).decode("ascii")
        case Mapping():
            return {str(key): to_plain_data(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [to_plain_data(item) for item in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return _fields_data(value)
        case _:
            return str(value)


def _fields_data(value: Any) -> dict[str, Any]:
    return {field.name: to_plain_data(getattr(value, field.name)) for field in fields(value)}


def json_text(data: Any, *, indent: int | None = None) -> str:
    """Return JSON in which invisible and reordering characters are escaped, so that a terminal can show it."""
    text = json.dumps(data, ensure_ascii=False, indent=indent)
    return _INVISIBLE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
