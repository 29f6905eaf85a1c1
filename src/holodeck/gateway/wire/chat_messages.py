"""`messages` of the older API: to what the engine talks about."""

from __future__ import annotations

from typing import Any, Literal, cast

from holodeck.gateway.wire.fields import Fields, not_one_of, refuse, unsupported, wrong_type
from holodeck.gateway.wire.reading import Input
from holodeck.lib.limits import (
    MAX_CALL_ID_CHARS,
    MAX_FILE_DATA_CHARS,
    MAX_IDENTIFIER_CHARS,
    MAX_IMAGE_URL_CHARS,
    MAX_INPUT_ITEMS,
    MAX_INPUT_TEXT_CHARS,
    MAX_TOOL_NAME_CHARS,
)
from holodeck.models.content import AudioContent, TextContent
from holodeck.models.items import FileData, FunctionCall, FunctionCallOutput, ImageLink, Message, Part, Reasoning, Role

_ROLES = ("system", "developer", "user", "assistant", "tool")
_PARTS = ("text", "image_url", "input_audio", "file")
_SOUNDS = {"wav": "audio/wav", "mp3": "audio/mpeg"}
REASONING_FIELD = "reasoning_content"
"""In which many servers of this API send thoughts, and so do we."""
_OF_OUR_MESSAGE = ("role", "refusal", "annotations", "tool_calls", REASONING_FIELD)
"""What stood beside the text in our answer: the agents of OpenAI's npm package send it back as a part of the text."""


def read_messages(fields: Fields) -> Input:
    """Raises `BadRequestError`."""
    if not fields.has("messages"):
        fields.missing("messages")
    into = Input()
    for message in fields.objects("messages", longest=MAX_INPUT_ITEMS):
        role = message.choice("role", _ROLES) or message.missing("role")
        message.refuse_given("Use 'tool_calls'.", "function_call")
        message.refuse_given("This gateway does not speak.", "audio")
        if role == "assistant":
            _spoken(message, into)
        elif role == "tool":
            _result(message, into)
        else:
            content = _content(message, _PARTS if role == "user" else ("text",))
            into.items.append(Message(role=cast(Role, role), content=content, name=_name(message)))
        message.done()
    if not into.items:
        refuse("Invalid 'messages': empty array. Expected at least one message.", "messages", "empty_array")
    return into


def _spoken(message: Fields, into: Input) -> None:
    name = _name(message)
    message.array("annotations")
    message.take("parsed")
    message.take("provider_specific_fields")  # where LiteLLM keeps our thoughts a second time, and sends them along
    thoughts = message.text(REASONING_FIELD)
    if thoughts:
        into.items.append(Reasoning(text=thoughts, opaque={"chat": REASONING_FIELD}))
    refusal = message.text("refusal")
    content = _content(message, ("text", "refusal")) if message.has("content") else ()
    message.take("content")
    if refusal:
        content = (*content, TextContent(text=refusal))
    if any(isinstance(part, TextContent) and part.text for part in content):
        into.items.append(Message(role="assistant", content=content, name=name))
    calls = list(message.objects("tool_calls"))
    if not content and not calls:
        message.missing("content")
    into.items += [_call(call) for call in calls]


def _name(message: Fields) -> str:
    return message.text("name", longest=MAX_IDENTIFIER_CHARS) or ""


def _call(fields: Fields) -> FunctionCall:
    kind = fields.text("type") or "function"
    if kind != "function":
        not_one_of(fields.at("type"), kind, ("function",))
    fields.take("index")
    call_id = fields.required("id", longest=MAX_CALL_ID_CHARS, may_be_empty=False)
    function = fields.object("function") or fields.missing("function")
    name = function.required("name", longest=2 * MAX_TOOL_NAME_CHARS, may_be_empty=False)
    arguments = function.required("arguments")
    function.take("parsed_arguments")
    function.done()
    fields.done()
    return FunctionCall(call_id=call_id, name=name, arguments=arguments)


def _result(message: Fields, into: Input) -> None:
    message.text("name")  # of the function, which the call has said already
    call_id = message.required("tool_call_id", longest=MAX_CALL_ID_CHARS, may_be_empty=False)
    into.items.append(FunctionCallOutput(call_id=call_id, content=_content(message, ("text", "image_url"))))


def _content(message: Fields, kinds: tuple[str, ...]) -> tuple[Part, ...]:
    value, role = message.value.get("content"), message.value.get("role")
    if isinstance(value, str):
        return (TextContent(text=message.required("content", longest=MAX_INPUT_TEXT_CHARS)),)
    if value is None:
        message.missing("content")
    if not isinstance(value, list):
        wrong_type(message.at("content"), "a string or an array of parts", value)
    parts = []
    for part in message.objects("content"):
        kind = part.required("type")
        if kind not in kinds:
            not_one_of(part.at("type"), kind, kinds)
        part.refuse_given("This gateway has no prompt cache of its own.", "prompt_cache_breakpoint")
        parts.append(_part(part, kind))
        if role == "assistant":
            for key in _OF_OUR_MESSAGE:
                part.take(key)
        part.done()
    return tuple(parts)


def _part(part: Fields, kind: str) -> Part:
    if kind in ("text", "refusal"):
        part.take("parsed")
        return TextContent(text=part.required(kind, longest=MAX_INPUT_TEXT_CHARS))
    key = "file" if kind == "file" else kind
    inner = part.object(key) or part.missing(key)
    made = _image(inner) if kind == "image_url" else _sound(inner) if kind == "input_audio" else _file(inner)
    inner.done()
    return made


def _image(fields: Fields) -> Part:
    url = fields.required("url", longest=MAX_IMAGE_URL_CHARS)
    if not url.startswith(("https://", "http://", "data:image/")):
        where = fields.at("url")
        refuse(f"Invalid '{where}': expected an http or https URL, or a data URL with an image.", where, "invalid_url")
    detail: Any = fields.choice("detail", ("auto", "low", "high")) or "auto"
    return ImageLink(url=url, detail=cast(Literal["auto", "low", "high"], detail))


def _sound(fields: Fields) -> Part:
    kind = fields.choice("format", _SOUNDS) or fields.missing("format")
    return AudioContent(data=fields.required("data", longest=MAX_FILE_DATA_CHARS), mime_type=_SOUNDS[kind])


def _file(fields: Fields) -> Part:
    if fields.has("file_id"):
        unsupported(fields.at("file_id"), "This gateway stores no files: send the content itself.")
    data = fields.required("file_data", longest=MAX_FILE_DATA_CHARS)
    url = data if data.startswith("data:") else f"data:application/octet-stream;base64,{data}"
    return FileData(url=url, filename=fields.text("filename"))
