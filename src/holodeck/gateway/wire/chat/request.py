"""The body of `POST /v1/chat/completions`, read into the same request as that of the Responses API.

Messages become items, with a `tool_calls` entry as a call and a `tool` message as its output. Every parameter of the
API is either supported or refused by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from holodeck.gateway.api.models.create_chat_completion import TEXT_ONLY, CreateChatCompletion
from holodeck.gateway.wire.request.body import (
    ExtraParameters,
    ResponseRequest,
    allow_no_parameters,
    with_extra_parameters,
)
from holodeck.gateway.wire.request.content_parts import AUDIO_TYPES, CACHE_FIELD, read_image_url
from holodeck.gateway.wire.request.json_fields import (
    JSONFields,
    refuse,
    refuse_choice,
    refuse_type,
    refuse_unsupported,
)
from holodeck.gateway.wire.request.mcp_declarations import MCPDeclaration, read_declaration
from holodeck.gateway.wire.request.options import (
    TEXT_FORMAT,
    check_metadata,
    is_json_mode,
    read_format,
    read_options,
)
from holodeck.gateway.wire.request.parsed_input import Input
from holodeck.gateway.wire.request.schemas import RequestSchemas
from holodeck.gateway.wire.request.tools import (
    RequestToolChoice,
    RequestTools,
    echo_function,
    read_function_spec,
    read_tool_choice,
)
from holodeck.gateway.wire.request.validation import read_body
from holodeck.lib.limits import (
    MAX_CALL_ID_CHARS,
    MAX_FILE_DATA_CHARS,
    MAX_IDENTIFIER_CHARS,
    MAX_INPUT_TEXT_CHARS,
    MAX_TOOL_NAME_CHARS,
)
from holodeck.lib.record import record
from holodeck.models.content import AudioContent, TextContent
from holodeck.models.generation import DEFAULT_OPTIONS, GenerationOptions
from holodeck.models.items import FileData, FunctionCall, FunctionCallOutput, ImageLink, Message, Part, Reasoning, Role

_ROLES = ("system", "developer", "user", "assistant", "tool")
_USER_PART_TYPES = ("text", "image_url", "input_audio", "file")
REASONING_FIELD = "reasoning_content"
"""The field of a message in which many servers of this API, and this gateway, send reasoning."""
# Fields of our message that OpenAI's Agents SDK for JavaScript sends back inside the text part.
_ANSWER_FIELDS = ("role", "refusal", "annotations", "tool_calls", REASONING_FIELD)


@record
class ChatRequest:
    """A parsed request. `needs_usage`: the stream ends with a chunk that has the token usage."""

    response: ResponseRequest
    needs_usage: bool = False


def read_chat_request(body: object, *, extra_parameters_of: ExtraParameters = allow_no_parameters) -> ChatRequest:
    """Read a body. Raises `BadRequestError`, which names the field."""
    declared = read_body(CreateChatCompletion, body)
    stream_options = declared.stream_options
    if stream_options is not None and not declared.stream:
        refuse("'stream_options' is only for 'stream': true.", "stream_options", "invalid_value")
    others = JSONFields(declared.model_extra or {})
    messages, tools = _read_messages(declared.messages), _read_chat_tools(declared.tools or ())
    tool_choice = _read_chat_tool_choice(declared.tool_choice)
    options, text_format = _read_generation_options(declared, others)
    if declared.metadata:
        check_metadata(declared.metadata)
    request = ResponseRequest(
        model=declared.model,
        input=messages,
        tools=tools,
        tool_choice=tool_choice,
        options=options,
        text_format=text_format,
        metadata=declared.metadata or {},
        store=False,
        stream=declared.stream or False,
    )
    request = with_extra_parameters(request, others, extra_parameters_of)
    return ChatRequest(
        response=request, needs_usage=stream_options is not None and stream_options.include_usage is True
    )


def _read_messages(messages: Sequence[object]) -> Input:
    into = Input()
    for index, value in enumerate(messages):
        message = JSONFields(value, f"messages[{index}]")
        role = message.get_choice("role", _ROLES) or message.refuse_missing("role")
        message.refuse_present("Use 'tool_calls'.", "function_call")
        message.refuse_present(TEXT_ONLY, "audio")
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


def _read_generation_options(
    body: CreateChatCompletion, fields: JSONFields
) -> tuple[GenerationOptions, Mapping[str, Any]]:
    """Read the options of a body and of its other members, and the format of the answer."""
    echo, schema = TEXT_FORMAT, None
    if body.response_format is not None:
        echo, schema = read_format(
            JSONFields({"response_format": body.response_format}), "response_format", is_nested=True
        )
    found = read_options(fields, "chat")
    if body.max_tokens is not None:
        if "max_tokens" in found:
            refuse("Give only one of 'max_completion_tokens' and 'max_tokens'.", "max_tokens", "invalid_value")
        found["max_tokens"] = body.max_tokens
    top_logprobs = found.pop("top_logprobs", 0)
    if top_logprobs and body.logprobs is False:
        refuse("'top_logprobs' is only for 'logprobs': true.", "top_logprobs")
    if top_logprobs or body.logprobs:
        found["top_logprobs"] = top_logprobs
    if not found and echo is TEXT_FORMAT:
        return DEFAULT_OPTIONS, TEXT_FORMAT
    return GenerationOptions(response_format=schema, json_mode=is_json_mode(echo), **found), echo


def _read_chat_tools(tools: Sequence[object]) -> RequestTools:
    if not tools:
        return RequestTools()
    specs, echo, schemas = [], [], RequestSchemas()
    declarations: list[MCPDeclaration] = []
    for index, value in enumerate(tools):
        entry = JSONFields(value, f"tools[{index}]")
        kind = entry.require_text("type")
        if kind == "mcp":
            declarations.append(read_declaration(entry.value, entry.path))
            continue
        if kind != "function":
            refuse_choice(entry.path_of("type"), kind, ("function", "mcp"))
        function = entry.get_object("function") or entry.refuse_missing("function")
        specs.append(read_function_spec(function, schemas))
        echo.append(echo_function(function.value))
        entry.refuse_unread()
    names = [spec.name for spec in specs]
    if len(set(names)) < len(names):
        refuse("Duplicate function name in 'tools'.", "tools", "duplicate_value")
    if len({each.server_label for each in declarations}) < len(declarations):
        refuse("Duplicate server_label in 'tools'.", "tools", "duplicate_value")
    return RequestTools(functions=tuple(specs), declarations=tuple(declarations), echo=tuple(echo))


def _read_chat_tool_choice(value: object) -> RequestToolChoice:
    """Read `tool_choice`, whose names are one object deeper than in the Responses API."""
    if not isinstance(value, dict):
        return read_tool_choice(value)
    fields = JSONFields(value, "tool_choice")
    kind = fields.require_text("type")
    if kind == "function":
        return read_tool_choice({"type": "function", "name": _read_chosen_name(fields)})
    if kind == "mcp":
        return read_tool_choice(value)
    if kind != "allowed_tools":
        refuse_choice("tool_choice.type", kind, ("function", "mcp", "allowed_tools"))
    inner = fields.get_object("allowed_tools") or fields.refuse_missing("allowed_tools")
    tools: list[dict[str, Any]] = []
    for entry in inner.iter_objects("tools"):
        if entry.require_text("type") != "function":
            refuse_choice(entry.path_of("type"), entry.value["type"], ("function",))
        tools.append({"type": "function", "name": _read_chosen_name(entry)})
    mode = inner.pop("mode")
    inner.refuse_unread()
    fields.refuse_unread()
    return read_tool_choice({"type": "allowed_tools", "tools": tools, **({} if mode is None else {"mode": mode})})


def _read_chosen_name(fields: JSONFields) -> str:
    function = fields.get_object("function")
    if function is None:
        refuse_type(fields.path_of("function"), "an object", None)
    name = function.require_text("name", may_be_empty=False)
    function.refuse_unread()
    fields.refuse_unread()
    return name


def _read_assistant_message(message: JSONFields, into: Input) -> None:
    name = _read_author_name(message)
    message.get_array("annotations")
    message.pop("parsed")
    # LiteLLM stores our reasoning here a second time, and sends it back.
    message.pop("provider_specific_fields")
    reasoning = message.get_text(REASONING_FIELD)
    if reasoning:
        into.items.append(Reasoning(text=reasoning, opaque={"chat": REASONING_FIELD}))
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
    # The name of the function is not needed: the call has it.
    message.get_text("name")
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
        content = _read_part(part, kind)
        mark = part.get_cache_mark(CACHE_FIELD)
        if mark is not None and isinstance(content, TextContent | ImageLink | FileData):
            content = replace(content, cache_mark=mark)
        parts.append(content)
        if role == "assistant":
            for key in _ANSWER_FIELDS:
                part.pop(key)
        part.refuse_unread()
    return tuple(parts)


def _read_part(part: JSONFields, kind: str) -> Part:
    if kind in ("text", "refusal"):
        part.pop("parsed")
        return TextContent(text=part.require_text(kind, max_length=MAX_INPUT_TEXT_CHARS))
    inner = part.get_object(kind) or part.refuse_missing(kind)
    content = _PART_READERS[kind](inner)
    inner.refuse_unread()
    return content


def _read_chat_image(fields: JSONFields) -> Part:
    url = read_image_url(fields, "url")
    detail: Any = fields.get_choice("detail", ("auto", "low", "high")) or "auto"
    return ImageLink(url=url, detail=cast(Literal["auto", "low", "high"], detail))


def _read_chat_audio(fields: JSONFields) -> Part:
    kind = fields.get_choice("format", AUDIO_TYPES) or fields.refuse_missing("format")
    return AudioContent(data=fields.require_text("data", max_length=MAX_FILE_DATA_CHARS), mime_type=AUDIO_TYPES[kind])


def _read_chat_file(fields: JSONFields) -> Part:
    if fields.has("file_id"):
        refuse_unsupported(fields.path_of("file_id"), "This gateway stores no files: send the content itself.")
    data = fields.require_text("file_data", max_length=MAX_FILE_DATA_CHARS)
    url = data if data.startswith("data:") else f"data:application/octet-stream;base64,{data}"
    return FileData(url=url, filename=fields.get_text("filename"))


_PART_READERS: dict[str, Callable[[JSONFields], Part]] = {
    "image_url": _read_chat_image,
    "input_audio": _read_chat_audio,
    "file": _read_chat_file,
}
