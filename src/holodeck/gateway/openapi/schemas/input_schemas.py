"""Schemas of what a request contains: input items, content parts, tools and tool choices.

Limits and choices are those of the readers in `wire/request`, so that both always agree.
"""

from __future__ import annotations

from holodeck.gateway.api.model import APIModel, kinds_of
from holodeck.gateway.api.models.input_items import ITEM_MODELS, ItemReference
from holodeck.gateway.api.models.mcp_tool import TOOL_MODELS, NamedTools
from holodeck.gateway.api.models.parts import (
    InputAudio,
    InputFile,
    InputImage,
    InputText,
    SentOutputText,
    SentRefusal,
)
from holodeck.gateway.api.models.tool_choice import AllowedTools, MCPServerReference, NamedReference
from holodeck.gateway.api.models.tools import FunctionDefinition
from holodeck.gateway.openapi.schemas.action_schemas import action_reference_schema
from holodeck.gateway.openapi.schemas.hosted_schemas import hosted_reference_schema, hosted_tool_schema
from holodeck.gateway.openapi.schemas.schema import (
    Schema,
    any_of,
    body_of,
    choice,
    list_field_schemas,
    model_schema,
    model_schemas,
    ref,
    variants,
)
from holodeck.gateway.wire.request.tools import CHOICE_MODES, HOSTED_TOOL_TYPES

_PART_MODELS: tuple[type[APIModel], ...] = (
    InputText,
    InputImage,
    InputFile,
    InputAudio,
    SentOutputText,
    SentRefusal,
)
_TOOL_TYPES = {
    **{kind: model.__name__ for kind, model in TOOL_MODELS.items()},
    **dict.fromkeys(HOSTED_TOOL_TYPES, "HostedTool"),
}


def part_schemas() -> dict[str, Schema]:
    """Build the schemas of the parts of a message or of a tool's output."""
    kinds = {kinds_of(model)[0]: model.__name__ for model in _PART_MODELS}
    return {
        "InputPart": variants(kinds, "A part of a message or of a tool's output."),
        **model_schemas(_PART_MODELS),
    }


def item_schemas() -> dict[str, Schema]:
    """Build the schemas of the items of an input, by name."""
    models: dict[str, type[APIModel]] = {**ITEM_MODELS, "item_reference": ItemReference}
    return {
        "InputItem": variants(
            {kind: model.__name__ for kind, model in models.items()},
            "One item of an input. `type` may be left out in a message and a reference.",
        ),
        **model_schemas(models.values()),
    }


def tool_schemas() -> dict[str, Schema]:
    """Build the schemas of the tools of a request, and of the ways to choose among them."""
    named_tools = list_field_schemas(NamedTools)
    return {
        "Tool": variants(_TOOL_TYPES, "A tool that the model may call."),
        **model_schemas(TOOL_MODELS.values()),
        "FunctionDefinition": model_schema(FunctionDefinition),
        "HostedTool": hosted_tool_schema(),
        "ToolFilter": any_of(named_tools["tool_names"], body_of(named_tools), about="Some tools of a server."),
        **_tool_choice_schemas(),
    }


def _tool_choice_schemas() -> dict[str, Schema]:
    server = MCPServerReference.__name__
    return {
        server: model_schema(MCPServerReference),
        "ToolReference": any_of(
            model_schema(NamedReference), ref(server), action_reference_schema(), hosted_reference_schema()
        ),
        "ToolChoice": any_of(
            choice(CHOICE_MODES),
            ref("ToolReference"),
            model_schema(AllowedTools),
            about="Whether the model may, must or must not call tools, and which.",
        ),
    }
