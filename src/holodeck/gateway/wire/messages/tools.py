"""`tools` and `mcp_servers` of the Messages API.

A tool is one of the client (`custom`, or one that Anthropic's API defines), one that Anthropic's servers run and an MCP
tool can run here (`web_search`, `web_fetch`), or all tools of a declared MCP server. Other types are refused by name.
"""

from __future__ import annotations

import re

from holodeck.gateway.wire.messages.client_tools import NATIVE_TYPE, read_client_tool, refuse_deferred
from holodeck.gateway.wire.messages.content_blocks import CACHE_FIELD
from holodeck.gateway.wire.messages.field_table import NO_OWN_TOOLS
from holodeck.gateway.wire.messages.mcp_servers import TOOLSET, Toolset, read_mcp_servers, read_toolset
from holodeck.gateway.wire.request.json_fields import JSONFields, refuse, refuse_choice
from holodeck.gateway.wire.request.schemas import RequestSchemas
from holodeck.gateway.wire.request.tools import FUNCTION_NAME, HostedTool, RequestTools
from holodeck.lib.limits import MAX_REQUEST_TOOLS, MAX_TOOL_NAME_CHARS
from holodeck.models.model_io import ToolSpec

TOOL_TYPES = ("custom", "bash_*", "text_editor_*", "computer_*", "memory_*", TOOLSET)
"""The types of tools, where `*` is the day of a version."""
HOSTED_TYPE = re.compile(r"(web_search|web_fetch)_[0-9]{8}")
"""Types of tools that Anthropic's servers run. Their names are keys of `builtin_tools`."""


def read_message_tools(fields: JSONFields) -> RequestTools:
    """Read `tools` and `mcp_servers`. Raises `BadRequestError`, which names the field."""
    schemas = RequestSchemas()
    functions: list[ToolSpec] = []
    hosted: list[HostedTool] = []
    toolsets: list[Toolset] = []
    for entry in fields.iter_objects("tools", max_length=MAX_REQUEST_TOOLS):
        kind = entry.get_text("type") or "custom"
        if kind == "custom":
            functions.append(_read_custom_tool(entry, schemas))
        elif NATIVE_TYPE.fullmatch(kind):
            functions.append(read_client_tool(entry, kind))
        elif found := HOSTED_TYPE.fullmatch(kind):
            hosted.append(_read_hosted_tool(entry, kind, found[1]))
        elif kind == TOOLSET:
            toolsets.append(read_toolset(entry))
        else:
            refuse_choice(entry.path_of("type"), kind, TOOL_TYPES, advice=NO_OWN_TOOLS)
    names = [*(spec.name for spec in functions), *(tool.name for tool in hosted)]
    if len(set(names)) < len(names):
        refuse("Tool names must be unique: a name is twice in 'tools'.", "tools", "duplicate_value")
    return RequestTools(
        functions=tuple(functions), declarations=read_mcp_servers(fields, toolsets), hosted=tuple(hosted)
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
