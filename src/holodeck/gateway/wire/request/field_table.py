"""The table of request fields: what becomes of each field of a request to create a response, or to compact one.

The page of request fields is generated from it, the readers of bodies take the words of their refusals from it, and a
test sends every example. Chat Completions has its own table in `wire/chat/field_table.py`.
"""

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
from holodeck.gateway.wire.request.hosted_items import HOSTED_ITEM_READERS
from holodeck.gateway.wire.request.json_fields import NOT_SUPPORTED
from holodeck.gateway.wire.request.tools import HOSTED_TOOL_TYPES, NOT_MAPPED

NO_FILES = "This gateway stores no files: send the content itself, or its URL."
_ONE_WAY = "The models behind this gateway have one way to reason."
_NO_OPENAI_TOOLS = "This gateway runs none of OpenAI's own tools; an MCP server may do the same."
_NO_CONNECTORS = "Name a server that this gateway has with 'server_label', or give its 'server_url'."
_NO_SUCH_ITEMS = "Supported values are:"
_CHECKED = "The gateway also checks the answer, and asks again."

_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_FUNCTION = {"type": "function", "name": "look_up", "parameters": _SCHEMA}
_CUSTOM = {"type": "custom", "name": "note", "description": "Takes a note."}
_SEARCH = {"type": "tool_search", "execution": "client", "description": "Finds tools."}
_SERVER = {"type": "mcp", "server_label": "files"}
_HELLO = {"type": "message", "role": "user", "content": "Hello"}
_IMAGE = {"type": "input_image", "image_url": "https://example.com/chart.png"}
_FILE = {"type": "input_file", "filename": "report.pdf", "file_data": "data:application/pdf;base64,JVBERi0x"}

_IN_MESSAGES: Places = {"chat": "messages", "responses": "input", "anthropic": "messages"}
_IN_JSON_MODE: Places = {"chat": "response_format", "responses": "text.format", "anthropic": "output_config.format"}
_IN_FORMAT: Places = {
    "chat": "response_format.json_schema.schema",
    "responses": "text.format.schema",
    "anthropic": "output_config.format.schema",
}
_IN_SUMMARY: Places = {"chat": NOT_SENT, "responses": "reasoning.summary", "anthropic": NOT_SENT}


def _format(treatment: Treatment, entry: Mapping[str, Any], about: str, sent_as: Places) -> RequestField:
    return RequestField(
        path="text.format.type",
        treatment=treatment,
        about=about,
        example={"text": {"format": entry}},
        value=entry["type"],
        sent_as=sent_as,
    )


def _include_row(treatment: Treatment, value: str, about: str) -> RequestField:
    return RequestField(path="include[]", treatment=treatment, about=about, example={"include": [value]}, value=value)


def _tool(treatment: Treatment, tool: Mapping[str, Any], about: str) -> RequestField:
    return RequestField(
        path="tools[].type",
        treatment=treatment,
        about=about,
        example={"tools": [tool]},
        value=tool["type"],
        sent_as=everywhere("tools") if treatment == "passed_on" else {},
    )


def _tool_field(tool: Mapping[str, Any], key: str, value: Any, reason: str, *, harmless: Any = None) -> RequestField:
    return RequestField(
        path=f"tools[].{key}",
        treatment="refused",
        about=reason,
        example={"tools": [{**tool, key: value}]},
        harmless=harmless,
    )


def _item(treatment: Treatment, kind: str, about: str, *entries: Mapping[str, Any], **beside: Any) -> RequestField:
    return RequestField(
        path="input[].type",
        treatment=treatment,
        about=about,
        example={**beside, "input": entries or [{"type": kind}]},
        value=kind,
        sent_as=_IN_MESSAGES if treatment == "passed_on" else {},
    )


def _part(
    kind: str, about: str, part: Mapping[str, Any], role: str = "user", sent_as: Places = _IN_MESSAGES
) -> RequestField:
    return RequestField(
        path="input[].content[].type",
        treatment="passed_on",
        about=about,
        example={"input": [{"role": role, "content": [{"type": kind, **part}]}, _HELLO]},
        value=kind,
        sent_as=sent_as,
    )


def _part_field(
    treatment: Treatment,
    part: Mapping[str, Any],
    key: str,
    value: Any,
    about: str,
    *,
    harmless: Any = None,
    sent_as: Places | None = None,
) -> RequestField:
    return RequestField(
        path=f"input[].content[].{key}",
        treatment=treatment,
        about=about,
        example={"input": [{"role": "user", "content": [{**part, key: value}]}]},
        harmless=harmless,
        sent_as=sent_as or {},
    )


