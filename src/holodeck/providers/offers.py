"""Which tools a model is offered, and the schema of an answer, as every dialect needs them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from holodeck.models.model_io import ModelRequest, ToolSpec

_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]+")
_MAX_NAME_CHARS = 64  # what the APIs accept


def select_tools(request: ModelRequest) -> tuple[ToolSpec, ...]:
    """The tools of a dialect that cannot say "only these": the others are not shown to the model."""
    allowed = request.tool_choice.allowed
    if not allowed or request.tool_choice.name is not None:
        return request.tools
    return tuple(tool for tool in request.tools if tool.name in allowed)


def build_json_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema for the answer, with the name that it must have; strict when it can be."""
    title = schema.get("title")
    name = _NOT_IN_A_NAME.sub("_", title)[:_MAX_NAME_CHARS] if isinstance(title, str) else ""
    return {"name": name or "answer", "schema": dict(schema), "strict": is_strict(schema)}


def is_strict(schema: Any) -> bool:
    """Whether a schema is one that strict modes accept: every object closed, every property required."""
    if isinstance(schema, list | tuple):
        return all(is_strict(part) for part in schema)
    if not isinstance(schema, Mapping):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        properties = schema.get("properties", {})
        is_closed = schema.get("additionalProperties") is False
        if not is_closed or set(schema.get("required", ())) != set(properties):
            return False
    return all(is_strict(part) for part in schema.values())
