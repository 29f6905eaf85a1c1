"""`mcp_servers` of the Messages API, with the tools of the type `mcp_toolset`: servers that a request declares.

Each is a declaration as `{"type": "mcp"}` of the Responses API makes it. The API has no approvals, so none is asked for
what the client declares; what the operator wants approved is refused, as at `/v1/chat/completions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holodeck.gateway.wire.messages.field_table import ALL_AT_ONCE
from holodeck.gateway.wire.request.json_fields import JSONFields, refuse, refuse_unsupported
from holodeck.gateway.wire.request.mcp_declarations import (
    ApprovalRule,
    MCPDeclaration,
    ToolFilter,
    compile_patterns,
    read_patterns,
    read_server_url,
    read_token,
)
from holodeck.lib.limits import MAX_REQUEST_TOOLS, MAX_TOOL_NAME_CHARS, MAX_TOOLS
from holodeck.lib.record import record
from holodeck.lib.secret import Secret

TOOLSET = "mcp_toolset"


@record
class Toolset:
    """Which tools of a declared server the model gets."""

    server_name: str
    allowed: ToolFilter | None
    param: str


def read_toolset(entry: JSONFields) -> Toolset:
    """Read a tool of the type `mcp_toolset`. Raises `BadRequestError`, which names the field."""
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
        return Toolset(server_name=name, allowed=ToolFilter(patterns=patterns), param=entry.path)
    return Toolset(server_name=name, allowed=ToolFilter(excluded=patterns) if exceptions else None, param=entry.path)


def read_mcp_servers(fields: JSONFields, toolsets: Sequence[Toolset]) -> tuple[MCPDeclaration, ...]:
    """Read `mcp_servers`. `toolsets`: those of the request. Raises `BadRequestError`, which names the field."""
    by_server: Mapping[str, Toolset] = {each.server_name: each for each in toolsets}
    declarations = []
    for entry in fields.iter_objects("mcp_servers", max_length=MAX_REQUEST_TOOLS):
        declaration = _read_server(entry, by_server)
        if declaration is not None:
            declarations.append(declaration)
    names = {each.get("name") for each in fields.value.get("mcp_servers") or () if isinstance(each, dict)}
    for toolset in toolsets:
        if toolset.server_name not in names:
            where = f"{toolset.param}.mcp_server_name"
            refuse(f"Invalid '{where}': there is no such server in 'mcp_servers'.", where)
    if len({each.server_label for each in declarations}) < len(declarations):
        refuse("Duplicate name in 'mcp_servers'.", "mcp_servers", "duplicate_value")
    return tuple(declarations)


def _read_server(entry: JSONFields, toolsets: Mapping[str, Toolset]) -> MCPDeclaration | None:
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
