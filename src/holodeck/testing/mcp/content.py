"""The content blocks of the normal tools: small, valid, one of every kind."""

from __future__ import annotations

from typing import Any

from holodeck.testing.mcp.actions import Message

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A PNG of one pixel, in base64."""
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
"""A WAV without samples, in base64."""
BLOB = "AAECAwT/"
"""The bytes 0, 1, 2, 3, 4, 255, in base64."""


def text_block(value: str) -> Message:
    """Return a text block."""
    return {"type": "text", "text": value}


IMAGE: Message = {"type": "image", "data": PNG, "mimeType": "image/png"}
AUDIO: Message = {"type": "audio", "data": WAV, "mimeType": "audio/wav"}
RESOURCE_TEXT: Message = {
    "type": "resource",
    "resource": {"uri": "test://notes.txt", "mimeType": "text/plain", "text": "notes"},
}
RESOURCE_BLOB: Message = {
    "type": "resource",
    "resource": {"uri": "test://data.bin", "mimeType": "application/octet-stream", "blob": BLOB},
}
RESOURCE_LINK: Message = {
    "type": "resource_link",
    "uri": "test://far.pdf",
    "name": "far.pdf",
    "mimeType": "application/pdf",
}

BLOCKS: dict[str, list[Message]] = {
    "image": [IMAGE],
    "audio": [AUDIO],
    "resource_text": [RESOURCE_TEXT],
    "resource_blob": [RESOURCE_BLOB],
    "resource_link": [RESOURCE_LINK],
    "many_blocks": [text_block("first"), IMAGE, AUDIO, RESOURCE_TEXT, RESOURCE_BLOB, RESOURCE_LINK, text_block("last")],
}
"""The tools whose answer is the same every time."""


def tool_result(*blocks: Message, **more: Any) -> Message:
    """Return a tool's result with these blocks."""
    return {"content": list(blocks), **more}
