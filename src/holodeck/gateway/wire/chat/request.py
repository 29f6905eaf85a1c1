"""The body of `POST /v1/chat/completions`, as the same request that the newer API makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holodeck.gateway.wire.chat.chat_messages import read_messages
from holodeck.gateway.wire.request.body import SERVICE_TIERS, ResponseRequest
from holodeck.gateway.wire.request.json_fields import JSONFields, refuse, refuse_choice, refuse_type, refuse_unsupported
from holodeck.gateway.wire.request.options import GenerationOptions, read_format, read_metadata, read_sampling_numbers
from holodeck.gateway.wire.request.schemas import RequestSchemas
from holodeck.gateway.wire.request.tools import (
    RequestToolChoice,
    RequestTools,
    echo_function,
    read_function_spec,
    read_tool_choice,
)
from holodeck.lib.limits import (
    MAX_IDENTIFIER_CHARS,
    MAX_INPUT_TEXT_CHARS,
    MAX_REQUEST_TOOLS,
    MAX_SEED,
    MAX_STOP_WORDS,
)

_NOT_SUPPORTED = "This gateway does not have it."
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest:
    """A request, and whether its stream shall end with what it cost."""

    response: ResponseRequest
    needs_usage: bool = False


def read_chat_request(body: object) -> ChatRequest:
    """Raises `BadRequestError`, which names the field."""
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
    fields.get_choice("service_tier", SERVICE_TIERS)
    request = ResponseRequest(
        model=fields.require_text("model", may_be_empty=False),
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
    fields.refuse_unread()
    return ChatRequest(response=request, needs_usage=wants_usage)


def _refuse_unsupported_fields(fields: JSONFields) -> None:
    if (fields.get_integer("n", minimum=1) or 1) > 1:
        refuse_unsupported("n", "This gateway gives one answer to a request.")
    for key in ("logprobs", "store"):
        if fields.get_flag(key):
            refuse_unsupported(key, _NOT_SUPPORTED)
    for key in ("logit_bias", "top_logprobs"):
        if fields.pop(key):  # an empty one and 0 say nothing
            refuse_unsupported(key, _NOT_SUPPORTED)
    if fields.pop("modalities") not in (None, ["text"]):
        refuse_unsupported("modalities", "This gateway answers in text.")
    fields.refuse_present("Use 'tools'.", "functions")
    fields.refuse_present("Use 'tool_choice'.", "function_call")
    fields.refuse_present(
        _NOT_SUPPORTED,
        *("audio", "moderation", "prediction", "prompt_cache_options", "prompt_cache_retention"),
        "web_search_options",
    )


def _read_generation_options(fields: JSONFields) -> GenerationOptions:
    shown, schema = read_format(fields, "response_format", is_nested=True)
    newer, older = fields.get_integer("max_completion_tokens", minimum=1), fields.get_integer("max_tokens", minimum=1)
    if newer is not None and older is not None:
        refuse("Give only one of 'max_completion_tokens' and 'max_tokens'.", "max_tokens", "invalid_value")
    return GenerationOptions(
        format=shown,
        schema=schema,
        verbosity=fields.get_choice("verbosity", ("low", "medium", "high")),
        effort=fields.get_choice("reasoning_effort", _EFFORTS),
        summary=None,
        max_output_tokens=newer or older,
        stop=_read_stop_words(fields),
        seed=fields.get_integer("seed", minimum=-MAX_SEED, maximum=MAX_SEED),
        **read_sampling_numbers(fields),
    )


def _read_stop_words(fields: JSONFields) -> tuple[str, ...]:
    """One word or several."""
    given = fields.value.get("stop")
    words = [fields.require_text("stop")] if isinstance(given, str) else fields.get_strings("stop") or []
    if len(words) > MAX_STOP_WORDS:
        message = f"Invalid 'stop': array too long. Expected at most {MAX_STOP_WORDS} elements, but got {len(words)}."
        refuse(message, "stop", "array_above_max_length")
    if "" in words:
        refuse("Invalid 'stop': empty string.", "stop", "empty_string")
    return tuple(words)


def _read_chat_tools(fields: JSONFields) -> RequestTools:
    specs, echo, schemas = [], [], RequestSchemas()
    for entry in fields.iter_objects("tools", max_length=MAX_REQUEST_TOOLS):
        kind = entry.require_text("type")
        if kind != "function":
            refuse_choice(entry.path_of("type"), kind, ("function",))
        function = entry.get_object("function") or entry.refuse_missing("function")
        specs.append(read_function_spec(function, schemas))
        echo.append(echo_function(function.value))
        function.refuse_unread()
        entry.refuse_unread()
    names = [spec.name for spec in specs]
    if len(set(names)) < len(names):
        refuse("Duplicate function name in 'tools'.", "tools", "duplicate_value")
    return RequestTools(functions=tuple(specs), echo=tuple(echo))


def _read_chat_tool_choice(value: object) -> RequestToolChoice:
    """The names stand one object deeper than in the newer API."""
    if not isinstance(value, dict):
        return read_tool_choice(value)
    fields = JSONFields(value, "tool_choice")
    kind = fields.require_text("type")
    if kind == "function":
        return read_tool_choice({"type": "function", "name": _read_chosen_name(fields)})
    if kind != "allowed_tools":
        refuse_choice("tool_choice.type", kind, ("function", "allowed_tools"))
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
