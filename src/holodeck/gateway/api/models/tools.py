"""The tools of a request to `POST /v1/responses` that the client runs, by their `type`. Fields are in reading order.

Declared MCP servers are in `mcp_tool.py`. Hosted tools have no declared fields: all are settings for the model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Discriminator, Field, StringConstraints, Tag, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from holodeck.gateway.api.field_rows import RequestField, Treatment, everywhere
from holodeck.gateway.api.model import (
    NAMED,
    NO_VALUE,
    ClosedModel,
    accept_only,
    declare_field,
    invalid,
    limit_length,
)
from holodeck.gateway.api.models.create_response import FUNCTION
from holodeck.lib.json.schema import SchemaBudget, SchemaError, SchemaTooLargeError
from holodeck.lib.limits import MAX_INPUT_ITEMS, MAX_REQUEST_TOOLS, MAX_SHOWN_CHARS, MAX_TOOL_NAME_CHARS
from holodeck.lib.record import record

FUNCTION_NAME = re.compile("[a-zA-Z0-9_-]+")
MAX_DISPLAY_PIXELS = 100_000
NO_SEARCH = "This gateway offers all tools at once."
# Callers of a tool, of which there is one.
_MAX_CALLERS = 1_000
_IN_ORDER = "Calls are answered in order."
_NOT_CHECKED = "What a function returns is not checked here."
_NO_CONTAINERS = "This gateway has no containers: your program runs the commands ('type': 'local')."
_ACTIONS = "The model gets a function for its actions. Your program runs it."
CUSTOM = {"type": "custom", "name": "note", "description": "Takes a note."}
SEARCH = {"type": "tool_search", "execution": "client", "description": "Finds tools."}


@record
class ToolContext:
    """The state of a request of which a tool is read."""

    schemas: SchemaBudget
    is_found: bool = False
    """True for tools that a tool search of the client has found."""


def tool_row(treatment: Treatment, tool: Mapping[str, Any], about: str) -> RequestField:
    """Build the row of a type of tools, from an example."""
    return RequestField(
        path="tools[].type",
        treatment=treatment,
        about=about,
        example={"tools": [tool]},
        value=tool["type"],
        sent_as=everywhere("tools") if treatment == "passed_on" else {},
    )


def refused_tool_field(
    tool: Mapping[str, Any], key: str, value: Any, reason: str, *, harmless: Any = None
) -> RequestField:
    """Build the row of a field of a tool that is refused."""
    return RequestField(
        path=f"tools[].{key}",
        treatment="refused",
        about=reason,
        example={"tools": [{**tool, key: value}]},
        harmless=harmless,
    )


def declare_type(treatment: Treatment, tool: Mapping[str, Any], about: str) -> Any:
    """Declare the type of a tool, with its row."""
    return declare_field(tool_row(treatment, tool, about), is_required=True)


def _check_schema(schema: dict[str, Any], info: ValidationInfo[Any]) -> dict[str, Any]:
    try:
        info.context.schemas.add(schema)
    except SchemaError as error:
        code = "schema_above_max_size" if isinstance(error, SchemaTooLargeError) else "invalid_json_schema"
        raise invalid(f"{error}.", code) from None
    return schema


def _check_deferred(is_deferred: bool, info: ValidationInfo[Any]) -> bool:
    if is_deferred and not info.context.is_found:
        raise PydanticCustomError("unsupported", NO_SEARCH)
    return is_deferred


def _check_callers(callers: list[str]) -> list[str]:
    if callers != ["direct"]:
        raise PydanticCustomError("listed", "{expected}", {"expected": "'direct'"})
    return callers


def _check_place(kind: str) -> str:
    if kind != "local":
        reason = f"It is {kind[:MAX_SHOWN_CHARS]!r}. {_NO_CONTAINERS}"
        raise PydanticCustomError("unsupported", "{reason}", {"reason": reason})
    return kind


def _refuse_kind(kind: Any) -> Any:
    raise PydanticCustomError("listed", "{expected}", {"expected": "'function' and 'custom'"})


ShortText = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TOOL_NAME_CHARS)]
FunctionName = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_TOOL_NAME_CHARS, pattern=f"^{FUNCTION_NAME.pattern}$")
]
DirectCallers = Annotated[
    list[str],
    limit_length(_MAX_CALLERS),
    AfterValidator(_check_callers),
    WithJsonSchema({"type": "array", "items": {"type": "string", "enum": ["direct"]}}),
]
OnlyFalse = WithJsonSchema({"const": False})
CheckedSchema = Annotated[dict[str, Any], AfterValidator(_check_schema), Field(description="A JSON Schema.")]
_Description = Annotated[str, Field(description="When and how to use it, for the model.")]
_Strict = Annotated[bool, Field(description="The model must follow `parameters` exactly.")]
_Deferred = Annotated[
    bool, AfterValidator(_check_deferred), Field(description="Only for tools that a tool search has found.")
]
Pixels = Annotated[int, Field(ge=1, le=MAX_DISPLAY_PIXELS)]


class FunctionDefinition(ClosedModel):
    name: FunctionName
    description: _Description | None = None
    parameters: CheckedSchema | None = None
    strict: _Strict | None = None


class FunctionTool(ClosedModel):
    """A function that your program runs."""

    type: Literal["function"] = declare_type("passed_on", FUNCTION, "Your program runs it.")
    defer_loading: _Deferred | None = declare_field(
        refused_tool_field(FUNCTION, "defer_loading", True, NO_SEARCH, harmless=False)
    )
    is_async: Annotated[bool, accept_only(False, _IN_ORDER), OnlyFalse] | None = declare_field(
        refused_tool_field(FUNCTION, "async", True, _IN_ORDER, harmless=False), alias="async"
    )
    output_schema: Annotated[Any, accept_only(None, _NOT_CHECKED), NO_VALUE] = declare_field(
        refused_tool_field(FUNCTION, "output_schema", {}, _NOT_CHECKED)
    )
    allowed_callers: DirectCallers | None = declare_field(
        refused_tool_field(
            FUNCTION, "allowed_callers", ["programmatic"], "Supported values are: 'direct'.", harmless=["direct"]
        )
    )
    name: FunctionName
    description: _Description | None = None
    parameters: CheckedSchema | None = None
    strict: _Strict | None = None


class CustomTool(ClosedModel):
    """A tool of your program that takes text instead of arguments."""

    type: Literal["custom"] = declare_type(
        "passed_on", CUSTOM, "The model gets a function with one text. Your program runs it."
    )
    format: dict[str, Any] | None = Field(default=None, description="Such as a grammar.")
    defer_loading: _Deferred | None = None
    name: FunctionName
    description: _Description | None = None
    parameters: CheckedSchema | None = None
    strict: _Strict | None = None


class _OtherTool(ClosedModel):
    """A tool that cannot be part of a namespace."""

    type: Annotated[Any, AfterValidator(_refuse_kind)]


def _kind_in_namespace(tool: Any) -> str:
    kind = tool.get("type") if isinstance(tool, dict) else None
    return f"~{kind}" if kind in ("function", "custom") else "~other"


class NamespaceTool(ClosedModel):
    """Tools of your program under a common name."""

    type: Literal["namespace"] = declare_type(
        "passed_on", {"type": "namespace", "name": "crm", "tools": [FUNCTION]}, "The model gets its tools."
    )
    name: ShortText
    description: str | None = None
    tools: (
        Annotated[
            list[
                Annotated[
                    Annotated[FunctionTool, Tag("~function")]
                    | Annotated[CustomTool, Tag("~custom")]
                    | Annotated[_OtherTool, Tag("~other")],
                    Discriminator(_kind_in_namespace),
                    WithJsonSchema({NAMED: [["function", "FunctionTool"], ["custom", "CustomTool"]]}),
                ]
            ],
            limit_length(MAX_REQUEST_TOOLS),
            Field(max_length=MAX_REQUEST_TOOLS),
        ]
        | None
    ) = None


class ToolSearchTool(ClosedModel):
    """A search for more tools, which your program makes."""

    type: Literal["tool_search"] = declare_type(
        "passed_on", SEARCH, "Only a search that your program makes: its `execution` is `client`."
    )
    execution: Literal["client"]
    description: str | None = None
    parameters: CheckedSchema | None = None


class Skill(ClosedModel):
    """A skill that a file in the environment of a shell describes."""

    name: str
    description: str
    path: str


class ShellEnvironment(ClosedModel):
    """The place where the commands of a shell run."""

    type: Annotated[str, AfterValidator(_check_place), WithJsonSchema({"type": "string", "const": "local"})]
    skills: Annotated[list[Skill], limit_length(MAX_INPUT_ITEMS)] | None = None


class ShellTool(ClosedModel):
    """A shell, in which your program runs commands."""

    type: Literal["shell"] = declare_type("passed_on", {"type": "shell"}, _ACTIONS)
    allowed_callers: DirectCallers | None = None
    environment: ShellEnvironment | None = None


class LocalShellTool(ClosedModel):
    """Single commands, which your program runs."""

    type: Literal["local_shell"] = declare_type("passed_on", {"type": "local_shell"}, _ACTIONS)
    allowed_callers: DirectCallers | None = None


class ApplyPatchTool(ClosedModel):
    """Changes of files, which your program makes."""

    type: Literal["apply_patch"] = declare_type("passed_on", {"type": "apply_patch"}, _ACTIONS)
    allowed_callers: DirectCallers | None = None


class ComputerTool(ClosedModel):
    """A mouse, a keyboard and a screen, which your program controls."""

    type: Literal["computer"] = declare_type("passed_on", {"type": "computer"}, _ACTIONS)
    allowed_callers: DirectCallers | None = None


class ComputerUsePreviewTool(ClosedModel):
    """The older form of `computer`."""

    type: Literal["computer_use_preview"] = declare_type(
        "passed_on",
        {"type": "computer_use_preview", "display_width": 800, "display_height": 600, "environment": "browser"},
        _ACTIONS,
    )
    allowed_callers: DirectCallers | None = None
    display_width: Pixels
    display_height: Pixels
    environment: Literal["windows", "mac", "linux", "ubuntu", "browser"]


ActionToolModel = ShellTool | LocalShellTool | ApplyPatchTool | ComputerTool | ComputerUsePreviewTool


ACTION_MODELS: Mapping[str, type[ActionToolModel]] = {
    get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(ActionToolModel)
}
