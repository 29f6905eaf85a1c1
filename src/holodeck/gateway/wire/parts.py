"""The parts of a message or of a tool's output: from the wire to the engine, and back."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

from holodeck.gateway.wire.fields import Fields, not_one_of, refuse, unsupported, wrong_type
from holodeck.lib.limits import MAX_FILE_DATA_CHARS, MAX_IMAGE_URL_CHARS, MAX_INPUT_TEXT_CHARS
from holodeck.models.content import AudioContent, BinaryContent, ImageContent, TextContent
from holodeck.models.items import FileData, ImageLink, Part

WirePart = dict[str, Any]

_NO_FILES = "This gateway stores no files: send the content itself, or its URL."
_NO_BREAKPOINTS = "This gateway has no prompt cache of its own."
_DETAILS = ("auto", "low", "high")
_IMAGE_DETAILS = (*_DETAILS, "original")
_SOUNDS = {"wav": "audio/wav", "mp3": "audio/mpeg"}


def read_parts(value: object, path: str, *, is_assistant: bool = False) -> tuple[tuple[Part, ...], list[WirePart]]:
    """Content as a string or as an array of parts: for the engine, and in the form in which it is shown again."""
    if isinstance(value, str):
        if len(value) > MAX_INPUT_TEXT_CHARS:
            message = f"Invalid '{path}': string too long. Expected at most {MAX_INPUT_TEXT_CHARS} characters."
            refuse(message, path, "string_above_max_length")
        return (TextContent(text=value),), [shown_text(value, is_assistant=is_assistant)]
    if not isinstance(value, list):
        wrong_type(path, "a string or an array of parts", value)
    readers = _SPOKEN if is_assistant else _GIVEN
    parts: list[Part] = []
    shown: list[WirePart] = []
    for index, each in enumerate(value):
        fields = Fields(each, f"{path}[{index}]")
        kind = fields.required("type")
        if kind not in readers:
            not_one_of(fields.at("type"), kind, tuple(readers))
        part = readers[kind](fields)
        fields.done()
        parts.append(part)
        shown.append(dict(each) if kind in ("refusal", "input_audio") else show_part(part, is_assistant=is_assistant))
    return tuple(parts), shown


def shown_text(text: str, *, is_assistant: bool) -> WirePart:
    if is_assistant:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "input_text", "text": text}


def show_part(part: Part, *, is_assistant: bool = False) -> WirePart:
    """A part as the wire has it."""
    match part:
        case TextContent(text=text):
            return shown_text(text, is_assistant=is_assistant)
        case ImageLink(url=url, detail=detail):
            return {"type": "input_image", "image_url": url, "detail": detail}
        case ImageContent(data=data, mime_type=kind):
            return {"type": "input_image", "image_url": f"data:{kind};base64,{data}", "detail": "auto"}
        case AudioContent(data=data, mime_type=kind):
            return {"type": "input_file", "filename": "audio", "file_data": f"data:{kind};base64,{data}"}
        case FileData(url=url, filename=filename):
            where = "file_data" if url.startswith("data:") else "file_url"
            return {"type": "input_file", **({"filename": filename} if filename else {}), where: url}
        case BinaryContent():
            return _shown_resource(part)


def show_output(content: Sequence[Part]) -> str | list[WirePart]:
    """What a tool gave: a string when it is only text, which every client knows."""
    texts = [part.text for part in content if isinstance(part, TextContent)]
    return "\n".join(texts) if len(texts) == len(content) else [show_part(part) for part in content]


def _shown_resource(part: BinaryContent) -> WirePart:
    name = part.name or part.uri or "resource"
    if part.is_link:
        if part.uri and part.uri.startswith(("https://", "http://")):
            return {"type": "input_file", "filename": name, "file_url": part.uri}
        return {"type": "input_text", "text": f"[resource: {part.uri or name}]"}
    data = base64.b64encode(part.data).decode()
    kind = part.mime_type or "application/octet-stream"
    return {"type": "input_file", "filename": name, "file_data": f"data:{kind};base64,{data}"}


def _text(fields: Fields) -> Part:
    fields.refuse_given(_NO_BREAKPOINTS, "prompt_cache_breakpoint")
    return TextContent(text=fields.required("text", longest=MAX_INPUT_TEXT_CHARS))


def _said(fields: Fields) -> Part:
    fields.take("parsed")  # SDKs keep what they made of the text beside it, and send it along
    fields.array("annotations")
    fields.array("logprobs")
    return TextContent(text=fields.required("text", longest=MAX_INPUT_TEXT_CHARS))


def _refusal(fields: Fields) -> Part:
    return TextContent(text=fields.required("refusal", longest=MAX_INPUT_TEXT_CHARS))


def _image(fields: Fields) -> Part:
    fields.refuse_given(_NO_FILES, "file_id")
    fields.refuse_given(_NO_BREAKPOINTS, "prompt_cache_breakpoint")
    url = fields.required("image_url", longest=MAX_IMAGE_URL_CHARS)
    if not url.startswith(("https://", "http://", "data:image/")):
        where = fields.at("image_url")
        refuse(f"Invalid '{where}': expected an http or https URL, or a data URL with an image.", where, "invalid_url")
    detail = fields.choice("detail", _IMAGE_DETAILS) or "auto"
    return ImageLink(url=url, detail=cast(Literal["auto", "low", "high", "original"], detail))


def _file(fields: Fields) -> Part:
    fields.refuse_given(_NO_FILES, "file_id")
    fields.refuse_given(_NO_BREAKPOINTS, "prompt_cache_breakpoint")
    if fields.choice("detail", _DETAILS) not in (None, "auto"):
        unsupported(fields.at("detail"), "A file is handed on as it is.")
    name = fields.text("filename")
    data, url = fields.text("file_data", longest=MAX_FILE_DATA_CHARS), fields.text("file_url")
    if data is not None and url is not None:
        refuse(f"Give only one of '{fields.at('file_data')}' and '{fields.at('file_url')}'.", fields.at("file_url"))
    if data is not None:
        return FileData(url=data if data.startswith("data:") else _data_url(data, name), filename=name)
    if url is None:
        fields.missing("file_data")
    if not url.startswith(("https://", "http://")):
        where = fields.at("file_url")
        refuse(f"Invalid '{where}': expected an http or https URL.", where, "invalid_url")
    return FileData(url=url, filename=name)


def _data_url(data: str, name: str | None) -> str:
    kind = mimetypes.guess_type(name or "")[0] or "application/octet-stream"
    return f"data:{kind};base64,{data}"


def _sound(fields: Fields) -> Part:
    fields.refuse_given(_NO_BREAKPOINTS, "prompt_cache_breakpoint")
    sound = fields.object("input_audio")
    if sound is None:
        fields.missing("input_audio")
    data = sound.required("data", longest=MAX_FILE_DATA_CHARS)
    kind = sound.choice("format", _SOUNDS) or sound.missing("format")
    sound.done()
    return AudioContent(data=data, mime_type=_SOUNDS[kind])


_GIVEN: dict[str, Callable[[Fields], Part]] = {
    "input_text": _text,
    "input_image": _image,
    "input_file": _file,
    "input_audio": _sound,
    "output_text": _said,
    "refusal": _refusal,
}
_SPOKEN: dict[str, Callable[[Fields], Part]] = {"output_text": _said, "refusal": _refusal, "input_text": _text}
