"""A request in Anthropic Messages: two speakers who take turns, each turn a list of blocks."""

from __future__ import annotations

from typing import Any

from holodeck.lib.errors import ModelError
from holodeck.lib.limits import DEFAULT_ANTHROPIC_MAX_TOKENS
from holodeck.models.content import TextContent
from holodeck.models.items import FileData, FunctionCall, FunctionCallOutput, ImageLink, Item, Message, Part
from holodeck.models.model_io import ModelRequest, ToolSpec
from holodeck.providers.encoding import NO_OUTPUT, describe_part, find_image, parse_data_url
from holodeck.providers.offers import select_tools
from holodeck.providers.tool_call_assembler import arguments_object

REASONING_KEY = "anthropic"
"""Under this name `Reasoning.opaque` keeps the block as the provider sent it, with its signature."""

Block = dict[str, Any]


def build_anthropic_body(request: ModelRequest, *, model: str) -> dict[str, Any]:
    """What is posted to `/v1/messages`."""
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": request.max_tokens or DEFAULT_ANTHROPIC_MAX_TOKENS,
        "messages": _messages(request.items),
        "stream": True,
    }
    system = _system(request)
    if system:
        body["system"] = system
    options = {"temperature": request.temperature, "top_p": request.top_p, "stop_sequences": list(request.stop) or None}
    body.update({name: value for name, value in options.items() if value is not None})
    config = _output_config(request)
    if config:
        body["output_config"] = config
    tools = select_tools(request)
    if tools:
        body["tools"] = [_tool(tool) for tool in tools]
        body["tool_choice"] = _choice(request)
    return body


def _output_config(request: ModelRequest) -> dict[str, Any]:
    """The format and the effort. What this API has no word for is refused, rather than left out."""
    wishes = {
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "verbosity": request.verbosity,
        "seed": request.seed is not None,
    }
    refused = [name for name, value in wishes.items() if value]
    if refused:
        message = f"Anthropic's models have no '{refused[0]}'. Leave it out."
        raise ModelError(message, provider="anthropic", status=400, code="unsupported_parameter")
    config: dict[str, Any] = {}
    if request.response_format is not None:
        config["format"] = {"type": "json_schema", "schema": dict(request.response_format)}
    if request.effort not in (None, "none"):
        config["effort"] = "low" if request.effort == "minimal" else request.effort
    return config


def _system(request: ModelRequest) -> str:
    """All instructions, wherever they stood: this API has one place for them."""
    spoken = [item.text for item in request.items if isinstance(item, Message) and item.role in {"system", "developer"}]
    return "\n\n".join(text for text in (request.instructions or "", *spoken) if text)


def _tool(tool: ToolSpec) -> dict[str, Any]:
    found: dict[str, Any] = {"name": tool.name, "input_schema": dict(tool.parameters)}
    if tool.description:
        found["description"] = tool.description
    if tool.strict:
        found["strict"] = True
    return found


def _choice(request: ModelRequest) -> dict[str, Any]:
    choice = request.tool_choice
    if choice.name is not None:
        found: dict[str, Any] = {"type": "tool", "name": choice.name}
    elif choice.mode == "none" or choice.allowed == ():
        return {"type": "none"}
    else:
        found = {"type": "any" if choice.mode == "required" else "auto"}
    return found if request.parallel_tool_calls else {**found, "disable_parallel_tool_use": True}


def _messages(items: tuple[Item, ...]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for item in items:
        if isinstance(item, Message) and item.role in {"system", "developer"}:
            continue
        role = _role(item)
        blocks = _blocks(item)
        if not blocks:
            continue
        if not messages or messages[-1]["role"] != role:
            messages.append({"role": role, "content": []})
        content: list[Block] = messages[-1]["content"]
        # The results of a turn's calls must stand before anything else that the person says after them.
        place = len(content)
        if isinstance(item, FunctionCallOutput):
            place = sum(block["type"] == "tool_result" for block in content)
        content[place:place] = blocks
    return messages


def _role(item: Item) -> str:
    if isinstance(item, Message):
        return "assistant" if item.role == "assistant" else "user"
    return "user" if isinstance(item, FunctionCallOutput) else "assistant"


def _blocks(item: Item) -> list[Block]:
    if isinstance(item, Message):
        return [block for part in item.content for block in _part(part)]
    if isinstance(item, FunctionCall):
        arguments = arguments_object(item.arguments)
        return [{"type": "tool_use", "id": item.call_id, "name": item.name, "input": arguments}]
    if isinstance(item, FunctionCallOutput):
        content = [block for part in item.content for block in _part(part)]
        result: Block = {"type": "tool_result", "tool_use_id": item.call_id}
        result["content"] = content or [{"type": "text", "text": NO_OUTPUT}]
        return [{**result, "is_error": True} if item.is_error else result]
    block = item.opaque.get(REASONING_KEY)
    return [dict(block)] if isinstance(block, dict) else []


def _part(part: Part) -> list[Block]:
    if isinstance(part, TextContent):
        return [{"type": "text", "text": part.text}] if part.text else []  # an empty block is refused
    found = find_image(part)
    if found:
        return [{"type": "image", "source": {"type": "base64", "media_type": found.mime_type, "data": found.data}}]
    if isinstance(part, ImageLink) and not part.url.startswith("data:"):
        return [{"type": "image", "source": {"type": "url", "url": part.url}}]
    if isinstance(part, FileData):
        return [_document(part)]
    return [{"type": "text", "text": describe_part(part)}]


def _document(part: FileData) -> Block:
    title = {"title": part.filename} if part.filename else {}
    if not part.url.startswith("data:"):
        return {"type": "document", "source": {"type": "url", "url": part.url}, **title}
    data = parse_data_url(part.url)
    if data is None or data.mime_type != "application/pdf":
        return {"type": "text", "text": describe_part(part)}
    source = {"type": "base64", "media_type": data.mime_type, "data": data.data}
    return {"type": "document", "source": source, **title}
