"""A prompt cache that bills the requests of a scripted Messages server as Anthropic's does.

A prompt is a row of blocks: tools, instructions, content of messages. It is stored up to each mark (`cache_control`). A
later prompt reads the longest stored one that it begins with, byte for byte, and that ends at one of its marks or up to
20 blocks before. A prompt below a minimum of tokens is not stored. Requests that the API refuses are refused.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import orjson

from holodeck.models.items import Usage

MARK = "cache_control"
MAX_MARKS = 4
# Blocks before a mark that are compared with what is stored.
_LOOKBACK = 20
# Bytes of JSON that count as a token.
_BYTES_PER_TOKEN = 4


class RefusedMarksError(Exception):
    """The marks of a request break a rule of the API."""


class PromptCache:
    """The prompts that are stored for one account. Nothing expires."""

    def __init__(self, *, minimum: int = 1_024) -> None:
        """`minimum`: tokens of the shortest prompt that is stored, which differs between models."""
        self.minimum = minimum
        self.billed: list[Usage] = []
        """The input tokens of each request, in order."""
        self._stored: set[bytes] = set()

    def bill(self, body: dict[str, Any]) -> Usage:
        """Store a prompt up to its marks, and return its input tokens: read, written and neither.

        Raises `RefusedMarksError`.
        """
        blocks = _list_blocks(body)
        marks = {index: mark for index, (_, mark) in enumerate(blocks) if mark is not None}
        if body.get(MARK) is not None and blocks:
            marks[len(blocks) - 1] = body[MARK]
        _check_marks(marks)
        digest, total = sha256(str(body["model"]).encode()), 0
        prefixes: list[tuple[bytes, int]] = []
        for text, _ in blocks:
            digest.update(text)
            total += -(-len(text) // _BYTES_PER_TOKEN)
            prefixes.append((digest.digest(), total))
        read_until = max((self._find_stored(prefixes, index) for index in marks), default=-1)
        read = prefixes[read_until][1] if read_until >= 0 else 0
        new = [index for index in marks if index > read_until and prefixes[index][1] >= self.minimum]
        self._stored |= {prefixes[index][0] for index in new}
        written = max((prefixes[index][1] for index in new), default=read) - read
        for_hour = max((prefixes[index][1] for index in new if marks[index].get("ttl") == "1h"), default=read) - read
        usage = Usage(
            input_tokens=total, cached_tokens=read, cache_write_tokens=written, cache_write_1h_tokens=for_hour
        )
        self.billed.append(usage)
        return usage

    def _find_stored(self, prefixes: list[tuple[bytes, int]], mark: int) -> int:
        """Return the last block of the longest stored prompt for a mark; -1 for none."""
        first = max(mark - _LOOKBACK, 0)
        found = (index for index in range(mark, first - 1, -1) if prefixes[index][0] in self._stored)
        return next(found, -1)


def _list_blocks(body: dict[str, Any]) -> list[tuple[bytes, Any]]:
    """Return the bytes of each block without its mark, and the mark."""
    system = body.get("system") or []
    blocks: list[tuple[object, Any]] = [("tool", tool) for tool in body.get("tools", ())]
    blocks += [("system", block) for block in ([{"text": system}] if isinstance(system, str) else system)]
    # Another choice of tools changes how messages are read, not what is before them.
    choice = body.get("tool_choice")
    for message in body["messages"]:
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        blocks += [((message["role"], choice), part) for part in parts]
    return [(orjson.dumps([place, _without_mark(block)]), _mark_of(block)) for place, block in blocks]


def _mark_of(block: dict[str, Any]) -> Any:
    inner = block.get("content")
    marks = [part.get(MARK) for part in inner if isinstance(part, dict)] if isinstance(inner, list) else []
    mark = next((each for each in (block.get(MARK), *marks) if each is not None), None)
    if mark is not None and block.get("type") in {"thinking", "redacted_thinking"}:
        raise RefusedMarksError(f"{MARK} cannot be set on thinking blocks")
    if mark is not None and block.get("defer_loading"):
        raise RefusedMarksError(f"{MARK} cannot be set on a tool with defer_loading")
    return mark


def _without_mark(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_mark(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _without_mark(each) for name, each in value.items() if name != MARK}


def _check_marks(marks: dict[int, Any]) -> None:
    if len(marks) > MAX_MARKS:
        raise RefusedMarksError(f"A maximum of {MAX_MARKS} blocks with {MARK} may be provided. Found {len(marks)}.")
    lifetimes = [mark.get("ttl", "5m") for _, mark in sorted(marks.items())]
    if any(mark.get("type") != "ephemeral" for mark in marks.values()) or set(lifetimes) - {"5m", "1h"}:
        raise RefusedMarksError(f"{MARK}: the type must be 'ephemeral', and the ttl '5m' or '1h'")
    if lifetimes != sorted(lifetimes):
        raise RefusedMarksError(f"a ttl='1h' {MARK} block must not come after a ttl='5m' {MARK} block")
