"""The table of request fields: what becomes of each field of a request to create a response, or to compact one.

The page of request fields is generated from it, the readers of bodies take the words of their refusals from it, and a
test sends every example. Chat Completions has its own table in `wire/chat/field_table.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holodeck.gateway.api.field_rows import (
    DESCRIBED,
    NOT_SENT,
    REFUSED,
    Places,
    RequestField,
    Treatment,
    no_effect_row,
    option_rows,
)
from holodeck.gateway.api.model import list_rows
from holodeck.gateway.api.models.compact_conversation import WITHOUT_EFFECT, CompactConversation
from holodeck.gateway.api.models.create_response import (
    FUNCTION,
    IN_MESSAGES,
    CreateResponse,
    ReasoningOptions,
)
from holodeck.gateway.api.models.mcp_tool import TOOL_MODELS
from holodeck.gateway.api.models.parts import AS_IT_IS, NO_FILES
from holodeck.gateway.api.models.text_format import CITY_SCHEMA, format_rows
from holodeck.gateway.api.models.tools import CUSTOM, SEARCH, tool_row
from holodeck.gateway.wire.request.hosted_items import HOSTED_ITEM_READERS
from holodeck.gateway.wire.request.tools import HOSTED_TOOL_TYPES, NO_OPENAI_TOOLS, NOT_MAPPED
from holodeck.models.generation import OPTION_OF

_NO_SUCH_ITEMS = "Supported values are:"

_HELLO = {"type": "message", "role": "user", "content": "Hello"}
_IMAGE = {"type": "input_image", "image_url": "https://example.com/chart.png"}
_FILE = {"type": "input_file", "filename": "report.pdf", "file_data": "data:application/pdf;base64,JVBERi0x"}


def _include_row(treatment: Treatment, value: str, about: str) -> RequestField:
    return RequestField(path="include[]", treatment=treatment, about=about, example={"include": [value]}, value=value)


def _item(treatment: Treatment, kind: str, about: str, *entries: Mapping[str, Any], **beside: Any) -> RequestField:
    return RequestField(
        path="input[].type",
        treatment=treatment,
        about=about,
        example={**beside, "input": entries or [{"type": kind}]},
        value=kind,
        sent_as=IN_MESSAGES if treatment == "passed_on" else {},
    )


def _part(
    kind: str, about: str, part: Mapping[str, Any], role: str = "user", sent_as: Places = IN_MESSAGES
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
    *list_rows(CreateResponse),
    *list_rows(ReasoningOptions),
    *option_rows("responses", tools=[FUNCTION]),
)

_VALUES = (
    *format_rows("text.format", {"type": "json_schema", "name": "place", "schema": CITY_SCHEMA}),
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

_TOOL_ROWS = [row for model in TOOL_MODELS.values() for row in list_rows(model)]
_TOOLS = (
    *(row for row in _TOOL_ROWS if row.value is not None),
    *(tool_row("refused", {"type": kind}, NOT_MAPPED) for kind in HOSTED_TOOL_TYPES),
    tool_row("refused", {"type": "programmatic_tool_calling"}, NO_OPENAI_TOOLS),
    *(row for row in _TOOL_ROWS if row.value is None),
)

_CALL = {"type": "function_call", "call_id": "call_1", "name": "look_up", "arguments": "{}"}
_OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "Rome"}
_NOTE = {"type": "custom_tool_call", "call_id": "call_2", "name": "note", "input": "Milk"}
_NOTED = {"type": "custom_tool_call_output", "call_id": "call_2", "output": "Noted"}
_QUERY = {"type": "tool_search_call", "call_id": "call_3", "arguments": {"query": "weather"}}
_FOUND = {"type": "tool_search_output", "call_id": "call_3", "tools": [FUNCTION]}
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
    _item("passed_on", "function_call", "A call of your tool, sent back.", _CALL, _OUTPUT, tools=[FUNCTION]),
    _item("passed_on", "function_call_output", "What your tool returned.", _CALL, _OUTPUT, tools=[FUNCTION]),
    _item("passed_on", "custom_tool_call", "A call of your tool, sent back.", _NOTE, _NOTED, tools=[CUSTOM]),
    _item("passed_on", "custom_tool_call_output", "What your tool returned.", _NOTE, _NOTED, tools=[CUSTOM]),
    _item("passed_on", "tool_search_call", "A search of your program, sent back.", _QUERY, _FOUND, tools=[SEARCH]),
    _item("passed_on", "tool_search_output", "What your search found.", _QUERY, _FOUND, tools=[SEARCH]),
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
    _part_field("refused", _FILE, "detail", "high", AS_IT_IS, harmless="auto"),
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
    *list_rows(CompactConversation),
    *(no_effect_row(name, OPTION_OF[name].example, reason) for name, reason in WITHOUT_EFFECT.items()),
)
"""The fields of a request to compact a conversation."""
