"""The body of `POST /v1/chat/completions`, read into the same request as that of the Responses API.

Messages become items, with a `tool_calls` entry as a call and a `tool` message as its output. Every parameter of the
API is either supported or refused by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from holodeck.gateway.api.model import APIModel
from holodeck.gateway.api.models.chat_messages import (
    MODEL_OF_ROLE,
    ChatAssistantMessage,
    ChatAudioPart,
    ChatFilePart,
    ChatFunctionTool,
    ChatImagePart,
    ChatSentRefusalPart,
    ChatSentTextPart,
    ChatSystemMessage,
    ChatTextPart,
    ChatToolMessage,
    ChatUserMessage,
)
from holodeck.gateway.api.models.create_chat_completion import CreateChatCompletion
from holodeck.gateway.api.models.mcp_tool import MCPTool
from holodeck.gateway.api.models.tools import ToolContext
from holodeck.gateway.wire.request.body import (
    ExtraParameters,
    ResponseRequest,
    allow_no_parameters,
    with_extra_parameters,
)
from holodeck.gateway.wire.request.content_parts import AUDIO_TYPES, CACHE_FIELD, mark_link
from holodeck.gateway.wire.request.json_fields import (
    JSONFields,
    refuse,
    refuse_choice,
    refuse_missing,
    refuse_type,
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
    build_function_spec,
    echo_function,
    read_tool_choice,
)
from holodeck.gateway.wire.request.validation import read_body, require_kind
from holodeck.lib.record import record
from holodeck.models.generation import DEFAULT_OPTIONS, GenerationOptions
from holodeck.models.items import (
    AudioContent,
    FileData,
    FunctionCall,
    FunctionCallOutput,
    ImageLink,
    Message,
    Part,
    Reasoning,
    TextContent,
)

_TOOL_MODELS: Mapping[str, type[APIModel]] = {"function": ChatFunctionTool, "mcp": MCPTool}
ChatPart = ChatTextPart | ChatImagePart | ChatAudioPart | ChatFilePart | ChatSentTextPart | ChatSentRefusalPart
REASONING_FIELD = "reasoning_content"
"""The field of a message in which many servers of this API, and this gateway, send reasoning."""


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
        where = f"messages[{index}]"
        message = read_body(require_kind(value, where, MODEL_OF_ROLE, "role"), value, where)
        if isinstance(message, ChatAssistantMessage):
            _read_answer(message, where, into)
        elif isinstance(message, ChatToolMessage):
            content = _build_content(message.content, where)
            into.items.append(FunctionCallOutput(call_id=message.tool_call_id, content=content))
        elif isinstance(message, ChatUserMessage | ChatSystemMessage):
            content = _build_content(message.content, where)
            into.items.append(Message(role=message.role, content=content, name=message.name or ""))
    if not into.items:
        refuse("Invalid 'messages': empty array. Expected at least one message.", "messages", "empty_array")
    return into


def _read_generation_options(
    body: CreateChatCompletion, fields: JSONFields
) -> tuple[GenerationOptions, Mapping[str, Any]]:
    """Read the options of a body and of its other members, and the format of the answer."""
    echo, schema = TEXT_FORMAT, None
    if body.response_format is not None:
        echo, schema = read_format(body.response_format, "response_format", is_nested=True)
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
    specs, echo, context = [], [], ToolContext(schemas=RequestSchemas().budget)
    declarations: list[MCPDeclaration] = []
    for index, value in enumerate(tools):
        where = f"tools[{index}]"
        model = require_kind(value, where, _TOOL_MODELS)
        if model is MCPTool:
            declarations.append(read_declaration(value, where))
            continue
        specs.append(build_function_spec(read_body(ChatFunctionTool, value, where, context).function))
        echo.append(echo_function(cast(Mapping[str, Any], value)["function"]))
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


def _read_answer(message: ChatAssistantMessage, where: str, into: Input) -> None:
    if message.reasoning_content:
        into.items.append(Reasoning(text=message.reasoning_content, opaque={"chat": REASONING_FIELD}))
    content = () if message.content is None else _build_content(message.content, where)
    if message.refusal:
        content = (*content, TextContent(text=message.refusal))
    if any(isinstance(part, TextContent) and part.text for part in content):
        into.items.append(Message(role="assistant", content=content, name=message.name or ""))
    if not content and not message.tool_calls:
        refuse_missing(f"{where}.content")
    into.items += [
        FunctionCall(call_id=call.id, name=call.function.name, arguments=call.function.arguments)
        for call in message.tool_calls or ()
    ]


def _build_content(content: str | Sequence[ChatPart], where: str) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (TextContent(text=content),)
    return tuple(_build_part(part, f"{where}.content[{index}]") for index, part in enumerate(content))


def _build_part(part: ChatPart, where: str) -> Part:
    mark = None if part.prompt_cache_breakpoint is None else {CACHE_FIELD: part.prompt_cache_breakpoint}
    if isinstance(part, ChatTextPart | ChatSentTextPart):
        return TextContent(text=part.text, cache_mark=mark)
    if isinstance(part, ChatSentRefusalPart):
        return TextContent(text=part.refusal, cache_mark=mark)
    if isinstance(part, ChatImagePart):
        url = mark_link(part.image_url.url, f"{where}.image_url.url")
        return ImageLink(url=url, detail=part.image_url.detail or "auto", cache_mark=mark)
    if isinstance(part, ChatAudioPart):
        return AudioContent(data=part.input_audio.data, mime_type=AUDIO_TYPES[part.input_audio.format])
    data = part.file.file_data
    url = data if data.startswith("data:") else f"data:application/octet-stream;base64,{data}"
    return FileData(url=url, filename=part.file.filename, cache_mark=mark)
