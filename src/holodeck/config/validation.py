"""Validation of a document against a model, with the errors of pydantic explained to users.

`validate` returns the model, or one problem for each error: the key, its position, what is wrong, and a fix. Values of
variables are never quoted. A misspelled key is reported with the closest valid key, and is corrected for a second
validation, so that a misspelled required key is not reported as missing as well.

A key of `holodeck-ai`, another program with an `agent.yaml`, is reported with what to write here instead.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pydantic
from pydantic import BaseModel
from pydantic_core import ErrorDetails

from holodeck.config.known_keys import closest_match, known_keys
from holodeck.config.problems import problem_at, value_at
from holodeck.config.yaml_reader import Document, KeyPath
from holodeck.lib.errors import ConfigError, MCPConfigError, Problem
from holodeck.models.agent import Agent
from holodeck.models.file_model import Violation, quote_value
from holodeck.models.provider import find_provider
from holodeck.models.tool import TOOL_TYPES

Model = TypeVar("Model", bound=BaseModel)

# The fix for a key that takes more than the choices that the message names.
_OTHER_FORMS: Mapping[str, str] = {
    "approval": "For some tools only, write 'approval: {always: [write_file]}'.",
    "provider": "A service with OpenAI's API is 'openai_compatible', with its address as 'endpoint'.",
}
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
# The length of the key path of a tool, such as `tools[0]`.
_TOOL_DEPTH = 2
_AUTH_TYPES = ("bearer", "oauth_client_credentials", "oauth_authorization_code")
_CHECKS = "Say what an answer must be in each test case, with 'judge', 'similar' and others."
_SEARCH = "Use an MCP server that searches or reads your documents, such as '@modelcontextprotocol/server-filesystem'."
# By key path, without the positions in lists.
_KEYS: Mapping[tuple[str, ...], str] = {
    ("evaluations",): _CHECKS,
    (
        "execution",
    ): "Limits are 'max_turns' and 'timeout' of 'model'; 'holodeck test --jobs N' runs test cases at once.",
    ("observability",): "Traces are set up in gateway.yaml, with 'otel'.",
    ("deployment",): "'holodeck serve' runs the agent for others, see 'holodeck docs operate/deploy'.",
    ("embedding_provider",): _SEARCH,
    ("claude",): "Settings of the model belong into 'model'; 'approval' of a tool says which calls need a person.",
    ("openai",): "Settings of the model belong into 'model'; 'approval' of a tool says which calls need a person.",
    ("model", "auth_provider"): "A key is given with 'api_key'.",
    ("tools", "defer_loading"): "All tools are offered at once. Remove it.",
    ("tools", "is_retrieval"): "Remove it.",
    ("tools", "registry_name"): "Remove it.",
    ("test_cases", "evaluations"): _CHECKS,
    ("test_cases", "files"): "Put what the agent needs into its tools, or into 'input'.",
    ("test_cases", "retrieval_context"): "A judge sees the results of the tools: use 'judge'.",
    ("test_cases", "turns"): "A case has one question: write one case for each 'input'.",
}
_NO_MAPPING = frozenset({"dict_type", "model_type", "model_attributes_type"})
_TOOL_TYPES: Mapping[str, str] = {
    "vectorstore": _SEARCH,
    "hierarchical_document": _SEARCH,
    "prompt": "Write the prompt into 'instructions', or a function that asks a model.",
}


def validate(model: type[Model], data: Any, document: Document) -> tuple[Model | None, list[Problem]]:
    """Return the validated model and no problems, or None and all problems."""
    try:
        return model.model_validate(data), []
    except pydantic.ValidationError as error:
        errors = error.errors(include_input=False, include_url=False)
    unknown = [item for item in errors if item["type"] == "extra_forbidden"]
    if not unknown:
        return None, _deduplicate([explain(item, document, data, model) for item in errors])
    problems = [explain(item, document, data, model) for item in unknown]
    corrected = copy.deepcopy(data)
    positions = dict(document.positions)
    renamed = {_correct_key(model, corrected, _key_path(item["loc"], data), positions) for item in unknown}
    corrected_document = replace(document, value=corrected, positions=positions)
    try:
        model.model_validate(corrected)
    except pydantic.ValidationError as error:
        again = error.errors(include_input=False, include_url=False)
        problems += [
            explain(item, corrected_document, corrected, model)
            for item in again
            if item["type"] != "extra_forbidden" and not _is_text_of_renamed(item, corrected, renamed)
        ]
    return None, _deduplicate(problems)


def _is_text_of_renamed(error: ErrorDetails, data: Any, renamed: Collection[KeyPath | None]) -> bool:
    """Return whether a text stands for a mapping under a corrected key: `modle: openai:gpt-5-mini`.

    Such a text is resolved before the keys are checked, and may be good once the key is right.
    """
    path = _key_path(error["loc"], data, is_present=True)
    return error["type"] in _NO_MAPPING and path in renamed and isinstance(value_at(data, path), str)


def explain(error: ErrorDetails, document: Document, data: Any, root: type[BaseModel] = Agent) -> Problem:
    """Return the problem of one error of pydantic, in a document whose resolved values are `data`."""
    path = _key_path(error["loc"], data, is_present=error["type"] in _SHAPES)
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


def _correct_key(root: type[BaseModel], data: Any, path: KeyPath, positions: dict[KeyPath, Any]) -> KeyPath | None:
    """Rename a misspelled key to the closest valid one, or remove it when none is close. Returns the new path."""
    parent = value_at(data, path[:-1])
    if not path or not isinstance(parent, dict) or path[-1] not in parent:
        return None
    value = parent.pop(path[-1])
    choice = closest_match(str(path[-1]), known_keys(root, path[:-1], data))
    if choice is None or choice in parent:
        return None
    parent[choice] = value
    right = (*path[:-1], choice)
    positions[right] = positions.get(path, positions.get(()))
    return right


def _deduplicate(problems: list[Problem]) -> list[Problem]:
    return list(dict.fromkeys(problems))


def _key_path(location: Sequence[str | int], data: Any, *, is_present: bool = False) -> KeyPath:
    """Return the location of an error of pydantic without the names of union members, which are no keys of the file.

    `is_present`: the error is about a value of the file, so that its last key is in the data.
    """
    path: list[str | int] = []
    here = data
    for index, part in enumerate(location):
        is_last = index == len(location) - 1
        # The member of the union of tools. Not the last part: 'function' is also a key of a tool.
        if len(path) == _TOOL_DEPTH and index == _TOOL_DEPTH and part == _get(here, "type") and not is_last:
            continue
        if isinstance(here, dict) and part == "env_file" and "envFile" in here:
            part = "envFile"  # noqa: PLW2901 - the spelling in the file
        if isinstance(here, dict) and isinstance(part, str) and (part in here or (is_last and not is_present)):
            path.append(part)
            here = here.get(part)
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            path.append(part)
            here = here[part]
    return tuple(path)


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
        key, comparison = bounds[kind]
        return f"{quoted} must be {comparison} {context.get(key)}", ""
    if kind in {"literal_error", "enum"}:
        expected = str(context.get("expected", "")).replace("'", "").replace(" or ", ", ")
        choice = _find_choice(name, value, expected.split(", ")) if isinstance(value, str) else None
        fix = f"Did you mean '{choice}'?" if choice else _OTHER_FORMS.get(name, "")
        return f"{quoted} must be one of: {expected}", fix
    if kind.endswith("_in_variable") or kind == "encoding":
        return f"{quoted}: {message}" if kind != "encoding" else message, ""
    if kind.startswith(("datetime_", "timezone_")):
        return f"{quoted} must be a time with its time zone", "Write it as 2030-01-31T12:00:00Z."
    return f"{quoted} is not valid", ""


def _find_choice(name: str, value: str, choices: Sequence[str]) -> str | None:
    """Return the choice that was meant; for a provider also by the name that other programs have for it."""
    return (find_provider(value) if name == "provider" else None) or closest_match(value, choices)


def _unquoting_fix(kind: str, value: Any) -> str:
    """Return the fix for a text that would be valid without its quotes; empty for other values."""
    if not isinstance(value, str):
        return ""
    if kind in {"int_type", "float_type"} and _NUMBER.fullmatch(value):
        return "Write the number without quotes."
    return "Write true or false." if kind == "bool_type" else ""


def _describe_missing(quoted: str, path: KeyPath, value: Any) -> tuple[str, str]:
    return f"{quoted} is required", ""


def _describe_unknown_key(path: KeyPath, keys: list[str]) -> tuple[str, str]:
    choice = closest_match(str(path[-1]), keys)
    suggestion = f"Did you mean '{choice}'?" if choice else f"Known keys: {', '.join(keys)}." if keys else ""
    return f"unknown key {quote_value(path[-1])}", find_replacement(path) or suggestion


def _describe_pattern_mismatch(quoted: str, path: KeyPath, value: Any) -> tuple[str, str]:
    if path and path[-1] == "function":
        return f"{quoted} must be the name of a Python function", ""
    if path and path[-1] in {"hash", "old_hash"}:
        return f"{quoted} must be 'sha256:' and 64 digits", "Copy it from what 'holodeck keys create NAME' prints."
    if path and path[0] in {"models", "agents", "keys"} and path[-1] == "name":
        allowed = "letters (a to z), digits, '_', '.', ':', '/' and '-', the first a letter or digit"
        return f"{quoted} must be 1 to 128 {allowed}", ""
    if path and path[-1] == "endpoint":
        return f"{quoted} must be an address, such as https://collector.example.com", ""
    # The name of an agent, or that of a tool.
    others, limit = ("spaces, '_', '.' and '-'", 128) if path == ("name",) else ("'_' and '-'", 64)
    return f"{quoted} must begin with a letter and hold only letters (a to z), digits, {others} (at most {limit})", ""


def _describe_invalid_type(quoted: str, path: KeyPath, value: Any) -> tuple[str, str]:
    kind = _get(value, "type")
    if path and path[0] in {"tools", "mcp_servers"} and len(path) == _TOOL_DEPTH:
        message = f"Tool type {quote_value(kind)} is not supported. Supported types: {', '.join(TOOL_TYPES)}"
        return message, find_tool_replacement(kind)
    return f"{quoted}: type {quote_value(kind)} is not supported. Supported types: {', '.join(_AUTH_TYPES)}", ""


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


def find_replacement(path: KeyPath) -> str:
    """Return what to write instead of a key of `holodeck-ai`; empty for any other key."""
    return _KEYS.get(tuple(part for part in path if isinstance(part, str)), "")


def find_tool_replacement(kind: object) -> str:
    """Return what to use instead of a type of tools of `holodeck-ai`; empty for any other."""
    return _TOOL_TYPES.get(kind, "") if isinstance(kind, str) else ""
