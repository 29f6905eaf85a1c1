"""Marks for the prompt cache of Anthropic's API, which HoloDeck sets where a client has set none.

The provider stores the prompt up to each mark: tools, then instructions, then messages. A later prompt that begins with
the same bytes reads that part from the cache, for a tenth of the price or less. So marks are at the end of what stays
the same: of the tools, of the instructions, of the messages of the turn before, and of all messages.
The provider finds what the turn before has stored by its mark, however many blocks came since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

CACHE_FIELD = "cache_control"
"""The field of the API for marks."""
MAX_MARKS = 4
"""Marks that a request may have."""
# Bytes of a prompt below which no model caches it: the least is 512 tokens. A mark would have no effect.
MIN_PREFIX_BYTES = 1_024
# The API accepts no mark on these blocks.
_UNMARKED_TYPES = frozenset({"thinking", "redacted_thinking"})

Block = dict[str, Any]


def has_marks(body: Mapping[str, Any]) -> bool:
    """Return whether a body has a mark of its client."""
    system = body.get("system")
    blocks = [*body.get("tools", ()), *(system if isinstance(system, list) else ())]
    blocks += [block for message in body["messages"] for block in message["content"]]
    inner = (part for block in blocks if block.get("type") == "tool_result" for part in block["content"])
    return CACHE_FIELD in body or any(CACHE_FIELD in block for block in (*blocks, *inner))


def add_marks(body: dict[str, Any], mark: Mapping[str, str]) -> None:
    """Add marks to a body that has none, at most `MAX_MARKS` and none where the prompt is still too short."""
    tools, messages = body.get("tools", []), body["messages"]
    size = _add_size(0, tools)
    if size >= MIN_PREFIX_BYTES:
        _mark_last([tool for tool in tools if not tool.get("defer_loading")], mark)
    if "system" in body:
        size = _add_size(size, [body["system"]])
        if size >= MIN_PREFIX_BYTES:
            if isinstance(body["system"], str):
                body["system"] = [{"type": "text", "text": body["system"]}]
            _mark_last(body["system"], mark)
    earlier = _count_earlier(messages)
    for part in (messages[:earlier], messages[earlier:]):
        size = _add_size(size, (block for message in part for block in message["content"]))
        if size >= MIN_PREFIX_BYTES and part:
            _mark_last(part[-1]["content"], mark)


def _count_earlier(messages: list[Block]) -> int:
    """Return how many messages the request of the turn before had: those before the last answer of the model."""
    answers = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    return answers[-1] if answers else 0


def _add_size(size: int, values: Iterable[Any]) -> int:
    """Return a size in bytes with that of more values, which are counted only up to `MIN_PREFIX_BYTES`."""
    for value in values:
        if size >= MIN_PREFIX_BYTES:
            break
        size += len(orjson.dumps(value))
    return size


def _mark_last(blocks: list[Block], mark: Mapping[str, str]) -> None:
    """Mark the last block that can have a mark."""
    for block in reversed(blocks):
        if block.get("type") not in _UNMARKED_TYPES:
            block[CACHE_FIELD] = mark
            return