_OPTIONS = (
    done_row("model", "demo", "A name of `/v1/models`. It may be left out where the gateway has one model."),
    passed_on_row("input", "Hello there", _IN_MESSAGES, "A text, or items of the types below."),
    passed_on_row(
        "instructions",
        "Be brief.",
        {"chat": "messages", "responses": "instructions", "anthropic": "system"},
        "In place of the agent's instructions.",
    ),
    done_row("previous_response_id", "resp_example", "The gateway sends the model what came before."),
    done_row("conversation", "conv_example", "The gateway stores conversations. An id, or an object with an `id`."),
    done_row("store", False, "False: the response cannot be read again."),
    done_row("background", True, "The response runs without a client."),
    done_row("stream", True, "The reply is a stream of events."),
    done_row("stream_options.include_obfuscation", True, "True pads each delta. Left out: no padding.", stream=True),
    passed_on_row("tools", [_FUNCTION], everywhere("tools"), "Tools of the types below."),
    passed_on_row(
        "tool_choice",
        {"type": "function", "name": "look_up"},
        everywhere("tool_choice"),
        "A mode, `allowed_tools`, or one of the tools of the request.",
        tools=[_FUNCTION],
    ),
    passed_on_row(
        "parallel_tool_calls",
        False,
        {**everywhere("parallel_tool_calls"), "anthropic": "tool_choice.disable_parallel_tool_use"},
        tools=[_FUNCTION],
    ),
    done_row("max_tool_calls", 3, "The gateway counts the calls that it runs."),
    passed_on_row("text.verbosity", "low", {"chat": "verbosity", "responses": "text.verbosity", "anthropic": REFUSED}),
    passed_on_row(
        "reasoning.effort",
        "low",
        {"chat": "reasoning_effort", "responses": "reasoning.effort", "anthropic": "output_config.effort"},
    ),
    passed_on_row("reasoning.summary", "concise", _IN_SUMMARY),
    passed_on_row("reasoning.generate_summary", "concise", _IN_SUMMARY, "The older name of `reasoning.summary`."),
    refused_row("reasoning.mode", "pro", _ONE_WAY, harmless="standard"),
    refused_row("reasoning.context", "all_turns", _ONE_WAY, harmless="auto"),
    passed_on_row("temperature", 0.25, everywhere("temperature")),
    passed_on_row("top_p", 0.25, everywhere("top_p")),
    passed_on_row("presence_penalty", 0.25, {**everywhere("presence_penalty"), "anthropic": REFUSED}),
    passed_on_row("frequency_penalty", 0.25, {**everywhere("frequency_penalty"), "anthropic": REFUSED}),
    passed_on_row(
        "max_output_tokens",
        77,
        {"chat": "max_tokens", "responses": "max_output_tokens", "anthropic": "max_tokens"},
        "OpenAI's own Chat Completions API calls it `max_completion_tokens`.",
    ),
    passed_on_row("top_logprobs", 3, {"chat": "top_logprobs", "responses": "top_logprobs", "anthropic": REFUSED}),
    passed_on_row("stop", ["END"], {"chat": "stop", "responses": REFUSED, "anthropic": "stop_sequences"}),
    passed_on_row("seed", 7, {"chat": "seed", "responses": REFUSED, "anthropic": REFUSED}),
    done_row("metadata", {"ticket": "7"}, "Stored with the response, and repeated in it."),
    done_row("truncation", "auto", "The oldest items are left out if the model does not have room for all."),
    done_row("context_management", [{"type": "compaction"}], "Beyond its threshold, a conversation is compacted."),
    done_row("elicitation", "ask", "Questions of MCP servers wait for your answer. Left out, or `decline`: declined."),
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
    no_effect_row("client_metadata", {"program": "editor"}, "Codex describes itself here."),
    refused_row("prompt", {"id": "pmpt_1"}, NOT_SUPPORTED),
    refused_row("moderation", {"model": "m"}, NOT_SUPPORTED),
    refused_row("image", {"size": "auto"}, NOT_SUPPORTED),
    refused_row("access_programs", ["p"], NOT_SUPPORTED),
)

_VALUES = (
    _format("no_effect", {"type": "text"}, "It is what a model answers anyway.", {}),
    _format("passed_on", {"type": "json_object"}, _CHECKED, _IN_JSON_MODE),
    _format("passed_on", {"type": "json_schema", "name": "place", "schema": _SCHEMA}, _CHECKED, _IN_FORMAT),
    _include_row("done", "reasoning.encrypted_content", "Adds reasoning that you can send back."),
    _include_row("no_effect", "message.input_image.image_url", "The URL of an image is always there."),
    RequestField(
        path="include[]",
        treatment="passed_on",
        about="Adds log probabilities.",
        example={"include": ["message.output_text.logprobs"]},
        value="message.output_text.logprobs",
        sent_as={"chat": "logprobs", "responses": "include", "anthropic": REFUSED},
    ),
    *(
        _include_row("no_effect", value, "The item never has it here, or always.")
        for value in ("web_search_call.results", "computer_call_output.output.image_url")
    ),
    *(
        _include_row("done", value, "For a hosted tool that an MCP tool runs.")
        for value in ("file_search_call.results", "web_search_call.action.sources", "code_interpreter_call.outputs")
    ),
)

