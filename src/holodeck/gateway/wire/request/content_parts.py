"""Content parts of messages and tool outputs: built from their declared models, and written back."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from holodeck.gateway.api.model import APIModel
from holodeck.gateway.api.models.parts import (
    InputAudio,
    InputFile,
    InputImage,
    InputText,
    SentOutputText,
    SentRefusal,
)
from holodeck.gateway.wire.request.json_fields import refuse, refuse_missing
from holodeck.models.items import (
    AudioContent,
    BinaryContent,
    CacheMark,
    FileData,
    ImageContent,
    ImageLink,
    Part,
    TextContent,
)

WirePart = dict[str, Any]
AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}
"""MIME types by the audio formats of the API."""
CACHE_FIELD = "prompt_cache_breakpoint"
"""The mark of a part for the prompt cache of the model's provider."""
PartModel = InputText | InputImage | InputFile | InputAudio | SentOutputText | SentRefusal


def build_parts(
    content: str | Sequence[PartModel], sent: Any, path: str, *, is_assistant: bool = False
) -> tuple[tuple[Part, ...], list[WirePart]]:
    """Build the models of content, and its parts as the API lists them again.

    `sent`: the content as it was sent, at `path`. `is_assistant`: it is of a message of the assistant. Raises
    `BadRequestError`.
    """
    if isinstance(content, str):
        return (TextContent(text=content),), [text_to_wire(content, is_assistant=is_assistant)]
    parts: list[Part] = []
    wire_parts: list[WirePart] = []
    for index, each in enumerate(content):
        part = _PART_BUILDERS[type(each)](each, f"{path}[{index}]")
        parts.append(part)
        is_as_sent = isinstance(each, SentRefusal | InputAudio)
        wire_parts.append(dict(sent[index]) if is_as_sent else part_to_wire(part, is_assistant=is_assistant))
    return tuple(parts), wire_parts


class LinkURL(str):
    """The URL of an image that the model's provider would fetch, with the path of its field in the request."""

    __slots__ = ("param",)

    def __new__(cls, url: str, param: str) -> Self:
        link = super().__new__(cls, url)
        link.param = param
        return link

    param: str


def mark_link(url: str, where: str) -> str:
    """Return the URL of an image at `where`: a `LinkURL` if it is a link, whose host is judged later."""
    return url if url.startswith("data:") else LinkURL(url, where)


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


def _mark_of(part: InputText | InputImage | InputFile) -> CacheMark | None:
    mark = part.prompt_cache_breakpoint
    return None if mark is None else {CACHE_FIELD: mark}


def _build_text(part: InputText, where: str) -> Part:
    return TextContent(text=part.text, cache_mark=_mark_of(part))


def _build_image(part: InputImage, where: str) -> Part:
    url = mark_link(part.image_url, f"{where}.image_url")
    return ImageLink(url=url, detail=part.detail or "auto", cache_mark=_mark_of(part))


def _build_file(part: InputFile, where: str) -> Part:
    name, data, url = part.filename, part.file_data, part.file_url
    if data is not None and url is not None:
        refuse(f"Give only one of '{where}.file_data' and '{where}.file_url'.", f"{where}.file_url")
    if data is not None:
        url = data if data.startswith("data:") else _to_data_url(data, name)
    if url is None:
        refuse_missing(f"{where}.file_data")
    return FileData(url=url, filename=name, cache_mark=_mark_of(part))


def _to_data_url(data: str, name: str | None) -> str:
    kind = mimetypes.guess_type(name or "")[0] or "application/octet-stream"
    return f"data:{kind};base64,{data}"


_PART_BUILDERS: Mapping[type[APIModel], Callable[[Any, str], Part]] = {
    InputText: _build_text,
    InputImage: _build_image,
    InputFile: _build_file,
    InputAudio: lambda part, _: AudioContent(
        data=part.input_audio.data, mime_type=AUDIO_TYPES[part.input_audio.format]
    ),
    SentOutputText: lambda part, _: TextContent(text=part.text),
    SentRefusal: lambda part, _: TextContent(text=part.refusal),
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
