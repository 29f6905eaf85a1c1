"""Values of `tool_choice` that are objects, in the Responses API. Fields are in reading order."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from holodeck.gateway.api.model import NAMED, ClosedModel, NonEmptyText, limit_length
from holodeck.lib.limits import MAX_REQUEST_TOOLS

ChoiceMode = Literal["none", "auto", "required"]


class NamedReference(ClosedModel):
    """One of your tools."""

    type: Literal["function", "custom"]
    name: NonEmptyText
    namespace: str | None = None


class MCPServerReference(ClosedModel):
    """A tool of an MCP server."""

    type: Literal["mcp"]
    server_label: NonEmptyText
    name: str | None = Field(default=None, description="Left out: any of its tools.")


class TypeReference(ClosedModel):
    """An action tool or a hosted tool, which its type names."""

    type: str


class AllowedTools(ClosedModel):
    """Only these tools."""

    type: Literal["allowed_tools"]
    mode: ChoiceMode | None = None
    tools: Annotated[
        list[Any],
        limit_length(MAX_REQUEST_TOOLS),
        WithJsonSchema(
            {"type": "array", "items": {NAMED: "ToolReference"}, "maxItems": MAX_REQUEST_TOOLS, "minItems": 1}
        ),
    ]
