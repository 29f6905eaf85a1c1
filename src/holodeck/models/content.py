"""Content of tool results: text, image, audio and binary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

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
