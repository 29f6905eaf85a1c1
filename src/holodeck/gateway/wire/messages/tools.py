"""`tools` and `mcp_servers` of the Messages API.

A tool is one of the client (`custom`, or one that Anthropic's API defines), one that Anthropic's servers run and an MCP
tool can run here (`web_search`, `web_fetch`), or all tools of a declared MCP server. Other types are refused by name.

A server of `mcp_servers` is a declaration as `{"type": "mcp"}` of the Responses API makes it. The API has no approvals,
so none is asked for what the client declares; what the operator wants approved is refused, as at
`/v1/chat/completions`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from holodeck.gateway.api.models.message_blocks import WEB_TOOLS
from holodeck.gateway.api.models.tools import FUNCTION_NAME
from holodeck.gateway.wire.messages.client_tools import NATIVE_TYPE, read_client_tool, refuse_deferred
from holodeck.gateway.wire.messages.content_blocks import CACHE_FIELD
from holodeck.gateway.wire.messages.field_table import ALL_AT_ONCE, NO_OWN_TOOLS
from holodeck.gateway.wire.request.json_fields import JSONFields, refuse, refuse_choice, refuse_unsupported
from holodeck.gateway.wire.request.mcp_declarations import (
    ApprovalRule,
    MCPDeclaration,
    ToolFilter,
    compile_patterns,
    read_patterns,
    read_server_url,
    read_token,
)
from holodeck.gateway.wire.request.schemas import RequestSchemas
from holodeck.gateway.wire.request.tools import HostedTool, RequestTools
from holodeck.lib.limits import MAX_TOOL_NAME_CHARS, MAX_TOOLS
from holodeck.lib.record import record
from holodeck.lib.secret import Secret
from holodeck.models.model_io import ToolSpec

TOOLSET = "mcp_toolset"
TOOL_TYPES = ("custom", "bash_*", "text_editor_*", "computer_*", "memory_*", TOOLSET)
"""The types of tools, where `*` is the day of a version."""
HOSTED_TYPE = re.compile(f"({'|'.join(WEB_TOOLS)})_[0-9]{{8}}")
"""Types of tools that Anthropic's servers run. Their names are keys of `builtin_tools`."""


@record
class _Toolset:
    """The tools of a declared server that the model gets."""

    server_name: str
    allowed: ToolFilter | None
    param: str


def read_message_tools(tools: Sequence[object], servers: Sequence[object]) -> RequestTools:
    """Read `tools` and `mcp_servers`. Raises `BadRequestError`, which names the field."""
    schemas = RequestSchemas()
    functions: list[ToolSpec] = []
    hosted: list[HostedTool] = []
    toolsets: list[_Toolset] = []
    for index, value in enumerate(tools):
        entry = JSONFields(value, f"tools[{index}]")
        kind = entry.get_text("type") or "custom"
        if kind == "custom":
            functions.append(_read_custom_tool(entry, schemas))
        elif NATIVE_TYPE.fullmatch(kind):
            functions.append(read_client_tool(entry, kind))
        elif found := HOSTED_TYPE.fullmatch(kind):
            hosted.append(_read_hosted_tool(entry, kind, found[1]))
        elif kind == TOOLSET:
            toolsets.append(_read_toolset(entry))
        else:
            refuse_choice(entry.path_of("type"), kind, TOOL_TYPES, advice=NO_OWN_TOOLS)
    names = [*(spec.name for spec in functions), *(tool.name for tool in hosted)]
    if len(set(names)) < len(names):
        refuse("Tool names must be unique: a name is twice in 'tools'.", "tools", "duplicate_value")
    return RequestTools(
        functions=tuple(functions), declarations=_read_mcp_servers(servers, toolsets), hosted=tuple(hosted)
    )


def _read_custom_tool(entry: JSONFields, schemas: RequestSchemas) -> ToolSpec:
    name, where = entry.require_text("name", max_length=MAX_TOOL_NAME_CHARS, may_be_empty=False), entry.path_of("name")
    if not FUNCTION_NAME.fullmatch(name):
        refuse(f"Invalid '{where}': string does not match pattern. Expected letters, digits, '_' and '-'.", where)
    refuse_deferred(entry)
    # A hint for how an input is streamed: here as soon as the model writes it.
    entry.get_flag("eager_input_streaming")
    schema = schemas.read(entry, "input_schema")
    if schema is None:
        entry.refuse_missing("input_schema")
    examples = entry.get_array("input_examples")
    spec = ToolSpec(
        name=name,
        description=entry.get_text("description") or "",
        parameters={**schema, "examples": examples} if examples else schema,
        strict=entry.get_flag("strict") or False,
        cache_mark=entry.get_cache_mark(CACHE_FIELD),
    )
    entry.refuse_unread()
    return spec


