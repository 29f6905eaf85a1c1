"""The body of `POST /v1/chat/completions`, read into the same request as that of the Responses API.

Messages become items, with a `tool_calls` entry as a call and a `tool` message as its output. Every parameter of the
API is either supported or refused by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, cast

from holodeck.gateway.wire.chat.field_table import CHAT_FIELDS
from holodeck.gateway.wire.request.body import (
    ExtraParameters,
    ResponseRequest,
    allow_no_parameters,
    with_extra_parameters,
)
from holodeck.gateway.wire.request.content_parts import AUDIO_TYPES, CACHE_FIELD, read_image_url
from holodeck.gateway.wire.request.field_rows import refusal_reasons
from holodeck.gateway.wire.request.json_fields import (
    NOT_SUPPORTED,
    JSONFields,
    refuse,
    refuse_choice,
    refuse_type,
    refuse_unsupported,
)
from holodeck.gateway.wire.request.mcp_declarations import MCPDeclaration, read_declaration
from holodeck.gateway.wire.request.options import (
    EFFORTS,
    MAX_TOP_LOGPROBS,
    VERBOSITIES,
    GenerationOptions,
    is_json_mode,
    read_format,
    read_metadata,
    read_sampling_fields,
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
from holodeck.lib.limits import (
    MAX_CALL_ID_CHARS,
    MAX_FILE_DATA_CHARS,
    MAX_IDENTIFIER_CHARS,
    MAX_INPUT_ITEMS,
    MAX_INPUT_TEXT_CHARS,
    MAX_REQUEST_TOOLS,
    MAX_TOOL_NAME_CHARS,
)
from holodeck.lib.record import record
from holodeck.models.content import AudioContent, TextContent
from holodeck.models.items import FileData, FunctionCall, FunctionCallOutput, ImageLink, Message, Part, Reasoning, Role

_UNSUPPORTED_FIELDS = refusal_reasons(CHAT_FIELDS)
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
    fields = JSONFields(body)
    _refuse_unsupported_fields(fields)
    stream = fields.get_flag("stream") or False
    options = fields.get_object("stream_options")
    if options is not None and not stream:
        refuse("'stream_options' is only for 'stream': true.", "stream_options", "invalid_value")
    wants_usage = options is not None and options.get_flag("include_usage") is True
    if options is not None:
        if options.get_flag("include_obfuscation"):
            refuse_unsupported("stream_options.include_obfuscation", "Chunks of this API are not padded here.")
        options.refuse_unread()
    request = ResponseRequest(
        model=fields.get_text("model"),
        input=read_messages(fields),
        tools=_read_chat_tools(fields),
        tool_choice=_read_chat_tool_choice(fields.pop("tool_choice")),
        options=_read_generation_options(fields),
        parallel_tool_calls=fields.get_flag("parallel_tool_calls") is not False,
        metadata=read_metadata(fields),
        store=False,
        stream=stream,
        safety_identifier=fields.get_text("safety_identifier", max_length=MAX_IDENTIFIER_CHARS),
        prompt_cache_key=fields.get_text("prompt_cache_key", max_length=MAX_IDENTIFIER_CHARS),
        user=fields.get_text("user", max_length=MAX_INPUT_TEXT_CHARS),
    )
    fields.pop("messages")
    request = with_extra_parameters(request, fields, extra_parameters_of)
    return ChatRequest(response=request, needs_usage=wants_usage)


def read_messages(fields: JSONFields) -> Input:
    """Read `messages` into items. Raises `BadRequestError`, which names the field."""
    if not fields.has("messages"):
        fields.refuse_missing("messages")
    into = Input()
    for message in fields.iter_objects("messages", max_length=MAX_INPUT_ITEMS):
        role = message.get_choice("role", _ROLES) or message.refuse_missing("role")
        message.refuse_present("Use 'tool_calls'.", "function_call")
        message.refuse_present("This gateway answers in text.", "audio")
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


def _refuse_unsupported_fields(fields: JSONFields) -> None:
    if (fields.get_integer("n", minimum=1) or 1) > 1:
        refuse_unsupported("n", "This gateway gives one answer to a request.")
    if fields.get_flag("store"):
        refuse_unsupported("store", NOT_SUPPORTED)
    # An empty value has no effect.
    if fields.pop("logit_bias"):
        refuse_unsupported("logit_bias", NOT_SUPPORTED)
    if fields.pop("modalities") not in (None, ["text"]):
        refuse_unsupported("modalities", "This gateway answers in text.")
    for key, reason in _UNSUPPORTED_FIELDS.items():
        fields.refuse_present(reason, key)


def _read_generation_options(fields: JSONFields) -> GenerationOptions:
    echo, schema = read_format(fields, "response_format", is_nested=True)
    newer, older = fields.get_integer("max_completion_tokens", minimum=1), fields.get_integer("max_tokens", minimum=1)
    if newer is not None and older is not None:
        refuse("Give only one of 'max_completion_tokens' and 'max_tokens'.", "max_tokens", "invalid_value")
    return GenerationOptions(
        format=echo,
        schema=schema,
        verbosity=fields.get_choice("verbosity", VERBOSITIES),
        effort=fields.get_choice("reasoning_effort", EFFORTS),
        summary=None,
        max_output_tokens=newer or older,
        json_mode=is_json_mode(echo),
        top_logprobs=_read_logprobs(fields),
        **read_sampling_fields(fields),
    )


def _read_logprobs(fields: JSONFields) -> int | None:
    top = fields.get_integer("top_logprobs", minimum=0, maximum=MAX_TOP_LOGPROBS)
    is_wanted = fields.get_flag("logprobs")
    if top and is_wanted is False:
        refuse("'top_logprobs' is only for 'logprobs': true.", "top_logprobs")
    return (top or 0) if top or is_wanted else None


def _read_chat_tools(fields: JSONFields) -> RequestTools:
    specs, echo, schemas = [], [], RequestSchemas()
    declarations: list[MCPDeclaration] = []
    for entry in fields.iter_objects("tools", max_length=MAX_REQUEST_TOOLS):
        kind = entry.require_text("type")
        if kind == "mcp":
            declarations.append(read_declaration(entry))
            continue
        if kind != "function":
            refuse_choice(entry.path_of("type"), kind, ("function", "mcp"))
        function = entry.get_object("function") or entry.refuse_missing("function")
        specs.append(read_function_spec(function, schemas))
        echo.append(echo_function(function.value))
        function.refuse_unread()
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
