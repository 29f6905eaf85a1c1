"""Estimated token counts of requests and items. Models of many providers have no common count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import orjson

from holodeck.models.items import (
    AudioContent,
    BinaryContent,
    FileData,
    FunctionCall,
    FunctionCallOutput,
    ImageContent,
    ImageLink,
    Item,
    Message,
    TextContent,
    Usage,
    encode_items,
)
from holodeck.models.model_io import ModelRequest

# Characters of English text or JSON per token, roughly, in all of today's tokenizers.
CHARS_PER_TOKEN = 4
# Tokens of an item beside its content: its role and its delimiters.
TOKENS_PER_ITEM = 4
# Tokens of an image of 1024 x 1024 at high detail, as OpenAI counts it; the real size is not looked at.
TOKENS_PER_IMAGE = 765


def count_tokens(request: ModelRequest) -> int:
    """Estimate the input tokens: one for four characters, and a fixed number for an image."""
    characters = len(request.instructions or "")
    for tool in request.tools:
        characters += len(tool.name) + len(tool.description) + len(orjson.dumps(dict(tool.parameters)))
    tokens = -(-characters // CHARS_PER_TOKEN) + (TOKENS_PER_ITEM if request.instructions else 0)
    return tokens + count_items(request.items)


def count_items(items: Iterable[Item]) -> int:
    """Estimate the tokens of items, as in `count_tokens`."""
    return sum(_tokens_of(item) for item in items)


def find_cut_usage(request: ModelRequest, characters: int) -> Usage:
    """Return the tokens of a turn that was left before its end: as its provider has told, and else by an estimate.

    `characters`: of the answer, as far as it came. A request that was not sent costs nothing.
    """
    receipt, output_tokens = request.receipt, -(-characters // CHARS_PER_TOKEN)
    if receipt.told is not None:
        more = max(0, output_tokens - receipt.told.output_tokens)
        return receipt.told + Usage(output_tokens=more, estimated_tokens=more)
    if not receipt.is_sent and not characters:
        return Usage()
    return estimate_usage(request, output_tokens)


def estimate_usage(request: ModelRequest, output_tokens: int) -> Usage:
    """Return estimated tokens of a turn with so many of output."""
    input_tokens = count_tokens(request)
    return Usage(input_tokens=input_tokens, output_tokens=output_tokens, estimated_tokens=input_tokens + output_tokens)


def _tokens_of(item: Item) -> int:
    if isinstance(item, FunctionCall):
        return TOKENS_PER_ITEM + _tokens_of_text(item.name + item.arguments)
    if isinstance(item, Message | FunctionCallOutput):
        return TOKENS_PER_ITEM + _tokens_of_parts(item.content)
    return _tokens_of_text(encode_items((item,)).decode())


def _tokens_of_parts(parts: Sequence[object]) -> int:
    tokens = 0
    for part in parts:
        match part:
            case TextContent(text=text):
                tokens += _tokens_of_text(text)
            case ImageContent() | ImageLink():
                tokens += TOKENS_PER_IMAGE
            case FileData(url=data) | AudioContent(data=data) | BinaryContent(data=data):
                tokens += -(-len(data) // CHARS_PER_TOKEN)
            case _:
                tokens += TOKENS_PER_ITEM
    return tokens


def _tokens_of_text(text: str) -> int:
    return -(-len(text) // CHARS_PER_TOKEN)
