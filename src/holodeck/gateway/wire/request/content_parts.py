"""Content parts of messages and tool outputs: read from the wire into models, and written back."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Callable, Sequence
from typing import Any, Literal, Self, cast

from holodeck.gateway.wire.request.field_table import NO_FILES
from holodeck.gateway.wire.request.json_fields import (
    JSONFields,
    refuse,
    refuse_choice,
    refuse_type,
    refuse_unsupported,
)
from holodeck.lib.limits import MAX_FILE_DATA_CHARS, MAX_IMAGE_URL_CHARS, MAX_INPUT_TEXT_CHARS
from holodeck.models.content import AudioContent, BinaryContent, ImageContent, TextContent
from holodeck.models.items import FileData, ImageLink, Part

WirePart = dict[str, Any]
AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}
"""MIME types by the audio formats of the API."""
CACHE_FIELD = "prompt_cache_breakpoint"
"""The mark of a part for the prompt cache of the model's provider."""
_DETAILS = ("auto", "low", "high")
IMAGE_DETAILS = (*_DETAILS, "original")


def read_parts(value: object, path: str, *, is_assistant: bool = False) -> tuple[tuple[Part, ...], list[WirePart]]:
    """Read content, a string or an array of parts. Returns the models, and the parts as the API lists them again.

    `is_assistant`: the content is of a message of the assistant. Raises `BadRequestError`.
    """
    if isinstance(value, str):
        if len(value) > MAX_INPUT_TEXT_CHARS:
            message = f"Invalid '{path}': string too long. Expected at most {MAX_INPUT_TEXT_CHARS} characters."
            refuse(message, path, "string_above_max_length")
        return (TextContent(text=value),), [text_to_wire(value, is_assistant=is_assistant)]
    if not isinstance(value, list):
        refuse_type(path, "a string or an array of parts", value)
    readers = _ASSISTANT_PART_READERS if is_assistant else _INPUT_PART_READERS
    parts: list[Part] = []
    wire_parts: list[WirePart] = []
    for index, each in enumerate(value):
        fields = JSONFields(each, f"{path}[{index}]")
        kind = fields.require_text("type")
        if kind not in readers:
            refuse_choice(fields.path_of("type"), kind, tuple(readers))
        part = readers[kind](fields)
        fields.refuse_unread()
        parts.append(part)
        wire_parts.append(
            dict(each) if kind in ("refusal", "input_audio") else part_to_wire(part, is_assistant=is_assistant)
        )
    return tuple(parts), wire_parts


class LinkURL(str):
    """The URL of an image that the model's provider would fetch, with the path of its field in the request."""

    __slots__ = ("param",)

    def __new__(cls, url: str, param: str) -> Self:
        link = super().__new__(cls, url)
        link.param = param
        return link

    param: str


def read_image_url(fields: JSONFields, key: str) -> str:
    """Read the URL of an image. A link is a `LinkURL`, whose host is judged when the request is prepared."""
    url = fields.require_text(key, max_length=MAX_IMAGE_URL_CHARS)
    if url.startswith("data:image/"):
        return url
    where = fields.path_of(key)
    if not url.startswith(("https://", "http://")):
        refuse(f"Invalid '{where}': expected an http or https URL, or a data URL with an image.", where, "invalid_url")
    return LinkURL(url, where)


def text_to_wire(text: str, *, is_assistant: bool) -> WirePart:
    if is_assistant:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "input_text", "text": text}


def part_to_wire(part: Part, *, is_assistant: bool = False) -> WirePart:
    match part:
        case TextContent(text=text):
            return text_to_wire(text, is_assistant=is_assistant)
        case ImageLink(url=url, detail=detail):
            # Plain text: the path of a `LinkURL` is of the request, not of the item.
            return {"type": "input_image", "image_url": str(url), "detail": detail}
        case ImageContent(data=data, mime_type=kind):
            return {"type": "input_image", "image_url": f"data:{kind};base64,{data}", "detail": "auto"}
        case AudioContent(data=data, mime_type=kind):
            return {"type": "input_file", "filename": "audio", "file_data": f"data:{kind};base64,{data}"}
        case FileData(url=url, filename=filename):
            where = "file_data" if url.startswith("data:") else "file_url"
            return {"type": "input_file", **({"filename": filename} if filename else {}), where: url}
        case BinaryContent():
            return _resource_to_wire(part)


