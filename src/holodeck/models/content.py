"""Content of tool results: text, image, audio and binary."""

from __future__ import annotations

from typing import Literal

from holodeck.lib.record import record


@record
class TextContent:
    """Text. A text resource has its `uri`."""

    text: str
    uri: str | None = None
    mime_type: str | None = None
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