_DISPLAY = {"display_width": 800, "display_height": 600, "environment": "browser"}
_ACTION_TOOLS: Mapping[str, Mapping[str, Any]] = {
    "shell": {},
    "local_shell": {},
    "apply_patch": {},
    "computer": {},
    "computer_use_preview": _DISPLAY,
}

_TOOLS = (
    _tool("passed_on", _FUNCTION, "Your program runs it."),
    _tool("passed_on", _CUSTOM, "The model gets a function with one text. Your program runs it."),
    _tool("passed_on", {"type": "namespace", "name": "crm", "tools": [_FUNCTION]}, "The model gets its tools."),
    _tool("passed_on", _SEARCH, "Only a search that your program makes: its `execution` is `client`."),
    _tool("done", _SERVER, "The gateway runs the tools of the MCP server."),
    *(
        _tool("passed_on", {"type": kind, **fields}, "The model gets a function for its actions. Your program runs it.")
        for kind, fields in _ACTION_TOOLS.items()
    ),
    *(_tool("refused", {"type": kind}, NOT_MAPPED) for kind in HOSTED_TOOL_TYPES),
    _tool("refused", {"type": "programmatic_tool_calling"}, _NO_OPENAI_TOOLS),
    _tool_field(_FUNCTION, "defer_loading", True, "This gateway offers all tools at once.", harmless=False),
    _tool_field(_FUNCTION, "async", True, "Calls are answered in order.", harmless=False),
    _tool_field(_FUNCTION, "output_schema", {}, "What a function returns is not checked here."),
    _tool_field(_FUNCTION, "allowed_callers", ["programmatic"], "Supported values are: 'direct'.", harmless=["direct"]),
    _tool_field(_SERVER, "connector_id", "connector_gmail", _NO_CONNECTORS),
    _tool_field(_SERVER, "tunnel_id", "tunnel_1", _NO_CONNECTORS),
)

_CALL = {"type": "function_call", "call_id": "call_1", "name": "look_up", "arguments": "{}"}
_OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "Rome"}
_NOTE = {"type": "custom_tool_call", "call_id": "call_2", "name": "note", "input": "Milk"}
_NOTED = {"type": "custom_tool_call_output", "call_id": "call_2", "output": "Noted"}
_QUERY = {"type": "tool_search_call", "call_id": "call_3", "arguments": {"query": "weather"}}
_FOUND = {"type": "tool_search_output", "call_id": "call_3", "tools": [_FUNCTION]}
_READ = {"type": "mcp_call", "server_label": "files", "name": "read", "arguments": "{}", "output": "Milk"}
_ASKED = {"type": "mcp_approval_request", "id": "mcpr_example", "server_label": "files"}
_ANSWER = {"type": "mcp_approval_response", "approval_request_id": "mcpr_example", "approve": False}
_APPROVAL = (_HELLO, {**_ASKED, "name": "echo", "arguments": "{}"}, _ANSWER)
_LIST = {"type": "mcp_list_tools", "server_label": "files", "tools": []}
_COMPACTED = {"type": "compaction", "encrypted_content": "sealed_example"}
_TRIGGER = {"type": "compaction_trigger"}
_REFERENCE = {"type": "item_reference", "id": "msg_example"}
_THOUGHT = {"type": "reasoning", "summary": []}

_EXITED = {"stdout": "a.txt", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
_SCREEN = {"type": "computer_screenshot", "image_url": "https://example.com/screen.png"}
_ACTIONS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "shell": ({"action": {"commands": ["ls"]}}, {"output": [_EXITED]}),
    "local_shell": ({"action": {"type": "exec", "command": ["ls"], "env": {}}}, {"output": "a.txt"}),
    "apply_patch": ({"operation": {"type": "delete_file", "path": "a.txt"}}, {"status": "completed"}),
    "computer": ({"actions": [{"type": "screenshot"}]}, {"output": _SCREEN}),
}
"""By the type of the tool, the fields of a call and of its output."""


def _action_items(tool: str) -> tuple[RequestField, RequestField]:
    made, returned = _ACTIONS[tool]
    call = {"type": f"{tool}_call", "call_id": "call_4", **made}
    output = {"type": f"{tool}_call_output", "call_id": "call_4", **returned}
    tools = [{"type": tool}]
    return (
        _item("passed_on", call["type"], "A call of your tool, sent back.", call, output, tools=tools),
        _item("passed_on", output["type"], "What your tool returned.", call, output, tools=tools),
    )


