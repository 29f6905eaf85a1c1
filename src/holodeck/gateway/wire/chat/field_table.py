"""The table of request fields of `POST /v1/chat/completions`: see `wire/request/field_table.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holodeck.gateway.wire.request.field_rows import (
    CACHE_HINT,
    CACHE_HINT_EXAMPLES,
    DESCRIBED,
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
from holodeck.gateway.wire.request.json_fields import NOT_SUPPORTED

_TEXT_ONLY = "This gateway answers in text."
_NOT_STORED = "A chat completion is not stored, so nothing repeats it. The model does not get it."
_CHECKED = "The gateway also checks the answer, and asks again."
_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_FUNCTION = {"type": "function", "function": {"name": "look_up", "parameters": _SCHEMA}}
_HELLO = {"role": "user", "content": "Hello"}
_CALL = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
_CALLED = {"role": "assistant", "tool_calls": [_CALL]}
_OUTPUT = {"role": "tool", "tool_call_id": "call_1", "content": "Rome"}

_IN_MESSAGES: Places = {"chat": "messages", "responses": "input", "anthropic": "messages"}
_IN_JSON_MODE: Places = {"chat": "response_format", "responses": "text.format", "anthropic": "output_config.format"}
_IN_FORMAT: Places = {
    "chat": "response_format.json_schema.schema",
    "responses": "text.format.schema",
    "anthropic": "output_config.format.schema",
}
_IN_LENGTH: Places = {"chat": "max_tokens", "responses": "max_output_tokens", "anthropic": "max_tokens"}


def _format(treatment: Treatment, entry: Mapping[str, Any], about: str, sent_as: Places) -> RequestField:
    return RequestField(
        path="response_format.type",
        treatment=treatment,
        about=about,
        example={"response_format": entry},
        value=entry["type"],
        sent_as=sent_as,
    )


def _role(role: str, about: str, *messages: Mapping[str, Any], sent_as: Places = _IN_MESSAGES) -> RequestField:
    return RequestField(
        path="messages[].role",
        treatment="passed_on",
        about=about,
        example={"messages": messages},
        value=role,
        sent_as=sent_as,
    )


def _part(kind: str, value: Any, about: str = "", sent_as: Places = _IN_MESSAGES) -> RequestField:
    return RequestField(
        path="messages[].content[].type",
        treatment="passed_on",
        about=about,
        example={"messages": [{"role": "user", "content": [{"type": kind, kind: value}]}]},
        value=kind,
        sent_as=sent_as,
    )


CHAT_FIELDS = (
    done_row("model", "demo", "A name of `/v1/models`."),
    passed_on_row("messages", [{"role": "user", "content": "Hello there"}], _IN_MESSAGES),
    done_row("stream", True, "The reply is a stream of chunks."),
    done_row("stream_options.include_usage", True, "A last chunk has the tokens.", stream=True),
    refused_row(
        "stream_options.include_obfuscation",
        True,
        "Chunks of this API are not padded here.",
        harmless=False,
        stream=True,
    ),
    passed_on_row("tools", [_FUNCTION], everywhere("tools")),
    RequestField(
        path="tools[].type",
        treatment="passed_on",
        about="Your program runs it.",
        example={"tools": [_FUNCTION]},
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
    passed_on_row(
        "tool_choice",
        {"type": "function", "function": {"name": "look_up"}},
        everywhere("tool_choice"),
        "A mode, a function, an MCP server, or `allowed_tools`.",
        tools=[_FUNCTION],
    ),
    passed_on_row(
        "parallel_tool_calls",
        False,
        {**everywhere("parallel_tool_calls"), "anthropic": "tool_choice.disable_parallel_tool_use"},
        tools=[_FUNCTION],
    ),
    _format("no_effect", {"type": "text"}, "It is what a model answers anyway.", {}),
    _format("passed_on", {"type": "json_object"}, _CHECKED, _IN_JSON_MODE),
    _format(
        "passed_on", {"type": "json_schema", "json_schema": {"name": "place", "schema": _SCHEMA}}, _CHECKED, _IN_FORMAT
    ),
    passed_on_row("max_completion_tokens", 77, _IN_LENGTH, "OpenAI's own API gets it under the same name."),
    passed_on_row("max_tokens", 77, _IN_LENGTH, "The older name of `max_completion_tokens`."),
    passed_on_row("temperature", 0.25, everywhere("temperature")),
    passed_on_row("top_p", 0.25, everywhere("top_p")),
    passed_on_row("presence_penalty", 0.25, {**everywhere("presence_penalty"), "anthropic": REFUSED}),
    passed_on_row("frequency_penalty", 0.25, {**everywhere("frequency_penalty"), "anthropic": REFUSED}),
    passed_on_row("stop", ["END"], {"chat": "stop", "responses": REFUSED, "anthropic": "stop_sequences"}),
    passed_on_row("seed", 7, {"chat": "seed", "responses": REFUSED, "anthropic": REFUSED}),
    passed_on_row(
        "reasoning_effort",
        "low",
        {"chat": "reasoning_effort", "responses": "reasoning.effort", "anthropic": "output_config.effort"},
    ),
    passed_on_row("verbosity", "low", {"chat": "verbosity", "responses": "text.verbosity", "anthropic": REFUSED}),
    no_effect_row("metadata", {"ticket": "7"}, _NOT_STORED),
    passed_on_row(
        "safety_identifier",
        "u7",
        {"chat": "safety_identifier", "responses": "safety_identifier", "anthropic": "metadata.user_id"},
    ),
    passed_on_row(
        "prompt_cache_key",
        "k7",
        {"chat": "prompt_cache_key", "responses": "prompt_cache_key", "anthropic": NOT_SENT},
    ),
    *(
        passed_on_row(name, value, {"chat": name, "responses": name, "anthropic": NOT_SENT}, CACHE_HINT)
        for name, value in CACHE_HINT_EXAMPLES.items()
    ),
    passed_on_row("user", "u7", {"chat": "user", "responses": "user", "anthropic": "metadata.user_id"}),
    passed_on_row(
        "service_tier",
        "flex",
        {"chat": "service_tier", "responses": "service_tier", "anthropic": REFUSED},
        "The reply has the tier that was used. Anthropic has `auto` and `default`.",
    ),
    refused_row("n", 2, "This gateway gives one answer to a request.", harmless=1),
    refused_row("store", True, NOT_SUPPORTED, harmless=False),
    passed_on_row("logprobs", True, {"chat": "logprobs", "responses": "include", "anthropic": REFUSED}),
    passed_on_row("top_logprobs", 3, {"chat": "top_logprobs", "responses": "top_logprobs", "anthropic": REFUSED}),
    refused_row("logit_bias", {"50256": -100}, NOT_SUPPORTED, harmless={}),
    refused_row("modalities", ["text", "audio"], _TEXT_ONLY, harmless=["text"]),
    refused_row("audio", {"voice": "alloy", "format": "wav"}, NOT_SUPPORTED),
    refused_row("functions", [{"name": "look_up"}], "Use 'tools'."),
    refused_row("function_call", "auto", "Use 'tool_choice'."),
    refused_row("moderation", {"model": "m"}, NOT_SUPPORTED),
    refused_row("prediction", {"type": "content", "content": "x"}, NOT_SUPPORTED),
    refused_row("web_search_options", {}, NOT_SUPPORTED),
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
        sent_as=_IN_MESSAGES,
    ),
    RequestField(
        path="messages[].refusal",
        treatment="passed_on",
        about="",
        example={"messages": [{"role": "assistant", "refusal": "Not that"}, _HELLO]},
        sent_as=_IN_MESSAGES,
    ),
    RequestField(
        path="messages[].function_call",
        treatment="refused",
        about="Use 'tool_calls'.",
        example={"messages": [{"role": "assistant", "function_call": {"name": "look_up", "arguments": "{}"}}]},
    ),
    RequestField(
        path="messages[].audio",
        treatment="refused",
        about=_TEXT_ONLY,
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
        about="This gateway stores no files: send the content itself.",
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
