"""Environment variables that override values of a gateway file: `HOLODECK_MCP_SERVERS__GITHUB__URL=https://...`.

`__` separates the keys of a path; an entry of a list is addressed by its name or its number. A value is JSON where it
looks like it, else a scalar. Values are marked as `Substituted`, so that they are never shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from holodeck.config.known_keys import closest_match
from holodeck.config.yaml_reader import KeyPath, parse_scalar
from holodeck.lib.errors import Problem
from holodeck.lib.json.parse import parse_json
from holodeck.models.file_model import Substituted

PREFIX = "HOLODECK_"
_SEPARATOR = "__"
# Top-level keys whose value is a list, for files that do not have the key.
_LISTS = frozenset({"models", "agents", "mcp_servers", "keys"})


def apply_overrides(
    data: dict[str, Any], environ: Mapping[str, str], known: set[str]
) -> tuple[dict[str, Any], list[Problem], dict[KeyPath, str]]:
    """Write the values of the environment into `data`. Returns `data`, the problems, and the variable of each key path.

    A variable whose first part is no known key belongs to another program, and is ignored. If it has several parts, as
    only our variables do, there is a warning.
    """
    problems: list[Problem] = []
    origins: dict[KeyPath, str] = {}
    for variable in sorted(environ):
        parts = variable.removeprefix(PREFIX).lower().split(_SEPARATOR)
        if not variable.startswith(PREFIX):
            continue
        if parts[0] not in known:
            parts = _split_joined_key(parts, known)
            if len(parts) > 1:
                problems.append(_unknown_variable_problem(variable, parts, known))
            continue
        value = _parse_override(environ[variable], variable)
        try:
            origins[_set_value(data, parts, value)] = variable
        except (TypeError, IndexError):
            message = "this does not lead to a value: a list is entered by name or number, a text not at all"
            problems.append(Problem(message=message, file=variable))
        except _NoEntryError as error:
            problems.append(error.problem(variable))
    return data, problems, origins


def _split_joined_key(parts: list[str], known: set[str]) -> list[str]:
    """Split a first part such as `listen_port`, which is a mistake for `listen__port`."""
    for key in known:
        if parts[0].startswith(f"{key}_"):
            return [key, parts[0].removeprefix(f"{key}_"), *parts[1:]]
    return parts


def _unknown_variable_problem(variable: str, parts: list[str], known: set[str]) -> Problem:
    meant = parts[0] if parts[0] in known else closest_match(parts[0], known)
    name = PREFIX + _SEPARATOR.join([meant or "", *parts[1:]]).upper()
    written = variable.removeprefix(PREFIX).lower().split(_SEPARATOR)[0]
    message = f"there is no '{written}' in a gateway file, so this variable does nothing"
    return Problem(message=message, file=variable, fix=f"Did you mean {name}?" if meant else "", severity="warning")


def _parse_override(text: str, variable: str) -> Any:
    """Return the value of a variable: JSON where it looks like it, else a scalar as in YAML."""
    if text[:1] in {"[", "{"}:
        try:
            return _mark_substituted(parse_json(text), variable)
        except ValueError:
            pass
    value = parse_scalar(text)
    # A key or an id may look like a number, so a number stays a text; the models parse it where they expect a number.
    return value if value is None or isinstance(value, bool) else Substituted(text, written=f"({variable})")


def _mark_substituted(value: Any, variable: str) -> Any:
    if isinstance(value, dict):
        return {key: _mark_substituted(item, variable) for key, item in value.items()}
    if isinstance(value, list):
        return [_mark_substituted(item, variable) for item in value]
    return Substituted(value, written=f"({variable})") if isinstance(value, str) else value


def _set_value(data: Any, parts: list[str], value: Any) -> KeyPath:
    """Set the value, and return its key path. Raises `TypeError`, `IndexError` or `_NoEntryError`."""
    key, rest = parts[0], parts[1:]
    if isinstance(data, list):
        if not rest:
            raise TypeError(key)
        entry = _find_entry(data, key)
        if entry is None:
            raise _NoEntryError(key, data)
        return (data.index(entry), *_set_value(entry, rest, value))
    if not isinstance(data, dict):
        raise TypeError(key)
    if not rest:
        data[key] = value
        return (key,)
    return (key, *_set_value(data.setdefault(key, [] if key in _LISTS else {}), rest, value))


def _find_entry(entries: list[Any], key: str) -> dict[str, Any] | None:
    if not key.isdigit():
        return next(
            (each for each in entries if isinstance(each, dict) and _normalize_name(each.get("name")) == key), None
        )
    if not isinstance(entry := entries[int(key)], dict):
        raise TypeError(key)
    return entry


class _NoEntryError(LookupError):
    """A variable names an entry that its list does not have. No entry is created: most such names are typos."""

    def __init__(self, key: str, entries: list[Any]) -> None:
        self._key = key
        self._names = [_normalize_name(each["name"]) for each in entries if isinstance(each, dict) and "name" in each]

    def problem(self, variable: str) -> Problem:
        whole, *rest = variable.split(_SEPARATOR)
        choice = closest_match(self._key, self._names)
        fix = f"Did you mean {_SEPARATOR.join([whole, choice.upper(), *rest[1:]])}? " if choice else ""
        fix += f"Add it to the file, or set {whole} to the whole list as JSON."
        return Problem(message=f"the file has no '{self._key}' that this could change", file=variable, fix=fix)


def _normalize_name(name: object) -> str:
    return re.sub(r"[^a-z0-9]+", "_", str(name).lower())
