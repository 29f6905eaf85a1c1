"""The table of request fields of `POST /v1/messages`: see `wire/request/field_table.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holodeck.gateway.api.field_rows import (
    NOT_SENT,
    RequestField,
    Treatment,
    everywhere,
    option_places,
    option_rows,
    refused_row,
)
from holodeck.gateway.api.model import list_rows
from holodeck.gateway.api.models.create_message import CACHE_NOTE, MESSAGES_FUNCTION, CreateMessage, OutputConfig
from holodeck.gateway.api.models.create_response import IN_MESSAGES
from holodeck.gateway.api.models.message_blocks import NO_CITATIONS
from holodeck.gateway.api.models.message_tools import NO_OWN_TOOLS
from holodeck.gateway.api.models.parts import NO_FILES
from holodeck.gateway.api.models.tools import NO_SEARCH
from holodeck.gateway.wire.request.json_fields import EXTRA_ADVICE
from holodeck.models.generation import OPTIONS

_NOT_MAPPED = "No MCP tool is mapped to it here."
_AS_FUNCTION = "Your program runs it. Models of other providers get a function."

_EPHEMERAL = {"type": "ephemeral"}
_HELLO = {"role": "user", "content": "Hello"}
_CALL = {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {}}
_RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Rome"}
_USED = {"type": "mcp_tool_use", "id": "toolu_2", "name": "read", "server_name": "files", "input": {}}
_USED_RESULT = {"type": "mcp_tool_result", "tool_use_id": "toolu_2", "content": "Milk"}
_SEARCH = {"type": "server_tool_use", "id": "srvtoolu_3", "name": "web_search", "input": {"query": "Rome"}}
_FOUND = {
    "type": "web_search_result",
    "title": "Rome",
    "url": "https://rome.example",
    "encrypted_content": "text:Hills",
}
_SEARCH_RESULT = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_3", "content": [_FOUND]}
_FETCH = {"type": "server_tool_use", "id": "srvtoolu_4", "name": "web_fetch", "input": {"url": "https://rome.example"}}
_PAGE = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Hills"}}
_FETCH_RESULT = {
    "type": "web_fetch_tool_result",
    "tool_use_id": "srvtoolu_4",
    "content": {"type": "web_fetch_result", "url": "https://rome.example", "content": _PAGE},
}
_PIXEL = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
_PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0x"}


def _tool(treatment: Treatment, tool: Mapping[str, Any], about: str) -> RequestField:
    return RequestField(
        path="tools[].type",
        treatment=treatment,
        about=about,
        example={"tools": [tool]},
        value=tool["type"],
        sent_as=everywhere("tools") if treatment == "passed_on" else {},
    )


def _block(treatment: Treatment, block: Mapping[str, Any], about: str, *before: Mapping[str, Any]) -> RequestField:
    """Build the row of a block in the last message, which comes after other messages."""
    role = "assistant" if block["type"] in ("thinking", "tool_use", "mcp_tool_use", "mcp_tool_result") else "user"
    return RequestField(
        path="messages[].content[].type",
        treatment=treatment,
        about=about,
        example={"messages": [*before, {"role": role, "content": [block]}]},
        value=block["type"],
        sent_as=IN_MESSAGES if treatment == "passed_on" else {},
    )


def _sent_back(kind: str, about: str, *messages: Mapping[str, Any]) -> RequestField:
    return RequestField(
        path="messages[].content[].type",
        treatment="passed_on",
        about=about,
        example={"messages": [*messages, _HELLO]},
        value=kind,
        sent_as=IN_MESSAGES,
    )


_ONE_BY_ONE = "tool_choice.disable_parallel_tool_use"
MESSAGES_FIELDS = (
    *list_rows(CreateMessage),
    *list_rows(OutputConfig),
    *option_rows("messages"),
    RequestField(
        path=_ONE_BY_ONE,
        treatment="passed_on",
        about="",
        example={"tools": [MESSAGES_FUNCTION], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        sent_as=next(option_places(option) for option in OPTIONS if option.sent_as.get("anthropic") == _ONE_BY_ONE),
    ),
    refused_row("top_k", 5, EXTRA_ADVICE),
    _tool("passed_on", {"type": "custom", **MESSAGES_FUNCTION}, "Your program runs it."),
    _tool("passed_on", {"type": "bash_20250124", "name": "bash"}, _AS_FUNCTION),
    _tool("passed_on", {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}, _AS_FUNCTION),
    _tool(
        "passed_on",
        {"type": "computer_20251124", "name": "computer", "display_width_px": 800, "display_height_px": 600},
        _AS_FUNCTION,
    ),
    _tool("passed_on", {"type": "memory_20250818", "name": "memory"}, _AS_FUNCTION),
    _tool("refused", {"type": "web_search_20250305", "name": "web_search"}, _NOT_MAPPED),
    _tool("refused", {"type": "web_fetch_20260318", "name": "web_fetch"}, _NOT_MAPPED),
    _tool("refused", {"type": "code_execution_20260521", "name": "code_execution"}, NO_OWN_TOOLS),
    RequestField(
        path="tools[].cache_control",
        treatment="passed_on",
        about=CACHE_NOTE,
        example={"tools": [{**MESSAGES_FUNCTION, "cache_control": _EPHEMERAL}]},
        sent_as=everywhere("tools"),
    ),
    RequestField(
        path="tools[].defer_loading",
        treatment="refused",
        about=NO_SEARCH,
        example={"tools": [{**MESSAGES_FUNCTION, "defer_loading": True}]},
        harmless=False,
    ),
    _block("passed_on", {"type": "text", "text": "Look"}, ""),
    _block("passed_on", {"type": "image", "source": _PIXEL}, "Base64, or a URL."),
    _block(
        "passed_on", {"type": "document", "source": _PDF}, "A PDF, or text. A PDF by its URL needs `request_files`."
    ),
    _block(
        "passed_on",
        {"type": "search_result", "title": "Rome", "source": "x", "content": [{"type": "text", "text": "Seven hills"}]},
        "As text.",
    ),
    _sent_back(
        "tool_use",
        "A call of your tool, sent back.",
        {"role": "assistant", "content": [_CALL]},
        {"role": "user", "content": [_RESULT]},
    ),
    _block("passed_on", _RESULT, "What your tool returned.", {"role": "assistant", "content": [_CALL]}),
    _sent_back(
        "thinking",
        "Reasoning of the same model, sent back.",
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, _CALL]},
        {"role": "user", "content": [_RESULT]},
    ),
    _sent_back(
        "mcp_tool_use",
        "A call of a server of `mcp_servers`, sent back with its result.",
        {"role": "assistant", "content": [_USED, _USED_RESULT]},
    ),
    _sent_back("mcp_tool_result", "", {"role": "assistant", "content": [_USED, _USED_RESULT]}),
    _sent_back(
        "server_tool_use",
        "A call of `web_search` or `web_fetch`, sent back with its result.",
        {"role": "assistant", "content": [_SEARCH, _SEARCH_RESULT]},
    ),
    _sent_back(
        "web_search_tool_result",
        "Of results of Anthropic's servers, the model gets titles and URLs.",
        {"role": "assistant", "content": [_SEARCH, _SEARCH_RESULT]},
    ),
    _sent_back("web_fetch_tool_result", "", {"role": "assistant", "content": [_FETCH, _FETCH_RESULT]}),
    _block("refused", {"type": "container_upload", "file_id": "file_1"}, "Supported values are:"),
    RequestField(
        path="messages[].content[].cache_control",
        treatment="passed_on",
        about=CACHE_NOTE,
        example={
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Look", "cache_control": _EPHEMERAL}]}]
        },
        sent_as={"chat": NOT_SENT, "responses": NOT_SENT, "anthropic": "messages"},
    ),
    RequestField(
        path="messages[].content[].citations",
        treatment="refused",
        about=NO_CITATIONS,
        example={
            "messages": [
                {"role": "user", "content": [{"type": "document", "source": _PDF, "citations": {"enabled": True}}]}
            ]
        },
    ),
    RequestField(
        path="messages[].content[].source.file_id",
        treatment="refused",
        about=NO_FILES,
        example={
            "messages": [
                {"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "file_1"}}]}
            ]
        },
    ),
)
"""`POST /v1/messages`."""
