"""The table of request fields of `POST /v1/chat/completions`: see `wire/request/field_table.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holodeck.gateway.api.field_rows import (
    DESCRIBED,
    NOT_SENT,
    Places,
    RequestField,
    everywhere,
    option_rows,
)
from holodeck.gateway.api.model import list_rows
from holodeck.gateway.api.models.chat_messages import NO_CHAT_FILES, USE_TOOL_CALLS
from holodeck.gateway.api.models.create_chat_completion import (
    CHAT_FUNCTION,
    TEXT_ONLY,
    ChatStreamOptions,
    CreateChatCompletion,
)
from holodeck.gateway.api.models.create_response import IN_MESSAGES
from holodeck.gateway.api.models.text_format import CITY_SCHEMA, format_rows

_HELLO = {"role": "user", "content": "Hello"}
_CALL = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
_CALLED = {"role": "assistant", "tool_calls": [_CALL]}
_OUTPUT = {"role": "tool", "tool_call_id": "call_1", "content": "Rome"}


def _role(role: str, about: str, *messages: Mapping[str, Any], sent_as: Places = IN_MESSAGES) -> RequestField:
    return RequestField(
        path="messages[].role",
        treatment="passed_on",
        about=about,
        example={"messages": messages},
        value=role,
        sent_as=sent_as,
    )


def _part(kind: str, value: Any, about: str = "", sent_as: Places = IN_MESSAGES) -> RequestField:
    return RequestField(
        path="messages[].content[].type",
        treatment="passed_on",
        about=about,
        example={"messages": [{"role": "user", "content": [{"type": kind, kind: value}]}]},
        value=kind,
        sent_as=sent_as,
    )


CHAT_FIELDS = (
    *list_rows(CreateChatCompletion),
    *list_rows(ChatStreamOptions),
    *option_rows("chat", tools=[CHAT_FUNCTION]),
    RequestField(
        path="tools[].type",
        treatment="passed_on",
        about="Your program runs it.",
        example={"tools": [CHAT_FUNCTION]},
        value="function",
        sent_as=everywhere("tools"),
    ),
    RequestField(
        path="tools[].type",
        treatment="done",
        about="The gateway runs the tools of the MCP server that need no approval.",
        example={"tools": [{"type": "mcp", "server_label": "files"}]},
        value="mcp",
    ),
    RequestField(
        path="tools[].type",
        treatment="refused",
        about="Supported values are: 'function' and 'mcp'.",
        example={"tools": [{"type": "custom", "custom": {"name": "note"}}]},
        value="custom",
    ),
    *format_rows("response_format", {"type": "json_schema", "json_schema": {"name": "place", "schema": CITY_SCHEMA}}),
    _role(
        "system",
        "",
        {"role": "system", "content": "Be brief."},
        _HELLO,
        sent_as={"chat": "messages", "responses": "input", "anthropic": "system"},
    ),
    _role(
        "developer",
        "`system` for most models.",
        {"role": "developer", "content": "Be brief."},
        _HELLO,
        sent_as={"chat": "messages", "responses": "input", "anthropic": "system"},
    ),
    _role("user", "", {"role": "user", "content": "Look"}),
    _role("assistant", "An earlier answer.", _HELLO, {"role": "assistant", "content": "Hi."}, _HELLO),
    _role("tool", "What your function returned.", _HELLO, _CALLED, _OUTPUT),
    RequestField(
        path="messages[].role",
        treatment="refused",
        about="Supported values are: 'system', 'developer', 'user', 'assistant' and 'tool'.",
        example={"messages": [{"role": "function", "name": "look_up", "content": "Rome"}]},
        value="function",
    ),
    RequestField(
        path="messages[].name",
        treatment="passed_on",
        about="",
        example={"messages": [{**_HELLO, "name": "Ada"}]},
        sent_as={"chat": "messages", "responses": NOT_SENT, "anthropic": NOT_SENT},
    ),
    RequestField(
        path="messages[].tool_calls",
        treatment="passed_on",
        about="Calls of your functions, sent back.",
        example={"messages": [_CALLED, _OUTPUT]},
        sent_as=IN_MESSAGES,
    ),
    RequestField(
        path="messages[].refusal",
        treatment="passed_on",
        about="",
        example={"messages": [{"role": "assistant", "refusal": "Not that"}, _HELLO]},
        sent_as=IN_MESSAGES,
    ),
    RequestField(
        path="messages[].function_call",
        treatment="refused",
        about=USE_TOOL_CALLS,
        example={"messages": [{"role": "assistant", "function_call": {"name": "look_up", "arguments": "{}"}}]},
    ),
    RequestField(
        path="messages[].audio",
        treatment="refused",
        about=TEXT_ONLY,
        example={"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]},
    ),
    _part("text", "Look"),
    _part("image_url", {"url": "https://example.com/chart.png"}, "A link or a data URL, as it is."),
    _part(
        "input_audio",
        {"data": "UklGRg==", "format": "wav"},
        sent_as={"chat": "messages", "responses": DESCRIBED, "anthropic": DESCRIBED},
    ),
    _part(
        "file",
        {"filename": "report.pdf", "file_data": "data:application/pdf;base64,JVBERi0x"},
        "Anthropic's models get PDF files only; others are described in words.",
    ),
    RequestField(
        path="messages[].content[].file.file_id",
        treatment="refused",
        about=NO_CHAT_FILES,
        example={"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]}]},
    ),
    RequestField(
        path="messages[].content[].prompt_cache_breakpoint",
        treatment="passed_on",
        about="A hint. Models that do not have it get the part without it.",
        example={
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "Look", "prompt_cache_breakpoint": {"mode": "explicit"}}],
                }
            ]
        },
        sent_as={"chat": NOT_SENT, "responses": "input", "anthropic": NOT_SENT},
    ),
)
"""`POST /v1/chat/completions`."""
