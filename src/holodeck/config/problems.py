"""What validation found, in words for a person: which key, which line, what is wrong, how to fix it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from holodeck.config.known_keys import closest_match, known_keys
from holodeck.config.yaml_reader import Document, KeyPath, format_key_path
from holodeck.lib.errors import ConfigError, MCPConfigError, Problem, Severity
from holodeck.models.agent import Agent
from holodeck.models.file_model import Violation, quote_value
from holodeck.models.tool import TOOL_TYPES

_SHAPES: Mapping[str, str] = {
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a mapping (key: value)",
    "model_type": "must be a mapping (key: value)",
    "model_attributes_type": "must be a mapping (key: value)",
    "too_long": "has too many entries",
}
_NUMBER = re.compile(r"\s*[+-]?[\d_]*\.?\d+\s*")
_TOOL_DEPTH = 2  # a tool stands at `tools[n]`
_AUTH_TYPES = ("bearer", "oauth_client_credentials", "oauth_authorization_code")


def problem_at(
    document: Document,
    path: KeyPath,
    message: str,
    *,
    fix: str = "",
    severity: Severity = "error",
    kind: type[ConfigError] | None = None,
) -> Problem:
    """A problem with the place of its key filled in."""
    variable = document.find_variable(path)
    if variable is not None:
        return Problem(message=message, file=variable, key=format_key_path(path), fix=fix, severity=severity, kind=kind)
    place = document.position_of(path)
    return Problem(
        message=message,
        file=document.file,
        line=place.line,
        column=place.column,
        key=format_key_path(path),
        fix=fix,
        severity=severity,
        kind=kind,
    )


def explain(error: ErrorDetails, document: Document, data: Any, root: type[BaseModel] = Agent) -> Problem:
    """One finding of pydantic about a file of this model, as a problem of ours."""
    path = key_path(error["loc"], data)
    value = value_at(data, path)
    kind: type[ConfigError] | None = MCPConfigError if _is_mcp(path, data) else None
    context = error.get("ctx", {})
    violation = context.get("violation")
    if isinstance(violation, Violation):
        return problem_at(document, path, violation.message, fix=violation.fix, kind=violation.kind or kind)
    if error["type"] == "extra_forbidden" and path:
        keys = known_keys(root, path[:-1], data)
        message, fix = _describe_unknown_key(path, keys)
    else:
        message, fix = _describe_error(error["type"], error["msg"], context, path, value)
    return problem_at(document, path, message, fix=fix, kind=kind)


def key_path(location: Sequence[str | int], data: Any) -> KeyPath:
    """Pydantic's location without the names of union branches: only keys that a person could have written."""
    path: list[str | int] = []
    here = data
    for index, part in enumerate(location):
        is_last = index == len(location) - 1
        if len(path) == _TOOL_DEPTH and index == _TOOL_DEPTH and part == _get(here, "type") and not is_last:
            continue  # the branch of the union of tools; 'function' is also a key of one
        if isinstance(here, dict) and part == "env_file" and "envFile" in here:
            part = "envFile"  # noqa: PLW2901 - the spelling that the person chose
        if isinstance(here, dict) and isinstance(part, str) and (part in here or is_last):
            path.append(part)
            here = here.get(part)
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            path.append(part)
            here = here[part]
    return tuple(path)


def value_at(data: Any, path: KeyPath) -> Any:
    """The value at a key path, or None."""
    for part in path:
        if isinstance(data, dict) and isinstance(part, str):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return None
    return data