_ITEMS = (
    _item("passed_on", "message", "", _HELLO),
    _item("passed_on", "function_call", "A call of your tool, sent back.", _CALL, _OUTPUT, tools=[_FUNCTION]),
    _item("passed_on", "function_call_output", "What your tool returned.", _CALL, _OUTPUT, tools=[_FUNCTION]),
    _item("passed_on", "custom_tool_call", "A call of your tool, sent back.", _NOTE, _NOTED, tools=[_CUSTOM]),
    _item("passed_on", "custom_tool_call_output", "What your tool returned.", _NOTE, _NOTED, tools=[_CUSTOM]),
    _item("passed_on", "tool_search_call", "A search of your program, sent back.", _QUERY, _FOUND, tools=[_SEARCH]),
    _item("passed_on", "tool_search_output", "What your search found.", _QUERY, _FOUND, tools=[_SEARCH]),
    _item("passed_on", "mcp_call", "A call that the gateway has run, sent back.", _HELLO, _READ),
    _item("done", "mcp_list_tools", "Sent back: the tools are not listed again.", _HELLO, _LIST),
    _item("done", "mcp_approval_request", "Sent back, with your answer.", *_APPROVAL),
    _item("done", "mcp_approval_response", "Runs the call, or tells the model that you refuse.", *_APPROVAL),
    _item("done", "reasoning", "Goes back to the model that made it.", _HELLO, _THOUGHT),
    _item("done", "compaction", "The gateway opens what it has compacted.", _COMPACTED),
    _item("done", "compaction_trigger", "Compacts what comes before it, without an answer.", _HELLO, _TRIGGER),
    _item("done", "item_reference", "The gateway looks up the stored item.", _REFERENCE),
    *(row for tool in _ACTIONS for row in _action_items(tool)),
    *(_item("passed_on", kind, "The model reads it as a note.", {"type": kind}) for kind in HOSTED_ITEM_READERS),
    *(
        _item("refused", kind, _NO_SUCH_ITEMS)
        for kind in ("additional_tools", "configuration_update", "program", "program_output")
    ),
)

_PARTS = (
    _part("input_text", "", {"text": "Look"}),
    _part("input_image", "A link or a data URL, as it is.", _IMAGE),
    _part("input_file", "Anthropic's models get PDF files only; others are described in words.", _FILE),
    _part(
        "input_audio",
        "",
        {"input_audio": {"data": "UklGRg==", "format": "wav"}},
        sent_as={"chat": "messages", "responses": DESCRIBED, "anthropic": DESCRIBED},
    ),
    _part("output_text", "An earlier answer, sent back.", {"text": "Looked"}, role="assistant"),
    _part("refusal", "An earlier answer, sent back.", {"refusal": "Not that"}, role="assistant"),
    _part_field(
        "passed_on",
        _IMAGE,
        "detail",
        "low",
        "Of an image.",
        sent_as={"chat": "messages", "responses": "input", "anthropic": NOT_SENT},
    ),
    _part_field("refused", _FILE, "detail", "high", "A file is handed on as it is.", harmless="auto"),
    _part_field("refused", {"type": "input_file"}, "file_id", "file-1", NO_FILES),
    _part_field(
        "done",
        {"type": "input_file"},
        "file_url",
        "https://example.com/report.pdf",
        "The gateway fetches the file, and the model gets its content. Refused unless `request_files` allows it.",
    ),
    _part_field(
        "passed_on",
        {"type": "input_text", "text": "Look"},
        "prompt_cache_breakpoint",
        {"mode": "explicit"},
        "A hint. Models that do not have it get the part without it.",
        sent_as={"chat": NOT_SENT, "responses": "input", "anthropic": NOT_SENT},
    ),
)

RESPONSE_FIELDS = (*_OPTIONS, *_VALUES, *_TOOLS, *_ITEMS, *_PARTS)
"""`POST /v1/responses`, and messages of a WebSocket."""

COMPACT_FIELDS = (
    done_row("model", "demo", "A name of `/v1/models`."),
    done_row("input", "Hello", "A text, or items of the types above."),
    done_row("previous_response_id", "resp_example", "What came before is part of what is compacted."),
    done_row("context_management", [{"type": "compaction"}], "Its threshold is the size of the result, at most."),
    no_effect_row("instructions", "Be brief.", "The model that writes the summary has its own."),
    no_effect_row("prompt_cache_key", "k7", "The summary has no prompt cache."),
    no_effect_row("service_tier", "flex", "There is one tier."),
    *(no_effect_row(name, value, "The summary has no prompt cache.") for name, value in CACHE_HINT_EXAMPLES.items()),
    refused_row("image", {"size": "auto"}, NOT_SUPPORTED),
)
"""`POST /v1/responses/compact`."""
