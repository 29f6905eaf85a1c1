"""Tools of the client that models know only as functions: those in a namespace, that take text, or that find others.

Codex has its own MCP servers in namespaces, `apply_patch` as a tool that takes text, and, with models that it knows by
name, a tool by which the model finds those of its servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import orjson

from holodeck.lib.json.parse import parse_json
from holodeck.lib.types import record
from holodeck.tools.mcp.names import normalize_tool_name

_TEXT_ARGUMENT = "input"
_NAMESPACE_SEPARATOR = "__"
TOOL_SEARCH = "tool_search"


@record
class ClientToolAlias:
    """How the client calls a tool for which the model has another name, or another form."""

    name: str
    namespace: str | None = None
    form: Literal["function", "custom", "search"] = "function"
    """`custom` takes text, not arguments; `search` finds more tools."""


def model_tool_name(name: str, namespace: str | None) -> str:
    """The name under which the model knows a tool of the client."""
    if not namespace:
        return name
    return normalize_tool_name(f"{namespace.removesuffix(_NAMESPACE_SEPARATOR)}{_NAMESPACE_SEPARATOR}{name}")


def text_tool_parameters(form: Mapping[str, Any] | None) -> dict[str, Any]:
    """The parameters of a function that stands for a tool which takes text of this form."""
    about = "The whole input, as plain text."
    if form is not None and form.get("type") == "grammar":
        about += f" It follows this {form.get('syntax')} grammar:\n{form.get('definition')}"
    text = {"type": "string", "description": about}
    return {
        "type": "object",
        "properties": {_TEXT_ARGUMENT: text},
        "required": [_TEXT_ARGUMENT],
        "additionalProperties": False,
    }


def text_to_arguments(text: str) -> str:
    """What the model is shown of its call of a tool that takes text."""
    return orjson.dumps({_TEXT_ARGUMENT: text}).decode()


def arguments_to_text(arguments: str) -> str:
    """The text for such a tool. A model that does not keep to the form of a function has said it right away."""
    try:
        given = parse_json(arguments)
    except ValueError:
        return arguments
    text = given.get(_TEXT_ARGUMENT) if isinstance(given, dict) else given
    return text if isinstance(text, str) else arguments
