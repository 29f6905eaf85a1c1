"""A conversation with everything in it, which each dialect must carry as well as it can."""

from __future__ import annotations

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
    text_message,
)
from holodeck.models.model_io import ToolSpec

PNG = ImageContent(data="aW1hZ2U=", mime_type="image/png")
PNG_URL = "data:image/png;base64,aW1hZ2U="
SOUND = AudioContent(data="c291bmQ=", mime_type="audio/wav")
PDF_URL = "data:application/pdf;base64,cGRm"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}

ADD = ToolSpec(name="add", description="Adds.", parameters=SCHEMA)
SHOT = ToolSpec(name="shot")
TOOLS = (ADD, SHOT)

PICTURES = Message(
    role="user",
    content=(
        TextContent(text="What is this?"),
        ImageLink(url=PNG_URL, detail="low"),
        ImageLink(url="https://example.com/a.png"),
        FileData(url=PDF_URL, filename="a.pdf"),
    ),
)
CALLS: tuple[Item, ...] = (
    text_message("user", "Add and look."),
    text_message("assistant", "I will."),
    FunctionCall(call_id="c1", name="add", arguments='{"a":1}'),
    FunctionCall(call_id="c2", name="shot", arguments=""),
    FunctionCallOutput(call_id="c1", content=(TextContent(text="no such number"),), is_error=True),
    FunctionCallOutput(call_id="c2", content=(TextContent(text="Here:"), PNG, SOUND)),
)
LINK = BinaryContent(
    uri="file:///a.bin", name="a.bin", mime_type="application/x", is_link=True, description="all of it"
)
BYTES = BinaryContent(data=b"12345", mime_type="application/zip", name="a.zip")
PICTURE_BYTES = BinaryContent(data=b"image", mime_type="image/png")
EMPTY_RESULT = (
    text_message("user", "go"),
    FunctionCall(call_id="c1", name="add", arguments="{}"),
    FunctionCallOutput(call_id="c1", content=()),
)
BROKEN_CALL = (
    text_message("user", "go"),
    FunctionCall(call_id="c1", name="add", arguments='{"a": 1,,'),
    FunctionCallOutput(call_id="c1", content=(TextContent(text="not JSON"),), is_error=True),
)
