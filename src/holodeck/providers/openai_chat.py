"""A request in Chat Completions: what every server with that endpoint accepts, and nothing that only one does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import orjson

from holodeck.models.content import AudioContent, TextContent
from holodeck.models.items import FileData, FunctionCall, FunctionCallOutput, ImageLink, Item, Message, Part, Reasoning
from holodeck.models.model_io import ModelRequest, ToolChoice, ToolSpec
from holodeck.providers.encoding import describe_part, find_image_url, output_text
from holodeck.providers.offers import build_json_format, select_tools
from holodeck.providers.tool_call_assembler import arguments_object

REASONING_KEY = "chat"
"""Under this name `Reasoning.opaque` keeps the field in which a server sent its thoughts."""

SIGNED_KEY = "chat_calls"
"""Under this name it keeps what a server attached to calls, by their id, and wants to see again."""

_SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def build_chat_body(request: ModelRequest, *, model: str, max_tokens_field: str) -> dict[str, Any]:
    """What is posted to `/chat/completions`."""
    body: dict[str, Any] = {
        "model": model,
        "messages": _build_messages(request),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    options = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        max_tokens_field: request.max_tokens,
        "reasoning_effort": request.effort,
        "verbosity": request.verbosity,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "stop": list(request.stop) or None,
        "seed": request.seed,
    }
    body.update({name: value for name, value in options.items() if value is not None})
    if request.response_format is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": build_json_format(request.response_format)}
    tools = select_tools(request)
    if tools:
        body["tools"] = [_encode_tool(tool) for tool in tools]
        choice = _encode_tool_choice(request.tool_choice)
        if choice is not None:
            body["tool_choice"] = choice
        if not request.parallel_tool_calls:
            body["parallel_tool_calls"] = False
    return body


def _encode_tool(tool: ToolSpec) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "parameters": dict(tool.parameters)}
    if tool.description:
        function["description"] = tool.description
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _encode_tool_choice(choice: ToolChoice) -> Any:
    """`auto` is left out: it is the default, and some servers refuse the word. A narrowed choice offers fewer tools."""
    if choice.name is not None:
        return {"type": "function", "function": {"name": choice.name}}
    if choice.allowed == ():
        return "none"
    return None if choice.mode == "auto" else choice.mode


def _build_messages(request: ModelRequest) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if request.instructions:
        messages.append({"role": "system", "content": request.instructions})
    last_question = max((i for i, item in enumerate(request.items) if _is_from_user(item)), default=-1)
    # Thoughts are sent back within one question only, which is where servers that want them want them.
    items = [item for i, item in enumerate(request.items) if i > last_question or not isinstance(item, Reasoning)]
    for speaker, group in groupby(items, key=_speaker):
        if speaker == "assistant":
            messages += _build_assistant_messages(group)
        elif speaker == "tool":
            messages += _build_result_messages([item for item in group if isinstance(item, FunctionCallOutput)], items)
        else:
            messages += [_build_message(item) for item in group if isinstance(item, Message)]
    return messages


def _speaker(item: Item) -> str:
    if isinstance(item, Message):
        return "assistant" if item.role == "assistant" else "person"
    return "tool" if isinstance(item, FunctionCallOutput) else "assistant"


def _is_from_user(item: Item) -> bool:
    return isinstance(item, Message) and item.role == "user"


def _build_message(message: Message) -> dict[str, Any]:
    role = "user" if message.role == "user" else "system"  # few servers know the role "developer"
    named = {"name": message.name} if message.name else {}
    if all(isinstance(part, TextContent) for part in message.content):
        return {"role": role, **named, "content": message.text}
    return {"role": role, **named, "content": [_encode_part(part) for part in message.content]}


def _encode_part(part: Part) -> dict[str, Any]:
    url = find_image_url(part)
    if url is not None:
        image: dict[str, Any] = {"url": url}
        if isinstance(part, ImageLink) and part.detail != "auto":
            image["detail"] = "high" if part.detail == "original" else part.detail  # the most that it knows
        return {"type": "image_url", "image_url": image}
    if isinstance(part, AudioContent) and part.mime_type in _SOUNDS:
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": _SOUNDS[part.mime_type]}}
    if isinstance(part, FileData) and part.url.startswith("data:"):
        return {"type": "file", "file": {"filename": part.filename or "file", "file_data": part.url}}
    return {"type": "text", "text": describe_part(part)}


def _build_assistant_messages(items: Iterable[Item]) -> list[dict[str, Any]]:
    """What the model said in one go. Calls end a message: their results must come directly after it."""
    messages: list[dict[str, Any]] = []
    current: dict[str, Any] = {}
    signed: dict[str, dict[str, Any]] = {}
    for item in items:
        if isinstance(item, Message):
            if current.get("content") and "tool_calls" not in current:
                messages.append(current)
                current = {}
            current["content"] = current.get("content", "") + "\n".join(describe_part(part) for part in item.content)
            if item.name:
                current["name"] = item.name
        elif isinstance(item, FunctionCall):
            current.setdefault("tool_calls", []).append({**_encode_call(item), **signed.get(item.call_id, {})})
        elif isinstance(item, Reasoning):
            signed = item.opaque.get(SIGNED_KEY, {})
            if item.opaque.get(REASONING_KEY):
                current[item.opaque[REASONING_KEY]] = item.text
    if current:
        messages.append(current)
    return [{"role": "assistant", "content": message.pop("content", None), **message} for message in messages]


def _encode_call(call: FunctionCall) -> dict[str, Any]:
    # Several servers parse these again, and refuse the whole request over one call that is no JSON object.
    arguments = orjson.dumps(arguments_object(call.arguments)).decode()
    return {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _build_result_messages(outputs: Sequence[FunctionCallOutput], items: Sequence[Item]) -> list[dict[str, Any]]:
    """A tool message holds text only, so pictures follow in a message of their own."""
    names = {item.call_id: item.name for item in items if isinstance(item, FunctionCall)}
    messages: list[dict[str, Any]] = []
    pictures: list[dict[str, Any]] = []
    for output in outputs:
        lines = []
        for part in output.content:
            if find_image_url(part) is None:
                lines.append(describe_part(part))
                continue
            number = len(pictures) // 2 + 1
            lines.append(f"[Image {number}: it is in the message after the tool results.]")
            pictures += [{"type": "text", "text": f"Image {number}, from {names.get(output.call_id, 'a tool')}:"}]
            pictures += [_encode_part(part)]
        content = output_text(output, "\n".join(lines))
        messages.append({"role": "tool", "tool_call_id": output.call_id, "content": content})
    if pictures:
        messages.append({"role": "user", "content": pictures})
    return messages
