"""`tools` and `mcp_servers` of the Messages API.

A tool is one of the client (`custom`, or one that Anthropic's API defines), one that Anthropic's servers run and an MCP
tool can run here (`web_search`, `web_fetch`), or all tools of a declared MCP server. Other types are refused by name.
An Anthropic model gets a tool that its API defines as the client has sent it, because it knows the tool. Every other
model gets a function of the same name, whose arguments are the input that the API documents.

A server of `mcp_servers` is a declaration as `{"type": "mcp"}` of the Responses API makes it. The API has no approvals,
so none is asked for what the client declares; what the operator wants approved is refused, as at
`/v1/chat/completions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holodeck.gateway.api.models.message_tools import (
    HOSTED_TYPE,
    NATIVE_TYPE,
    NO_OWN_TOOLS,
    TOOLSET,
    ComputerTool,
    EditorTool,
    MessagesHostedTool,
    MessagesServer,
    MessagesServerTool,
    MessagesTool,
    NativeTool,
    OtherNativeTool,
    ServerToolConfiguration,
    ToolConfig,
)
from holodeck.gateway.api.models.tools import ToolContext
from holodeck.gateway.wire.messages.content_blocks import CACHE_FIELD
from holodeck.gateway.wire.request.json_fields import refuse, refuse_choice, refuse_type
from holodeck.gateway.wire.request.mcp_declarations import (
    ApprovalRule,
    MCPDeclaration,
    ToolFilter,
    compile_patterns,
)
from holodeck.gateway.wire.request.schemas import RequestSchemas
from holodeck.gateway.wire.request.tools import HostedTool, RequestTools
from holodeck.gateway.wire.request.validation import read_body
from holodeck.lib.record import record
from holodeck.lib.secret import Secret
from holodeck.models.model_io import ToolSpec
from holodeck.tools.mcp.tool_patterns import ToolPatterns

TOOL_TYPES = ("custom", "bash_*", "text_editor_*", "computer_*", "memory_*", TOOLSET)
"""The types of tools, where `*` is the day of a version."""


@record
class _Toolset:
    """The tools of a declared server that the model gets."""

    server_name: str
    allowed: ToolFilter | None
    param: str


def read_message_tools(tools: Sequence[object], servers: Sequence[object]) -> RequestTools:
    """Read `tools` and `mcp_servers`. Raises `BadRequestError`, which names the field."""
    context = ToolContext(schemas=RequestSchemas().budget)
    functions: list[ToolSpec] = []
    hosted: list[HostedTool] = []
    toolsets: list[_Toolset] = []
    for index, value in enumerate(tools):
        where = f"tools[{index}]"
        if not isinstance(value, dict):
            refuse_type(where, "an object", value)
        kind = _find_type(value, where)
        if kind == "custom":
            functions.append(_build_custom_tool(read_body(MessagesTool, value, where, context)))
        elif NATIVE_TYPE.fullmatch(kind):
            functions.append(_read_client_tool(value, where, kind))
        elif found := HOSTED_TYPE.fullmatch(kind):
            hosted.append(_read_hosted_tool(value, where, kind, found[1]))
        elif kind == TOOLSET:
            toolsets.append(_build_toolset(read_body(MessagesServerTool, value, where), where))
        else:
            refuse_choice(f"{where}.type", kind, TOOL_TYPES, advice=NO_OWN_TOOLS)
    names = [*(spec.name for spec in functions), *(tool.name for tool in hosted)]
    if len(set(names)) < len(names):
        refuse("Tool names must be unique: a name is twice in 'tools'.", "tools", "duplicate_value")
    return RequestTools(
        functions=tuple(functions), declarations=_read_mcp_servers(servers, toolsets), hosted=tuple(hosted)
    )


def _find_type(value: Mapping[str, object], where: str) -> str:
    kind = value.get("type")
    if kind is not None and not isinstance(kind, str):
        refuse_type(f"{where}.type", "a string", kind)
    return kind or "custom"


def _build_custom_tool(tool: MessagesTool) -> ToolSpec:
    schema, examples = tool.input_schema, tool.input_examples
    return ToolSpec(
        name=tool.name,
        description=tool.description or "",
        parameters={**schema, "examples": examples} if examples else schema,
        strict=tool.strict or False,
        cache_mark=None if tool.cache_control is None else {CACHE_FIELD: tool.cache_control},
    )


def _read_hosted_tool(value: object, where: str, kind: str, name: str) -> HostedTool:
    """Read a tool that an MCP tool runs here. Its settings are for the model, which follows them where it can."""
    read = read_body(MessagesHostedTool, value, where).model_extra or {}
    settings = {key: setting for key, setting in read.items() if key != "name" and setting is not None}
    return HostedTool(name=name, kind=kind, settings=settings, param=where, known_types=TOOL_TYPES)


def _build_toolset(tool: MessagesServerTool, where: str) -> _Toolset:
    name, is_default_enabled = tool.mcp_server_name, _is_enabled(tool.default_config)
    configs = (tool.configs or {}).items()
    exceptions = [each for each, config in configs if _is_enabled(config) is not is_default_enabled]
    patterns = compile_patterns(exceptions, name, f"{where}.configs")
    if not is_default_enabled:
        return _Toolset(server_name=name, allowed=ToolFilter(patterns=patterns), param=where)
    return _Toolset(server_name=name, allowed=ToolFilter(excluded=patterns) if exceptions else None, param=where)


def _is_enabled(config: ToolConfig | ServerToolConfiguration | None) -> bool:
    return config is None or config.enabled is not False


def _read_mcp_servers(servers: Sequence[object], toolsets: Sequence[_Toolset]) -> tuple[MCPDeclaration, ...]:
    """Read `mcp_servers`. `toolsets`: those of the request."""
    by_server: Mapping[str, _Toolset] = {each.server_name: each for each in toolsets}
    declarations = []
    for index, value in enumerate(servers):
        where = f"mcp_servers[{index}]"
        server = read_body(MessagesServer, value, where)
        if _is_enabled(server.tool_configuration):
            declarations.append(_build_declaration(server, where, by_server))
    names = {each.get("name") for each in servers if isinstance(each, dict)}
    for toolset in toolsets:
        if toolset.server_name not in names:
            where = f"{toolset.param}.mcp_server_name"
            refuse(f"Invalid '{where}': there is no such server in 'mcp_servers'.", where)
    if len({each.server_label for each in declarations}) < len(declarations):
        refuse("Duplicate name in 'mcp_servers'.", "mcp_servers", "duplicate_value")
    return tuple(declarations)


def _build_declaration(server: MessagesServer, where: str, toolsets: Mapping[str, _Toolset]) -> MCPDeclaration:
    token, inner = server.authorization_token, server.tool_configuration
    allowed = None
    if server.name in toolsets:
        allowed = toolsets[server.name].allowed
    elif inner is not None and inner.allowed_tools is not None:
        allowed = ToolFilter(patterns=ToolPatterns(inner.allowed_tools, server.name))
    return MCPDeclaration(
        server_label=server.name,
        server_url=server.url,
        authorization=None if token is None else Secret(token),
        allowed=allowed,
        approval=ApprovalRule(default="never"),
        param=where,
        url_field="url",
    )


Schema = dict[str, Any]
_MODELS: Mapping[str, type[NativeTool]] = {"text_editor": EditorTool, "computer": ComputerTool}
_COMPUTER_ACTIONS = (
    *("screenshot", "left_click", "right_click", "middle_click", "double_click", "triple_click", "mouse_move"),
    *("left_click_drag", "left_mouse_down", "left_mouse_up", "scroll", "type", "key", "hold_key", "wait"),
    *("cursor_position", "zoom"),
)


@record
class _ClientTool:
    """The description of the tool for models that do not know it."""

    description: str
    parameters: Mapping[str, Any]


def _object(properties: dict[str, Schema], *required: str) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _text(about: str) -> Schema:
    return {"type": "string", "description": about}


def _number(about: str) -> Schema:
    return {"type": "integer", "description": about}


def _choice(about: str, *values: str) -> Schema:
    return {"type": "string", "enum": list(values), "description": about}


def _numbers(about: str) -> Schema:
    return {"type": "array", "items": {"type": "integer"}, "description": about}


_FILE_EDITS: dict[str, Schema] = {
    "path": _text("The file or folder."),
    "view_range": _numbers("For view: the first and the last line; -1 is the end of the file."),
    "file_text": _text("For create: the whole content."),
    "old_str": _text("For str_replace: the text to replace. It is in the file exactly once."),
    "new_str": _text("For str_replace: the text instead."),
    "insert_line": _number("For insert: the line after which the text comes; 0 is the beginning."),
    "insert_text": _text("For insert: the text."),
}
_TOOLS: Mapping[str, _ClientTool] = {
    "bash": _ClientTool(
        description="Runs a command in a bash session that goes on between calls, and returns its output.",
        parameters=_object(
            {
                "command": _text("The command. Left out only for a restart."),
                "restart": {"type": "boolean", "description": "True: start a new session."},
            }
        ),
    ),
    "text_editor": _ClientTool(
        description="Shows, creates and changes files.",
        parameters=_object(
            {
                "command": _choice("What to do.", "view", "create", "str_replace", "insert"),
                **_FILE_EDITS,
            },
            "command",
            "path",
        ),
    ),
    "computer": _ClientTool(
        description="Controls a computer by its mouse and keyboard, and takes screenshots.",
        parameters=_object(
            {
                "action": _choice("What to do.", *_COMPUTER_ACTIONS),
                "coordinate": _numbers("Pixels from the left and from the top."),
                "start_coordinate": _numbers("For left_click_drag: where it begins."),
                "text": _text("For type: the text. For key and hold_key: the keys, such as 'ctrl+s'."),
                "scroll_direction": _choice("For scroll.", "up", "down", "left", "right"),
                "scroll_amount": _number("For scroll: how many clicks of the wheel."),
                "duration": {"type": "number", "description": "For wait and hold_key: seconds."},
                "region": _numbers("For zoom: the left, top, right and bottom edge, in pixels."),
            },
            "action",
        ),
    ),
    "memory": _ClientTool(
        description="Stores what is to be remembered in files below /memories, and reads it. Look there first.",
        parameters=_object(
            {
                "command": _choice("What to do.", "view", "create", "str_replace", "insert", "delete", "rename"),
                **_FILE_EDITS,
                "old_path": _text("For rename: the path now."),
                "new_path": _text("For rename: the path then."),
            },
            "command",
        ),
    ),
}


def _read_client_tool(value: Mapping[str, Any], where: str, kind: str) -> ToolSpec:
    """Read a tool whose type matches `NATIVE_TYPE`. Raises `BadRequestError`, which names the field."""
    family = kind.rpartition("_")[0]
    known, about = _TOOLS[family], ""
    tool = read_body(_MODELS.get(family, OtherNativeTool), value, where)
    if isinstance(tool, ComputerTool):
        about = f" The display is {tool.display_width_px} pixels wide and {tool.display_height_px} high."
    native = {key: each for key, each in value.items() if key != CACHE_FIELD and each is not None}
    return ToolSpec(
        name=tool.name,
        description=known.description + about,
        parameters=known.parameters,
        cache_mark=None if value.get(CACHE_FIELD) is None else {CACHE_FIELD: value[CACHE_FIELD]},
        native={"anthropic": native},
    )