def _read_hosted_tool(entry: JSONFields, kind: str, name: str) -> HostedTool:
    """Read a tool that an MCP tool runs here. Its settings are for the model, which follows them where it can."""
    refuse_deferred(entry)
    left_out = ("type", "name", CACHE_FIELD, "defer_loading", "allowed_callers")
    settings = {key: value for key, value in entry.value.items() if key not in left_out and value is not None}
    return HostedTool(name=name, kind=kind, settings=settings, param=entry.path, known_types=TOOL_TYPES)


def _read_toolset(entry: JSONFields) -> _Toolset:
    """Read a tool of the type `mcp_toolset`."""
    entry.pop("type")
    # A mark is for the tools of the client: those of a server are listed by the gateway.
    entry.get_mapping("cache_control")
    name = entry.require_text("mcp_server_name", max_length=MAX_TOOL_NAME_CHARS, may_be_empty=False)
    is_default_enabled = _read_config(entry.get_object("default_config"))
    configs, where = entry.get_mapping("configs") or {}, entry.path_of("configs")
    if len(configs) > MAX_TOOLS:
        refuse(f"Invalid '{where}': at most {MAX_TOOLS} tools.", where, "array_above_max_length")
    enabled = {tool: _read_config(JSONFields(each, f"{where}.{tool}")) for tool, each in configs.items()}
    entry.refuse_present("The gateway asks the server for its tools.", "tools")
    entry.refuse_unread()
    exceptions = [tool for tool, is_enabled in enabled.items() if is_enabled is not is_default_enabled]
    patterns = compile_patterns(exceptions, name, where)
    if not is_default_enabled:
        return _Toolset(server_name=name, allowed=ToolFilter(patterns=patterns), param=entry.path)
    return _Toolset(server_name=name, allowed=ToolFilter(excluded=patterns) if exceptions else None, param=entry.path)


def _read_mcp_servers(servers: Sequence[object], toolsets: Sequence[_Toolset]) -> tuple[MCPDeclaration, ...]:
    """Read `mcp_servers`. `toolsets`: those of the request."""
    by_server: Mapping[str, _Toolset] = {each.server_name: each for each in toolsets}
    declarations = []
    for index, value in enumerate(servers):
        declaration = _read_server(JSONFields(value, f"mcp_servers[{index}]"), by_server)
        if declaration is not None:
            declarations.append(declaration)
    names = {each.get("name") for each in servers if isinstance(each, dict)}
    for toolset in toolsets:
        if toolset.server_name not in names:
            where = f"{toolset.param}.mcp_server_name"
            refuse(f"Invalid '{where}': there is no such server in 'mcp_servers'.", where)
    if len({each.server_label for each in declarations}) < len(declarations):
        refuse("Duplicate name in 'mcp_servers'.", "mcp_servers", "duplicate_value")
    return tuple(declarations)


def _read_server(entry: JSONFields, toolsets: Mapping[str, _Toolset]) -> MCPDeclaration | None:
    """Read a server. None: the request wants none of its tools."""
    if entry.get_choice("type", ("url",)) is None:
        entry.refuse_missing("type")
    name = entry.require_text("name", max_length=MAX_TOOL_NAME_CHARS, may_be_empty=False)
    url = read_server_url(entry, "url") or entry.refuse_missing("url")
    token = read_token(entry, "authorization_token")
    allowed, is_enabled = _read_tool_configuration(entry, name)
    entry.refuse_unread()
    if name in toolsets:
        allowed = toolsets[name].allowed
    return (
        MCPDeclaration(
            server_label=name,
            server_url=url,
            authorization=None if token is None else Secret(token),
            allowed=allowed,
            approval=ApprovalRule(default="never"),
            param=entry.path,
            url_field="url",
        )
        if is_enabled
        else None
    )


def _read_tool_configuration(entry: JSONFields, server: str) -> tuple[ToolFilter | None, bool]:
    """Read the older form of a toolset, inside its server."""
    inner = entry.get_object("tool_configuration")
    if inner is None:
        return None, True
    patterns, is_enabled = read_patterns(inner, "allowed_tools", server), inner.get_flag("enabled") is not False
    inner.refuse_unread()
    return None if patterns is None else ToolFilter(patterns=patterns), is_enabled


def _read_config(config: JSONFields | None) -> bool:
    """Read whether a tool, or all of a server, is offered."""
    if config is None:
        return True
    if config.get_flag("defer_loading"):
        refuse_unsupported(config.path_of("defer_loading"), ALL_AT_ONCE)
    is_enabled = config.get_flag("enabled") is not False
    config.refuse_unread()
    return is_enabled
