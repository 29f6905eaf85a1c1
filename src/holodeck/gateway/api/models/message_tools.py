"""The entries of `tools` and `mcp_servers` in a request to `POST /v1/messages`. Fields are in reading order.

No error of these models has the value of a credential.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from holodeck.gateway.api.model import (
    AS_MANY_AS_ITEMS,
    NO_VALUE,
    APIModel,
    ClosedModel,
    LongText,
    accept_only,
    invalid,
    refuse_value,
    wrong_type,
)
from holodeck.gateway.api.models.mcp_tool import ToolNames, check_server_url, check_token
from holodeck.gateway.api.models.message_blocks import CACHE_HINT, WEB_TOOLS
from holodeck.gateway.api.models.tools import (
    FUNCTION_NAME,
    NO_SEARCH,
    CheckedSchema,
    DirectCallers,
    FunctionName,
    OnlyFalse,
    Pixels,
    ShortText,
)
from holodeck.lib.limits import MAX_TOOL_NAME_CHARS, MAX_TOOLS

NO_OWN_TOOLS = "This gateway runs none of Anthropic's own tools; an MCP server may do the same."
TOOLSET = "mcp_toolset"
NATIVE_TYPE = re.compile(r"(bash|text_editor|computer|memory)_[0-9]{8}")
"""Types of tools that Anthropic's API defines and the client runs: a name, and the day of the version."""
HOSTED_TYPE = re.compile(f"({'|'.join(WEB_TOOLS)})_[0-9]{{8}}")
"""Types of tools that Anthropic's servers run. Their names are keys of `builtin_tools`."""
_ANY_OBJECTS = WithJsonSchema({"type": "array", "items": {"type": "object"}})
_ANY_VALUES = WithJsonSchema({"type": "array", "items": {}})
_NotDeferred = Annotated[bool, accept_only(False, NO_SEARCH), OnlyFalse]
_CacheMark = Annotated[dict[str, Any], Field(description=CACHE_HINT)]


def _dated_type(pattern: re.Pattern[str], example: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern.pattern}$", "examples": [example]})


def _check_native_name(name: str, info: ValidationInfo) -> str:
    if not FUNCTION_NAME.fullmatch(name):
        family = info.data["type"].rpartition("_")[0]
        raise PydanticCustomError("listed", "", {"expected": repr(family)})
    return name


def _limit_configs(configs: Any) -> Any:
    if isinstance(configs, dict) and len(configs) > MAX_TOOLS:
        raise invalid(f"at most {MAX_TOOLS} tools.", "array_above_max_length")
    return configs


def _require_object(value: Any) -> Any:
    if value is None:
        raise wrong_type("an object", value)
    return value


class MessagesTool(ClosedModel):
    """A function that your program runs."""

    type: Annotated[str, WithJsonSchema({"type": "string", "const": "custom"})] | None = None
    name: FunctionName
    defer_loading: _NotDeferred | None = None
    allowed_callers: DirectCallers | None = None
    eager_input_streaming: bool | None = Field(
        default=None, description="Accepted without effect: an input is streamed as the model writes it."
    )
    input_schema: CheckedSchema
    input_examples: Annotated[list[Any], AS_MANY_AS_ITEMS, _ANY_OBJECTS] | None = None
    description: str | None = None
    strict: bool | None = None
    cache_control: _CacheMark | None = None


class NativeTool(ClosedModel):
    """A tool that you run and Anthropic's API defines. Its models get it as it is, others as a function."""

    type: Annotated[str, _dated_type(NATIVE_TYPE, "bash_20250124")]
    name: Annotated[
        str,
        StringConstraints(min_length=1, max_length=MAX_TOOL_NAME_CHARS),
        AfterValidator(_check_native_name),
        WithJsonSchema({"type": "string", "maxLength": MAX_TOOL_NAME_CHARS, "pattern": f"^{FUNCTION_NAME.pattern}$"}),
    ]
    defer_loading: _NotDeferred | None = None
    allowed_callers: DirectCallers | None = None


class OtherNativeTool(NativeTool):
    """A shell or a memory."""

    strict: bool | None = None
    input_examples: Annotated[list[Any], AS_MANY_AS_ITEMS, _ANY_VALUES] | None = None
    cache_control: _CacheMark | None = None


class EditorTool(NativeTool):
    """A text editor."""

    max_characters: Annotated[int, Field(ge=1)] | None = None
    strict: bool | None = None
    input_examples: Annotated[list[Any], AS_MANY_AS_ITEMS, _ANY_VALUES] | None = None
    cache_control: _CacheMark | None = None


class ComputerTool(NativeTool):
    """A computer with its display."""

    display_width_px: Pixels
    display_height_px: Pixels
    display_number: Annotated[int, Field(ge=0)] | None = None
    enable_zoom: bool | None = None
    strict: bool | None = None
    input_examples: Annotated[list[Any], AS_MANY_AS_ITEMS, _ANY_VALUES] | None = None
    cache_control: _CacheMark | None = None


class MessagesHostedTool(APIModel):
    """A tool that Anthropic's servers run. Here an MCP tool does, if the operator has mapped one to it."""

    type: Annotated[str, _dated_type(HOSTED_TYPE, "web_search_20250305")]
    defer_loading: _NotDeferred | None = None
    allowed_callers: DirectCallers | None = None
    cache_control: Annotated[Any, WithJsonSchema({"type": "object", "description": CACHE_HINT})] = None


class ToolConfig(ClosedModel):
    """Whether a tool, or all of a server, is offered."""

    defer_loading: _NotDeferred | None = None
    enabled: bool | None = None


class MessagesServerTool(ClosedModel):
    """Which tools of a server the model gets. Left out: all."""

    type: Literal["mcp_toolset"]
    # A mark is for the tools of the client: those of a server are listed by the gateway.
    cache_control: dict[str, Any] | None = Field(default=None, description="Accepted without effect.")
    mcp_server_name: ShortText = Field(description="A name of `mcp_servers`.")
    default_config: ToolConfig | None = None
    configs: (
        Annotated[dict[str, Annotated[ToolConfig, BeforeValidator(_require_object)]], BeforeValidator(_limit_configs)]
        | None
    ) = Field(default=None, description="By the names of tools.")
    tools: Annotated[Any, refuse_value("The gateway asks the server for its tools."), NO_VALUE] = None


class ServerToolConfiguration(ClosedModel):
    """The older form of a toolset, inside its server."""

    allowed_tools: Annotated[ToolNames, WithJsonSchema({"type": "array", "items": {"type": "string"}})] | None = None
    enabled: bool | None = None


class MessagesServer(ClosedModel):
    """An MCP server by its URL."""

    type: Literal["url"]
    name: ShortText
    url: Annotated[LongText, AfterValidator(check_server_url)] = Field(repr=False)
    authorization_token: Annotated[str, AfterValidator(check_token)] | None = Field(
        default=None, repr=False, description="Sent to the server. Never stored."
    )
    tool_configuration: ServerToolConfiguration | None = None
