"""The items of a conversation, the blocks of their content, and the JSON form in which both are stored.

The APIs of the gateway and the dialects of models translate to and from these. Decoding an encoded item yields an equal
one, bytes included.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from typing import Any, Literal

import orjson

from holodeck.lib.record import record

CacheMark = Mapping[str, Any]
"""A client's mark for the prompt cache of a model's provider: fields by the names of one API, such as `cache_control`.

Dialects write those that they have, as they were sent, and leave out the others.
"""


@record
class TextContent:
    """Text. A text resource has its `uri`."""

    text: str
    uri: str | None = None
    mime_type: str | None = None
    cache_mark: CacheMark | None = field(default=None, hash=False)
    type: Literal["text"] = "text"


@record
class ImageContent:
    """An image; `data` is base64, as received."""

    data: str
    mime_type: str
    type: Literal["image"] = "image"


@record
class AudioContent:
    """A sound; `data` is base64, as received."""

    data: str
    mime_type: str
    type: Literal["audio"] = "audio"


@record
class BinaryContent:
    """The bytes of a resource, or a link to it, which has a `uri` and no data and is never fetched automatically."""

    data: bytes = b""
    mime_type: str | None = None
    uri: str | None = None
    name: str | None = None
    description: str | None = None
    is_link: bool = False
    type: Literal["binary"] = "binary"


ContentBlock = TextContent | ImageContent | AudioContent | BinaryContent


def describe_block(block: ContentBlock) -> str:
    """Return the text of a text block, and one line with the type and size of any other."""
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return f"[{block.type}: {block.mime_type}, {base64_size(block.data)} bytes]"
        case BinaryContent():
            what = block.mime_type or "unknown type"
            size = "" if block.is_link else f", {len(block.data)} bytes"
            return f"[resource: {block.uri or 'no uri'} ({what}{size})]"


def base64_size(data: str) -> int:
    """Return the number of bytes that base64 text stands for."""
    return len(data) * 3 // 4 - data[-2:].count("=")


Role = Literal["system", "developer", "user", "assistant"]


@record
class ImageLink:
    """An image of a user message: its URL, or its bytes as a `data:` URL."""

    url: str
    detail: Literal["auto", "low", "high", "original"] = "auto"
    cache_mark: CacheMark | None = field(default=None, hash=False)
    type: Literal["image_link"] = "image_link"


@record
class FileData:
    """A file of a user message: its URL, or its bytes as a `data:` URL."""

    url: str
    filename: str | None = None
    cache_mark: CacheMark | None = field(default=None, hash=False)
    type: Literal["file"] = "file"


Part = ContentBlock | ImageLink | FileData


@record
class Message:
    """A message of one role."""

    role: Role
    content: tuple[Part, ...]
    id: str = ""
    name: str = ""
    """The participant, where several share a role. Dialects without such names omit it."""
    type: Literal["message"] = "message"

    @property
    def text(self) -> str:
        """The text parts, joined; images and files are omitted."""
        content = self.content
        if len(content) == 1 and isinstance(content[0], TextContent):
            # Nearly all messages: joining one text takes three times as long.
            return content[0].text
        return "".join(part.text for part in content if isinstance(part, TextContent))


@record
class FunctionCall:
    """A tool call as the model wrote it: `arguments` is text that may be invalid JSON."""

    call_id: str
    name: str
    arguments: str
    id: str = ""
    cache_mark: CacheMark | None = field(default=None, hash=False)
    type: Literal["function_call"] = "function_call"


@record
class FunctionCallOutput:
    """The result of a tool call, as sent to the model."""

    call_id: str
    content: tuple[Part, ...]
    is_error: bool = False
    id: str = ""
    cache_mark: CacheMark | None = field(default=None, hash=False)
    type: Literal["function_call_output"] = "function_call_output"


@record
class Reasoning:
    """Reasoning of a model before its answer. `opaque` is sent back to the same provider unchanged."""

    text: str = ""
    summary: str = ""
    opaque: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""
    type: Literal["reasoning"] = "reasoning"


@record
class Compaction:
    """Replaces all items before it in a run. Models get its `items`: see `apply_compaction`."""

    items: tuple[Message | FunctionCall | FunctionCallOutput | Reasoning | Compaction, ...]
    """A summary, and the items that were kept."""
    encrypted_content: str = ""
    """The same for the client, which stores it and sends it back."""
    is_truncated: bool = False
    """True when items were left out without a summary."""
    id: str = ""
    type: Literal["compaction"] = "compaction"


Item = Message | FunctionCall | FunctionCallOutput | Reasoning | Compaction


@record
class Usage:
    """Tokens, summed over the turns of a run."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Of the input, tokens that the provider read from its cache."""
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0
    """Of the input, tokens that the provider has stored in its cache for later requests."""
    cache_write_1h_tokens: int = 0
    """Of those, tokens that it stores for an hour; the others it stores for minutes."""
    estimated_tokens: int = 0
    """Of the input and the output, tokens that the provider did not tell, since it was left before: estimated by what
    was sent and received."""

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            cache_write_1h_tokens=self.cache_write_1h_tokens + other.cache_write_1h_tokens,
            estimated_tokens=self.estimated_tokens + other.estimated_tokens,
        )


def apply_compaction(items: Sequence[Item]) -> tuple[Item, ...]:
    """Return the items from the last compaction on, with its content in its place; all items if there is none."""
    for index in reversed(range(len(items))):
        item = items[index]
        if isinstance(item, Compaction):
            return (*item.items, *items[index + 1 :])
    return tuple(items)


def place_outputs_after_calls(items: Sequence[Item]) -> tuple[Item, ...]:
    """Return the items with each output moved before any message of a user that follows its call.

    Model APIs require that, and that all outputs of parallel calls come before any other item. Adjacent outputs are in
    the order of their calls.
    """
    outputs = {item.call_id: item for item in items if isinstance(item, FunctionCallOutput)}
    if not outputs:
        return tuple(items)
    pending: dict[str, FunctionCallOutput] = {}
    early: set[str] = set()
    order: dict[str, int] = {}
    placed: list[Item] = []
    together: list[FunctionCallOutput] = []
    for index, item in enumerate(items):
        if isinstance(item, FunctionCallOutput):
            pending.pop(item.call_id, None)
            if item.call_id not in early:
                together.append(item)
            continue
        if pending and (together or (isinstance(item, Message) and item.role != "assistant")):
            together += pending.values()
            early |= pending.keys()
            pending.clear()
        if isinstance(item, FunctionCall):
            order[item.call_id] = index
            if item.call_id in outputs:
                pending[item.call_id] = outputs[item.call_id]
        if together:
            placed += _sort_by_call(together, order)
            together = []
        placed.append(item)
    return (*placed, *_sort_by_call(together, order))


def _sort_by_call(outputs: list[FunctionCallOutput], order: Mapping[str, int]) -> list[FunctionCallOutput]:
    if len(outputs) < 2:  # noqa: PLR2004 - nothing to sort
        return outputs
    return sorted(outputs, key=lambda output: order.get(output.call_id, -1))


def output_id(call: FunctionCall) -> str:
    """Return the id of a call's output: the same for the same call, also when a durable run is replayed.

    Empty for a call without an id.
    """
    stem = call.id.partition("_")[2]
    return f"out_{stem}" if stem else ""


def text_message(role: Role, text: str) -> Message:
    """Build a message of plain text."""
    return Message(role=role, content=(TextContent(text=text),))


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
