"""`messages` of the older API: to what the engine talks about."""

from __future__ import annotations

from typing import Any, Literal, cast

from holodeck.gateway.wire.request.json_fields import JSONFields, refuse, refuse_choice, refuse_type, refuse_unsupported
from holodeck.gateway.wire.request.parsed_input import Input
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
_USER_PART_TYPES = ("text", "image_url", "input_audio", "file")
_CHAT_AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}
REASONING_FIELD = "reasoning_content"
"""In which many servers of this API send thoughts, and so do we."""
_ANSWER_FIELDS = ("role", "refusal", "annotations", "tool_calls", REASONING_FIELD)
"""What stood beside the text in our answer: the agents of OpenAI's npm package send it back as a part of the text."""


def read_messages(fields: JSONFields) -> Input:
    """Raises `BadRequestError`."""
    if not fields.has("messages"):
        fields.refuse_missing("messages")
    into = Input()
    for message in fields.iter_objects("messages", max_length=MAX_INPUT_ITEMS):
        role = message.get_choice("role", _ROLES) or message.refuse_missing("role")
        message.refuse_present("Use 'tool_calls'.", "function_call")
        message.refuse_present("This gateway does not speak.", "audio")
        if role == "assistant":
            _read_assistant_message(message, into)
        elif role == "tool":
            _read_tool_result(message, into)
        else:
            content = _read_content(message, _USER_PART_TYPES if role == "user" else ("text",))
            into.items.append(Message(role=cast(Role, role), content=content, name=_read_author_name(message)))
        message.refuse_unread()
    if not into.items:
        refuse("Invalid 'messages': empty array. Expected at least one message.", "messages", "empty_array")
    return into


def _read_assistant_message(message: JSONFields, into: Input) -> None:
    name = _read_author_name(message)
    message.get_array("annotations")
    message.pop("parsed")
    message.pop("provider_specific_fields")  # where LiteLLM keeps our thoughts a second time, and sends them along
    thoughts = message.get_text(REASONING_FIELD)
    if thoughts:
        into.items.append(Reasoning(text=thoughts, opaque={"chat": REASONING_FIELD}))
    refusal = message.get_text("refusal")
    content = _read_content(message, ("text", "refusal")) if message.has("content") else ()
    message.pop("content")
    if refusal:
        content = (*content, TextContent(text=refusal))
    if any(isinstance(part, TextContent) and part.text for part in content):
        into.items.append(Message(role="assistant", content=content, name=name))
    calls = list(message.iter_objects("tool_calls"))
    if not content and not calls:
        message.refuse_missing("content")
    into.items += [_read_tool_call(call) for call in calls]


def _read_author_name(message: JSONFields) -> str:
    return message.get_text("name", max_length=MAX_IDENTIFIER_CHARS) or ""


def _read_tool_call(fields: JSONFields) -> FunctionCall:
    kind = fields.get_text("type") or "function"
    if kind != "function":
        refuse_choice(fields.path_of("type"), kind, ("function",))
    fields.pop("index")
    call_id = fields.require_text("id", max_length=MAX_CALL_ID_CHARS, may_be_empty=False)
    function = fields.get_object("function") or fields.refuse_missing("function")
    name = function.require_text("name", max_length=2 * MAX_TOOL_NAME_CHARS, may_be_empty=False)
    arguments = function.require_text("arguments")
    function.pop("parsed_arguments")
    function.refuse_unread()
    fields.refuse_unread()
    return FunctionCall(call_id=call_id, name=name, arguments=arguments)


def _read_tool_result(message: JSONFields, into: Input) -> None:
    message.get_text("name")  # of the function, which the call has said already
    call_id = message.require_text("tool_call_id", max_length=MAX_CALL_ID_CHARS, may_be_empty=False)
    into.items.append(FunctionCallOutput(call_id=call_id, content=_read_content(message, ("text", "image_url"))))


def _read_content(message: JSONFields, kinds: tuple[str, ...]) -> tuple[Part, ...]:
    value, role = message.value.get("content"), message.value.get("role")
    if isinstance(value, str):
        return (TextContent(text=message.require_text("content", max_length=MAX_INPUT_TEXT_CHARS)),)
    if value is None:
        message.refuse_missing("content")
    if not isinstance(value, list):
        refuse_type(message.path_of("content"), "a string or an array of parts", value)
    parts = []
    for part in message.iter_objects("content"):
        kind = part.require_text("type")
        if kind not in kinds:
            refuse_choice(part.path_of("type"), kind, kinds)
        part.refuse_present("This gateway has no prompt cache of its own.", "prompt_cache_breakpoint")
        parts.append(_read_part(part, kind))
        if role == "assistant":
            for key in _ANSWER_FIELDS:
                part.pop(key)
        part.refuse_unread()
    return tuple(parts)


def _read_part(part: JSONFields, kind: str) -> Part:
    if kind in ("text", "refusal"):
        part.pop("parsed")
        return TextContent(text=part.require_text(kind, max_length=MAX_INPUT_TEXT_CHARS))
    key = "file" if kind == "file" else kind
    inner = part.get_object(key) or part.refuse_missing(key)
    made = (
        _read_chat_image(inner)
        if kind == "image_url"
        else _read_chat_audio(inner)
        if kind == "input_audio"
        else _read_chat_file(inner)
    )
    inner.refuse_unread()
    return made


def _read_chat_image(fields: JSONFields) -> Part:
    url = fields.require_text("url", max_length=MAX_IMAGE_URL_CHARS)
    if not url.startswith(("https://", "http://", "data:image/")):
        where = fields.path_of("url")
        refuse(f"Invalid '{where}': expected an http or https URL, or a data URL with an image.", where, "invalid_url")
    detail: Any = fields.get_choice("detail", ("auto", "low", "high")) or "auto"
    return ImageLink(url=url, detail=cast(Literal["auto", "low", "high"], detail))


def _read_chat_audio(fields: JSONFields) -> Part:
    kind = fields.get_choice("format", _CHAT_AUDIO_TYPES) or fields.refuse_missing("format")
    return AudioContent(
        data=fields.require_text("data", max_length=MAX_FILE_DATA_CHARS), mime_type=_CHAT_AUDIO_TYPES[kind]
    )


def _read_chat_file(fields: JSONFields) -> Part:
    if fields.has("file_id"):
        refuse_unsupported(fields.path_of("file_id"), "This gateway stores no files: send the content itself.")
    data = fields.require_text("file_data", max_length=MAX_FILE_DATA_CHARS)
    url = data if data.startswith("data:") else f"data:application/octet-stream;base64,{data}"
    return FileData(url=url, filename=fields.get_text("filename"))
