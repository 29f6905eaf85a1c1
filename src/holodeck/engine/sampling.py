"""Sampling for MCP servers: a server may ask the agent's model for one short answer, without tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from holodeck.models.items import ImageContent, Message, Part, Role, TextContent
from holodeck.models.model_io import ModelAnswer, ModelRequest, ToolChoice
from holodeck.providers.base import ModelProvider

# Limit of tokens for an answer that a server asks for, whatever it asks for: the operator of the agent pays for it.
MAX_SAMPLING_TOKENS = 1_024
_STOP_REASONS = {"stop": "endTurn", "length": "maxTokens"}


def create_sampling_handler(
    find_model: Callable[[], ModelProvider],
) -> Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]:
    """Create a handler that answers `sampling/createMessage` with the model that an agent has at that moment."""

    async def sample(params: Mapping[str, Any]) -> Mapping[str, Any]:
        model = find_model()
        wanted = params.get("maxTokens")
        limit = min(wanted, MAX_SAMPLING_TOKENS) if isinstance(wanted, int) and wanted > 0 else MAX_SAMPLING_TOKENS
        instructions = params.get("systemPrompt")
        temperature = params.get("temperature")
        request = ModelRequest(
            items=tuple(_message_of(entry) for entry in params.get("messages") or () if isinstance(entry, Mapping)),
            instructions=instructions if isinstance(instructions, str) else None,
            tool_choice=ToolChoice(mode="none"),
            temperature=float(temperature) if isinstance(temperature, int | float) else None,
            max_tokens=limit,
            is_streamed=False,
        )
        text, finish = "", "stop"
        async with aclosing(model.stream(request)) as stream:
            async for event in stream:
                if isinstance(event, ModelAnswer):
                    text = "".join(item.text for item in event.items if isinstance(item, Message))
                    finish = event.finish
        return {
            "role": "assistant",
            "content": {"type": "text", "text": text},
            "model": model.name,
            "stopReason": _STOP_REASONS.get(finish, "endTurn"),
        }

    return sample


def _message_of(entry: Mapping[str, Any]) -> Message:
    role: Role = "assistant" if entry.get("role") == "assistant" else "user"
    content = entry.get("content")
    blocks = content if isinstance(content, list) else [content]
    return Message(role=role, content=tuple(_part_of(block) for block in blocks if isinstance(block, Mapping)))


def _part_of(block: Mapping[str, Any]) -> Part:
    if block.get("type") == "image":
        return ImageContent(data=str(block.get("data", "")), mime_type=str(block.get("mimeType", "image/png")))
    return TextContent(text=str(block.get("text", f"[{block.get('type')}]")))