def output_to_wire(content: Sequence[Part]) -> str | list[WirePart]:
    """Return the output of a tool: a string if it is only text, since every client knows that form, otherwise parts."""
    texts = [part.text for part in content if isinstance(part, TextContent)]
    return "\n".join(texts) if len(texts) == len(content) else [part_to_wire(part) for part in content]


def _read_input_text(fields: JSONFields) -> Part:
    text = fields.require_text("text", max_length=MAX_INPUT_TEXT_CHARS)
    return TextContent(text=text, cache_mark=fields.get_cache_mark(CACHE_FIELD))


def _read_output_text(fields: JSONFields) -> Part:
    # SDKs store the parsed text beside it, and send it back.
    fields.pop("parsed")
    fields.get_array("annotations")
    fields.get_array("logprobs")
    return TextContent(text=fields.require_text("text", max_length=MAX_INPUT_TEXT_CHARS))


def _read_refusal(fields: JSONFields) -> Part:
    return TextContent(text=fields.require_text("refusal", max_length=MAX_INPUT_TEXT_CHARS))


def _read_image(fields: JSONFields) -> Part:
    fields.refuse_present(NO_FILES, "file_id")
    url = read_image_url(fields, "image_url")
    detail = fields.get_choice("detail", IMAGE_DETAILS) or "auto"
    return ImageLink(
        url=url,
        detail=cast(Literal["auto", "low", "high", "original"], detail),
        cache_mark=fields.get_cache_mark(CACHE_FIELD),
    )


def _read_file(fields: JSONFields) -> Part:
    fields.refuse_present(NO_FILES, "file_id")
    mark = fields.get_cache_mark(CACHE_FIELD)
    if fields.get_choice("detail", _DETAILS) not in (None, "auto"):
        refuse_unsupported(fields.path_of("detail"), "A file is handed on as it is.")
    name = fields.get_text("filename")
    data, url = fields.get_text("file_data", max_length=MAX_FILE_DATA_CHARS), fields.get_text("file_url")
    if data is not None and url is not None:
        refuse(
            f"Give only one of '{fields.path_of('file_data')}' and '{fields.path_of('file_url')}'.",
            fields.path_of("file_url"),
        )
    if data is not None:
        return FileData(
            url=data if data.startswith("data:") else _to_data_url(data, name), filename=name, cache_mark=mark
        )
    if url is None:
        fields.refuse_missing("file_data")
    if not url.startswith(("https://", "http://")):
        where = fields.path_of("file_url")
        refuse(f"Invalid '{where}': expected an http or https URL.", where, "invalid_url")
    return FileData(url=url, filename=name, cache_mark=mark)


def _to_data_url(data: str, name: str | None) -> str:
    kind = mimetypes.guess_type(name or "")[0] or "application/octet-stream"
    return f"data:{kind};base64,{data}"


def _read_audio(fields: JSONFields) -> Part:
    # No model that takes sounds has a cache of them.
    fields.get_mapping(CACHE_FIELD)
    sound = fields.get_object("input_audio")
    if sound is None:
        fields.refuse_missing("input_audio")
    data = sound.require_text("data", max_length=MAX_FILE_DATA_CHARS)
    kind = sound.get_choice("format", AUDIO_TYPES) or sound.refuse_missing("format")
    sound.refuse_unread()
    return AudioContent(data=data, mime_type=AUDIO_TYPES[kind])


_INPUT_PART_READERS: dict[str, Callable[[JSONFields], Part]] = {
    "input_text": _read_input_text,
    "input_image": _read_image,
    "input_file": _read_file,
    "input_audio": _read_audio,
    "output_text": _read_output_text,
    "refusal": _read_refusal,
}
_ASSISTANT_PART_READERS: dict[str, Callable[[JSONFields], Part]] = {
    "output_text": _read_output_text,
    "refusal": _read_refusal,
    "input_text": _read_input_text,
}


def _resource_to_wire(part: BinaryContent) -> WirePart:
    name = part.name or part.uri or "resource"
    if part.is_link:
        if part.uri and part.uri.startswith(("https://", "http://")):
            return {"type": "input_file", "filename": name, "file_url": part.uri}
        return {"type": "input_text", "text": f"[resource: {part.uri or name}]"}
    data = base64.b64encode(part.data).decode()
    kind = part.mime_type or "application/octet-stream"
    return {"type": "input_file", "filename": name, "file_data": f"data:{kind};base64,{data}"}
