"""The prompts of the local model: one to choose a tool, and one without tools to answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from holodeck.lib.escape import one_line
from holodeck.models.content import TextContent
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, Message, Part
from holodeck.models.model_io import ModelRequest, ToolSpec
from holodeck.providers.encoding import OptionEncoder

# Characters of the conversation in a prompt: with the tools, it fits the context.
LOCAL_PROMPT_CHARS = 8_000
# Characters of one tool result.
LOCAL_RESULT_CHARS = 2_000
# Tokens of an answer and of a choice: half a minute of output.
LOCAL_ANSWER_TOKENS = 512
LOCAL_CHOICE_TOKENS = 384
# Characters of a tool's description.
LOCAL_TOOL_CHARS = 300

_OPTIONS = OptionEncoder("local")
_CHOOSING = """\
Decide what to do about the last message. Answer with one JSON object and nothing else.
To call a tool: {"tool": "<name>", "arguments": {...}}. To answer without a tool: {"reply": "<text>"}.
Call a tool when it gives what the person asks for. Take arguments from the conversation only."""
_EXAMPLES = (
    ("What is the weather in Oslo? (tools: weather)", '{"tool": "weather", "arguments": {"city": "Oslo"}}'),
    ("Good morning! (tools: weather)", '{"reply": "Good morning! What can I do for you?"}'),
    ("Show me notes.txt (tools: read_file)", '{"tool": "read_file", "arguments": {"path": "notes.txt"}}'),
)
_ANSWERING = (
    "Answer the last message in a few sentences, from the tool results where there are some. Do not make things up."
)


def build_choice_body(request: ModelRequest, tools: Sequence[ToolSpec], *, may_reply: bool) -> dict[str, Any]:
    """Build a request whose output is constrained to a call of one of the tools or, if `may_reply`, a reply."""
    offered = "\n".join(map(_describe_tool, tools))
    system = "\n\n".join(filter(None, [request.instructions, _CHOOSING, f"Tools:\n{offered}"]))
    examples = [
        {"role": role, "content": text}
        for asked, answered in _EXAMPLES
        for role, text in (("user", asked), ("assistant", answered))
    ]
    conversation = _build_messages(request.items)
    return {
        "messages": [{"role": "system", "content": system}, *examples, *conversation],
        "response_format": {"type": "json_schema", "json_schema": {"schema": _choice_schema(tools, may_reply)}},
        "max_tokens": LOCAL_CHOICE_TOKENS,
        "temperature": 0,
    }


def build_answer_body(request: ModelRequest) -> dict[str, Any]:
    """Build a request without tools: with tools in the prompt, a small model answers a result with another call."""
    system = "\n\n".join(filter(None, [request.instructions, _ANSWERING]))
    body: dict[str, Any] = {
        "messages": [{"role": "system", "content": system}, *_build_messages(request.items)],
        "max_tokens": LOCAL_ANSWER_TOKENS,
    }
    if request.response_format is not None:
        schema = {"schema": dict(request.response_format)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif request.json_mode:
        body["response_format"] = {"type": "json_object"}
    _OPTIONS.write(request, body)
    return body


def last_user_text(items: Sequence[Item]) -> str:
    """Return the text of the last user message."""
    return next((item.text for item in reversed(items) if isinstance(item, Message) and item.role == "user"), "")


def has_result(items: Sequence[Item]) -> bool:
    """Return whether there is a tool result after the last user message."""
    for item in reversed(items):
        if isinstance(item, FunctionCallOutput):
            return True
        if isinstance(item, Message) and item.role == "user":
            return False
    return False


def _choice_schema(tools: Sequence[ToolSpec], may_reply: bool) -> dict[str, Any]:
    calls = [_object({"tool": {"const": tool.name}, "arguments": dict(tool.parameters)}) for tool in tools]
    reply = [_object({"reply": {"type": "string"}})] if may_reply else []
    return {"anyOf": [*calls, *reply]}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _describe_tool(tool: ToolSpec) -> str:
    fields = {name: _field_type(field) for name, field in tool.parameters.get("properties", {}).items()}
    return f"- {tool.name}: {one_line(tool.description, LOCAL_TOOL_CHARS)} {json.dumps(fields)}"


def _field_type(field: Any) -> Any:
    if not isinstance(field, Mapping):
        return "any"
    return field.get("enum") or field.get("type", "any")


def _build_messages(items: Sequence[Item]) -> list[dict[str, str]]:
    """Build messages from the end of the conversation, as many as fit, as plain text: small models know it best."""
    names = {item.call_id: item.name for item in items if isinstance(item, FunctionCall)}
    messages: list[dict[str, str]] = []
    remaining = LOCAL_PROMPT_CHARS
    for item in reversed(items):
        message = _encode_item(item, names)
        if message is None:
            continue
        if messages and remaining < len(message["content"]):
            break
        message["content"] = message["content"][-LOCAL_PROMPT_CHARS:]
        remaining -= len(message["content"])
        messages.append(message)
    return messages[::-1]


def _encode_item(item: Item, names: Mapping[str, str]) -> dict[str, str] | None:
    match item:
        case Message(role=role, content=content):
            return {"role": "system" if role == "developer" else role, "content": _text_of(content)}
        case FunctionCallOutput(call_id=call_id, content=content, is_error=is_error):
            result = _text_of(content)[:LOCAL_RESULT_CHARS]
            outcome = "failed" if is_error else "answered"
            return {"role": "user", "content": f"(The tool {names.get(call_id, 'asked')} {outcome}: {result})"}
        case _:
            return None


def _text_of(parts: Sequence[Part]) -> str:
    return "\n".join(
        part.text if isinstance(part, TextContent) else f"({part.type.replace('_', ' ')}, not shown)" for part in parts
    )