def _get(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _is_mcp(path: KeyPath, data: Any) -> bool:
    return len(path) > 1 and path[0] in {"tools", "mcp_servers"} and _get(value_at(data, path[:2]), "type") == "mcp"


def _describe_error(kind: str, message: str, context: Mapping[str, Any], path: KeyPath, value: Any) -> tuple[str, str]:
    name = str(path[-1]) if path and isinstance(path[-1], str) else "this"
    quoted = f"'{name}'" if name != "this" else "this value"
    special = _DESCRIBERS.get(kind)
    if special is not None:
        return special(quoted, path, value)
    if kind in _SHAPES:
        return f"{quoted} {_SHAPES[kind]}", _unquoting_fix(kind, value)
    bounds = {"greater_than_equal": ("ge", "at least"), "greater_than": ("gt", "more than")}
    bounds |= {"less_than_equal": ("le", "at most"), "less_than": ("lt", "less than")}
    if kind in bounds:
        key, words = bounds[kind]
        return f"{quoted} must be {words} {context.get(key)}", ""
    if kind in {"literal_error", "enum"}:
        expected = str(context.get("expected", "")).replace("'", "").replace(" or ", ", ")
        choice = closest_match(value, expected.split(", ")) if isinstance(value, str) else None
        return f"{quoted} must be one of: {expected}", f"Did you mean '{choice}'?" if choice else ""
    if kind.endswith("_in_variable") or kind == "encoding":
        return f"{quoted}: {message}" if kind != "encoding" else message, ""
    return f"{quoted} is not valid", ""


def _unquoting_fix(kind: str, value: Any) -> str:
    """What to write instead of a text that would be right without its quotes."""
    if not isinstance(value, str):
        return ""
    if kind in {"int_type", "float_type"} and _NUMBER.fullmatch(value):
        return "Write the number without quotes."
    return "Write true or false." if kind == "bool_type" else ""


def _describe_missing(quoted: str, path: KeyPath, value: Any) -> tuple[str, str]:
    return f"{quoted} is required", ""


def _describe_unknown_key(path: KeyPath, keys: list[str]) -> tuple[str, str]:
    choice = closest_match(str(path[-1]), keys)
    others = f"Known keys: {', '.join(keys)}." if keys else ""
    return f"unknown key {quote_value(path[-1])}", f"Did you mean '{choice}'?" if choice else others


def _describe_pattern_mismatch(quoted: str, path: KeyPath, value: Any) -> tuple[str, str]:
    if path and path[-1] == "function":
        return f"{quoted} must be the name of a Python function", ""
    if path and path[-1] == "hash":
        return f"{quoted} must be 'sha256:' and 64 digits", "Copy it from what 'holodeck keys create NAME' prints."
    if path and path[0] in {"models", "agents", "keys"} and path[-1] == "name":
        allowed = "letters (a to z), digits, '_', '.', ':', '/' and '-', the first a letter or digit"
        return f"{quoted} must be 1 to 128 {allowed}", ""
    if path and path[-1] == "endpoint":
        return f"{quoted} must be an address, such as https://collector.example.com", ""
    others, most = ("spaces, '_', '.' and '-'", 128) if path == ("name",) else ("'_' and '-'", 64)  # an agent, a tool
    return f"{quoted} must begin with a letter and hold only letters (a to z), digits, {others} (at most {most})", ""


def _describe_invalid_type(quoted: str, path: KeyPath, value: Any) -> tuple[str, str]:
    given = _get(value, "type")
    if path and path[0] in {"tools", "mcp_servers"} and len(path) == _TOOL_DEPTH:
        return f"Tool type {quote_value(given)} is not supported. Supported types: {', '.join(TOOL_TYPES)}", ""
    return f"{quoted}: type {quote_value(given)} is not supported. Supported types: {', '.join(_AUTH_TYPES)}", ""


def _describe_missing_type(quoted: str, path: KeyPath, value: Any) -> tuple[str, str]:
    if not isinstance(value, dict):
        return f"{quoted} must be a mapping (key: value)", ""
    is_tool = len(path) == _TOOL_DEPTH and path[0] in {"tools", "mcp_servers"}
    choices = TOOL_TYPES if is_tool else _AUTH_TYPES
    return "'type' is required", f"Add 'type: {choices[0]}' (one of: {', '.join(choices)})."


_DESCRIBERS: Mapping[str, Callable[[str, KeyPath, Any], tuple[str, str]]] = {
    "missing": _describe_missing,
    "string_pattern_mismatch": _describe_pattern_mismatch,
    "union_tag_invalid": _describe_invalid_type,
    "union_tag_not_found": _describe_missing_type,
}
