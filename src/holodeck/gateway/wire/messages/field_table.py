"""The table of request fields of `POST /v1/messages`: see `wire/request/field_table.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holodeck.gateway.wire.request.field_rows import (
    NOT_SENT,
    REFUSED,
    Places,
    RequestField,
    Treatment,
    done_row,
    everywhere,
    no_effect_row,
    passed_on_row,
    refused_row,
)
from holodeck.gateway.wire.request.json_fields import EXTRA_ADVICE, NOT_SUPPORTED

NO_OWN_TOOLS = "This gateway runs none of Anthropic's own tools; an MCP server may do the same."
NO_SERVER_BLOCKS = "Blocks of tools that Anthropic's servers run are not known here: leave them out."
NO_FILES = "This gateway stores no files: send the content itself, or its URL."
NO_CITATIONS = "The models behind this gateway cite no documents."
NOTHING_CLEARED = "This gateway removes nothing from a conversation."
ALL_AT_ONCE = "This gateway offers all tools at once."
ONE_SPEED = "The operator's models have one speed."
_NOT_MAPPED = "No MCP tool is mapped to it here."
_AS_FUNCTION = "Your program runs it. Models of other providers get a function."
_MARK = "A mark for the prompt cache, as it was sent."

_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_FUNCTION = {"name": "look_up", "input_schema": _SCHEMA}
_EPHEMERAL = {"type": "ephemeral"}
_HELLO = {"role": "user", "content": "Hello"}
_CALL = {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {}}
_RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Rome"}
_USED = {"type": "mcp_tool_use", "id": "toolu_2", "name": "read", "server_name": "files", "input": {}}
_USED_RESULT = {"type": "mcp_tool_result", "tool_use_id": "toolu_2", "content": "Milk"}
_PIXEL = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
_PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0x"}

_IN_MESSAGES: Places = {"chat": "messages", "responses": "input", "anthropic": "messages"}
_IN_FORMAT: Places = {
    "chat": "response_format.json_schema.schema",
    "responses": "text.format.schema",
    "anthropic": "output_config.format.schema",
}
_IN_EFFORT: Places = {"chat": "reasoning_effort", "responses": "reasoning.effort", "anthropic": "output_config.effort"}
_IN_SYSTEM: Places = {"chat": "messages", "responses": "input", "anthropic": "system"}


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
        sent_as=_IN_MESSAGES if treatment == "passed_on" else {},
    )


def _sent_back(kind: str, about: str, *messages: Mapping[str, Any]) -> RequestField:
    return RequestField(
        path="messages[].content[].type",
        treatment="passed_on",
        about=about,
        example={"messages": [*messages, _HELLO]},
        value=kind,
        sent_as=_IN_MESSAGES,
    )


MESSAGES_FIELDS = (
    done_row("model", "demo", "A name of `/v1/models`."),
    passed_on_row("messages", [{"role": "user", "content": "Hello there"}], _IN_MESSAGES),
    passed_on_row(
        "max_tokens", 77, {"chat": "max_tokens", "responses": "max_output_tokens", "anthropic": "max_tokens"}
    ),
    passed_on_row("system", "Be brief.", _IN_SYSTEM, "Beside the instructions of an agent."),
    done_row("stream", True, "The reply is a stream of events."),
    done_row("thread", {"type": "create"}, "The gateway holds the conversation, in memory, for an hour."),
    passed_on_row("tools", [_FUNCTION], everywhere("tools")),
    passed_on_row("tool_choice", {"type": "tool", "name": "look_up"}, everywhere("tool_choice"), tools=[_FUNCTION]),
    RequestField(
        path="tool_choice.disable_parallel_tool_use",
        treatment="passed_on",
        about="",
        example={"tools": [_FUNCTION], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        sent_as={
            "chat": "parallel_tool_calls",
            "responses": "parallel_tool_calls",
            "anthropic": "tool_choice.disable_parallel_tool_use",
        },
    ),
    refused_row(
        "mcp_servers",
        [{"type": "url", "name": "mine", "url": "https://example.com/mcp"}],
        "The operator of this gateway does not allow servers that a request names by their address.",
    ),
    passed_on_row(
        "thinking",
        {"type": "enabled", "budget_tokens": 1024},
        _IN_EFFORT,
        "The budget decides the effort. With `disabled`, the reply has no thinking blocks.",
        max_tokens=2_000,
    ),
    passed_on_row("output_config.effort", "low", _IN_EFFORT),
    passed_on_row(
        "output_config.format",
        {"type": "json_schema", "schema": _SCHEMA},
        _IN_FORMAT,
        "The gateway also checks the answer, and asks again.",
    ),
    passed_on_row("output_format", {"type": "json_schema", "schema": _SCHEMA}, _IN_FORMAT, "The older name of it."),
    passed_on_row("stop_sequences", ["END"], {"chat": "stop", "responses": REFUSED, "anthropic": "stop_sequences"}),
    passed_on_row("temperature", 0.25, everywhere("temperature")),
    passed_on_row("top_p", 0.25, everywhere("top_p")),
    refused_row("top_k", 5, EXTRA_ADVICE),
    passed_on_row(
        "metadata", {"user_id": "u7"}, {"chat": "user", "responses": "user", "anthropic": "metadata.user_id"}
    ),
    passed_on_row(
        "cache_control", _EPHEMERAL, {"chat": NOT_SENT, "responses": NOT_SENT, "anthropic": "cache_control"}, _MARK
    ),
    no_effect_row("service_tier", "auto", "The usage names the tier."),
    refused_row("speed", "fast", ONE_SPEED, harmless="standard"),
    no_effect_row(
        "context_management",
        {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "Keeping all thinking is what happens anyway. Every other edit is refused.",
    ),
    refused_row("inference_geo", "eu", "The operator's models decide where they run."),
    *(
        refused_row(name, "x", NOT_SUPPORTED)
        for name in ("compaction", "container", "diagnostics", "fallbacks", "fallback_credit_token")
    ),
    refused_row("user_profile_id", "x", NOT_SUPPORTED),
    refused_row("workspace_id", "x", NOT_SUPPORTED),
    _tool("passed_on", {"type": "custom", **_FUNCTION}, "Your program runs it."),
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
        about=_MARK,
        example={"tools": [{**_FUNCTION, "cache_control": _EPHEMERAL}]},
        sent_as=everywhere("tools"),
    ),
    RequestField(
        path="tools[].defer_loading",
        treatment="refused",
        about=ALL_AT_ONCE,
        example={"tools": [{**_FUNCTION, "defer_loading": True}]},
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
    _block("refused", {"type": "container_upload", "file_id": "file_1"}, "Supported values are:"),
    RequestField(
        path="messages[].content[].cache_control",
        treatment="passed_on",
        about=_MARK,
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
