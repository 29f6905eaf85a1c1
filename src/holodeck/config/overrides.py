"""Every value of a gateway file can come from the environment: `HOLODECK_MCP_SERVERS__GITHUB__URL=https://...`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from holodeck.config.scalars import plain_value
from holodeck.lib.errors import Problem
from holodeck.models.base import Substituted

PREFIX = "HOLODECK_"
_SEPARATOR = "__"


def overridden(
    data: dict[str, Any], environ: Mapping[str, str], known: set[str]
) -> tuple[dict[str, Any], list[Problem]]:
    """The data with the environment's values in it. Only names whose first part is a known key are looked at."""
    problems: list[Problem] = []
    for variable in sorted(environ):
        parts = variable.removeprefix(PREFIX).lower().split(_SEPARATOR)
        if not variable.startswith(PREFIX) or parts[0] not in known:
            continue
        value = _value(environ[variable], variable)
        try:
            _set(data, parts, value)
        except (TypeError, IndexError):
            message = f"{variable} does not lead to a value: a list is entered by name or number, a text not at all"
            problems.append(Problem(message=message, file="the environment"))
    return data, problems


def _value(text: str, variable: str) -> Any:
    """What a variable holds: JSON where it looks like it, else a scalar as YAML reads it. Never shown."""
    if text[:1] in {"[", "{"}:
        try:
            return _marked(orjson.loads(text), variable)
        except ValueError:
            pass
    value = plain_value(text)
    return Substituted(text, written=f"({variable})") if isinstance(value, str) else value


def _marked(value: Any, variable: str) -> Any:
    if isinstance(value, dict):
        return {key: _marked(item, variable) for key, item in value.items()}
    if isinstance(value, list):
        return [_marked(item, variable) for item in value]
    return Substituted(value, written=f"({variable})") if isinstance(value, str) else value


def _set(data: Any, parts: list[str], value: Any) -> None:
    key, rest = parts[0], parts[1:]
    if isinstance(data, list):
        entry = _entry(data, key)
        if not rest:
            raise TypeError(key)
        _set(entry, rest, value)
    elif not isinstance(data, dict):
        raise TypeError(key)
    elif not rest:
        data[key] = value
    else:
        _set(data.setdefault(key, [] if key in _LISTS else {}), rest, value)


_LISTS = frozenset({"models", "agents", "mcp_servers", "keys"})


def _entry(entries: list[Any], key: str) -> dict[str, Any]:
    """The entry of this number or name; a new name makes a new entry."""
    if key.isdigit():
        entry = entries[int(key)]
    else:
        entry = next((each for each in entries if isinstance(each, dict) and _folded(each.get("name")) == key), None)
        if entry is None:
            entry = {"name": key}
            entries.append(entry)
    if not isinstance(entry, dict):
        raise TypeError(key)
    return entry


def _folded(name: object) -> str:
    return re.sub(r"[^a-z0-9]+", "_", str(name).lower())
