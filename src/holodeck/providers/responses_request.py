"""A request in the Responses API: the whole conversation each time, nothing stored at the provider."""

from __future__ import annotations

from typing import Any

from holodeck.lib.errors import ModelError
from holodeck.models.content import TextContent
from holodeck.models.items import FileData, FunctionCall, FunctionCallOutput, ImageLink, Item, Message, Part, Reasoning
from holodeck.models.model_io import ModelRequest, ToolChoice, ToolSpec
from holodeck.providers.encoding import describe_part, describe_parts, find_image_url, output_text
from holodeck.providers.offers import build_json_format
from holodeck.providers.tool_call_assembler import NO_ARGUMENTS

REASONING_KEY = "responses"
"""Under this name `Reasoning.opaque` keeps the item as the provider sent it."""

ENCRYPTED = "reasoning.encrypted_content"


def build_responses_body(request: ModelRequest, *, model: str, wants_encrypted: bool) -> dict[str, Any]:
    """What is posted to `/responses`. What this API has no word for is refused, rather than left out."""
    if request.stop or request.seed is not None:
        wish = "stop" if request.stop else "seed"
        raise ModelError(f"The Responses API has no '{wish}'. Leave it out.", status=400)
    body: dict[str, Any] = {
        "model": model,
        "input": [entry for item in request.items for entry in _encode_item(item)],
        "stream": True,
        "store": False,
    }
    if wants_encrypted:
        body["include"] = [ENCRYPTED]
    options = {
        "instructions": request.instructions or None,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_output_tokens": request.max_tokens,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "reasoning": _without_none(effort=request.effort, summary=request.summary) or None,
    }
    body.update(_without_none(**options))
    text = _without_none(verbosity=request.verbosity)
    if request.response_format is not None:
        text["format"] = {"type": "json_schema", **build_json_format(request.response_format)}
    if text:
        body["text"] = text
    if request.tools:
        body["tools"] = [_encode_tool(tool) for tool in request.tools]
        body["tool_choice"] = _encode_tool_choice(request.tool_choice)
        body["parallel_tool_calls"] = request.parallel_tool_calls
    return body


def _without_none(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _encode_tool(tool: ToolSpec) -> dict[str, Any]:
    # `strict` is never left out: its default here is true, and most schemas of tools do not fit that mode.
    head = {"type": "function", "name": tool.name, "strict": tool.strict, "parameters": dict(tool.parameters)}
    return {**head, "description": tool.description} if tool.description else head


def _encode_tool_choice(choice: ToolChoice) -> Any:
    if choice.name is not None:
        return {"type": "function", "name": choice.name}
    if choice.allowed == () or choice.mode == "none":
        return "none"
    if choice.allowed is not None:
        tools = [{"type": "function", "name": name} for name in choice.allowed]
        return {"type": "allowed_tools", "mode": choice.mode, "tools": tools}
    return choice.mode


def _encode_item(item: Item) -> list[dict[str, Any]]:
    if isinstance(item, Message):
        return [_encode_message(item)]
    if isinstance(item, FunctionCall):
        arguments = item.arguments or NO_ARGUMENTS
        return [{"type": "function_call", "call_id": item.call_id, "name": item.name, "arguments": arguments}]
    if isinstance(item, FunctionCallOutput):
        return [{"type": "function_call_output", "call_id": item.call_id, "output": _encode_output(item)}]
    return _encode_reasoning(item)


def _encode_message(message: Message) -> dict[str, Any]:
    # Without ids: what was never stored cannot be looked up, and ids of other origins are refused.
    content = (
        describe_parts(message.content)
        if message.role == "assistant"
        else [_encode_part(part) for part in message.content]
    )
    return {"type": "message", "role": message.role, "content": content}


def _encode_part(part: Part) -> dict[str, Any]:
    url = find_image_url(part)
    if url is not None:
        detail = part.detail if isinstance(part, ImageLink) else "auto"
        return {"type": "input_image", "image_url": url, "detail": detail}
    if isinstance(part, FileData):
        if part.url.startswith("data:"):
            return {"type": "input_file", "filename": part.filename or "file", "file_data": part.url}
        return {"type": "input_file", "file_url": part.url}
    return {"type": "input_text", "text": describe_part(part)}


def _encode_output(output: FunctionCallOutput) -> Any:
    """Text alone as a string, which every server takes; with pictures as parts."""
    if all(find_image_url(part) is None for part in output.content):
        return output_text(output, describe_parts(output.content))
    parts = [_encode_part(part) for part in output.content if not isinstance(part, TextContent) or part.text]
    if output.is_error:
        parts.insert(0, {"type": "input_text", "text": "Error:"})
    return parts


def _encode_reasoning(item: Reasoning) -> list[dict[str, Any]]:
    """Only what the provider can read again: it keeps nothing, so a bare id would lead nowhere."""
    entry = item.opaque.get(REASONING_KEY)
    if not isinstance(entry, dict) or not (entry.get("encrypted_content") or entry.get("content")):
        return []
    return [{name: value for name, value in entry.items() if name != "status"}]
