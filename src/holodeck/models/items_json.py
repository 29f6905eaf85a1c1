"""JSON form of conversation items, for storage. Decoding an encoded item yields an equal one, bytes included."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import orjson

from holodeck.models.content import AudioContent, BinaryContent, ImageContent, TextContent
from holodeck.models.items import (
    Compaction,
    FileData,
    FunctionCall,
    FunctionCallOutput,
    ImageLink,
    Item,
    Message,
    Part,
    Reasoning,
)

_PARTS: dict[str, type[Part]] = {
    "text": TextContent,
    "image": ImageContent,
    "audio": AudioContent,
    "binary": BinaryContent,
    "image_link": ImageLink,
    "file": FileData,
}
_ITEMS: dict[str, type[Item]] = {
    "message": Message,
    "function_call": FunctionCall,
    "function_call_output": FunctionCallOutput,
    "reasoning": Reasoning,
    "compaction": Compaction,
}
_DEFAULTS = {
    name: [(each.name, each.default) for each in fields(kind) if each.name != "type"]
    for name, kind in {**_PARTS, **_ITEMS}.items()
}
"""Fields of each type with their defaults, without `type`."""
_UNENCODED_TYPES = frozenset({str, tuple, bool})
"""Types that are stored as they are; checking for a mapping first would cost more than everything else."""


def encode_items(items: Sequence[Item]) -> bytes:
    """Encode items as a JSON array."""
    return orjson.dumps([encode_item(item) for item in items])


def decode_items(encoded: bytes) -> tuple[Item, ...]:
    return tuple(decode_item(entry) for entry in orjson.loads(encoded))


def encode_item(item: Item) -> dict[str, Any]:
    """Encode one item as a JSON object; fields with their default value are omitted."""
    entry = _encode_fields(item)
    if "content" in entry:
        entry["content"] = [_encode_fields(part) for part in entry["content"]]
    if "items" in entry:
        entry["items"] = [encode_item(each) for each in entry["items"]]
    return entry


def decode_item(entry: Mapping[str, Any]) -> Item:
    values = dict(entry)
    if "content" in values:
        values["content"] = tuple(_decode_part(part) for part in values["content"])
    if "items" in values:
        values["items"] = tuple(decode_item(each) for each in values["items"])
    make: Callable[..., Item] = _ITEMS[values["type"]]
    return make(**values)


def _encode_fields(value: Item | Part) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": value.type}
    for name, default in _DEFAULTS[value.type]:
        content = getattr(value, name)
        if content is not default and content != default:
            entry[name] = content if type(content) in _UNENCODED_TYPES else _encode_value(content)
    return entry


def _encode_value(content: Any) -> Any:
    if isinstance(content, bytes):
        return base64.b64encode(content).decode()
    return dict(content) if isinstance(content, Mapping) else content


def _decode_part(entry: Mapping[str, Any]) -> Part:
    values = dict(entry)
    if values["type"] == "binary" and "data" in values:
        values["data"] = base64.b64decode(values["data"])
    make: Callable[..., Part] = _PARTS[values["type"]]
    return make(**values)
