"""The body of `POST /v1/chat/completions`, as the same request that the newer API makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holodeck.gateway.wire.chat_messages import read_messages
from holodeck.gateway.wire.fields import Fields, not_one_of, refuse, unsupported, wrong_type
from holodeck.gateway.wire.options import Answer, read_format, read_metadata, read_numbers
from holodeck.gateway.wire.request import TIERS, ResponseRequest
from holodeck.gateway.wire.request_schemas import RequestSchemas
from holodeck.gateway.wire.tools import Choice, Tools, echo_function, function_spec, read_choice
from holodeck.lib.limits import (
    MAX_IDENTIFIER_CHARS,
    MAX_INPUT_TEXT_CHARS,
    MAX_REQUEST_TOOLS,
    MAX_SEED,
    MAX_STOP_WORDS,
)

_NOT_HERE = "This gateway does not have it."
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest:
    """A request, and whether its stream shall end with what it cost."""

    response: ResponseRequest
    wants_usage: bool = False


def read_chat(body: object) -> ChatRequest:
    """Raises `BadRequestError`, which names the field."""
    fields = Fields(body)
    _refuse_unsupported(fields)
    stream = fields.flag("stream") or False
    options = fields.object("stream_options")
    if options is not None and not stream:
        refuse("'stream_options' is only for 'stream': true.", "stream_options", "invalid_value")
    wants_usage = options is not None and options.flag("include_usage") is True
    if options is not None:
        if options.flag("include_obfuscation"):
            unsupported("stream_options.include_obfuscation", "Chunks of this API are not padded here.")
        options.done()
    fields.choice("service_tier", TIERS)
    request = ResponseRequest(
        model=fields.required("model", may_be_empty=False),
        input=read_messages(fields),
        tools=_tools(fields),
        tool_choice=_choice(fields.take("tool_choice")),
        answer=_answer(fields),
        parallel_tool_calls=fields.flag("parallel_tool_calls") is not False,
        metadata=read_metadata(fields),
        store=False,
        stream=stream,
        safety_identifier=fields.text("safety_identifier", longest=MAX_IDENTIFIER_CHARS),
        prompt_cache_key=fields.text("prompt_cache_key", longest=MAX_IDENTIFIER_CHARS),
        user=fields.text("user", longest=MAX_INPUT_TEXT_CHARS),
    )
    fields.take("messages")
    fields.done()
    return ChatRequest(response=request, wants_usage=wants_usage)


def _refuse_unsupported(fields: Fields) -> None:
    if (fields.integer("n", least=1) or 1) > 1:
        unsupported("n", "This gateway gives one answer to a request.")
    for key in ("logprobs", "store"):
        if fields.flag(key):
            unsupported(key, _NOT_HERE)
    for key in ("logit_bias", "top_logprobs"):
        if fields.take(key):  # an empty one and 0 say nothing
            unsupported(key, _NOT_HERE)
    if fields.take("modalities") not in (None, ["text"]):
        unsupported("modalities", "This gateway answers in text.")
    fields.refuse_given("Use 'tools'.", "functions")
    fields.refuse_given("Use 'tool_choice'.", "function_call")
    fields.refuse_given(
        _NOT_HERE,
        *("audio", "moderation", "prediction", "prompt_cache_options", "prompt_cache_retention"),
        "web_search_options",
    )


def _answer(fields: Fields) -> Answer:
    shown, schema = read_format(fields, "response_format", is_nested=True)
    newer, older = fields.integer("max_completion_tokens", least=1), fields.integer("max_tokens", least=1)
    if newer is not None and older is not None:
        refuse("Give only one of 'max_completion_tokens' and 'max_tokens'.", "max_tokens", "invalid_value")
    return Answer(
        format=shown,
        schema=schema,
        verbosity=fields.choice("verbosity", ("low", "medium", "high")),
        effort=fields.choice("reasoning_effort", _EFFORTS),
        summary=None,
        max_output_tokens=newer or older,
        stop=_stop(fields),
        seed=fields.integer("seed", least=-MAX_SEED, most=MAX_SEED),
        **read_numbers(fields),
    )


def _stop(fields: Fields) -> tuple[str, ...]:
    """One word or several."""
    given = fields.value.get("stop")
    words = [fields.required("stop")] if isinstance(given, str) else fields.strings("stop") or []
    if len(words) > MAX_STOP_WORDS:
        message = f"Invalid 'stop': array too long. Expected at most {MAX_STOP_WORDS} elements, but got {len(words)}."
        refuse(message, "stop", "array_above_max_length")
    if "" in words:
        refuse("Invalid 'stop': empty string.", "stop", "empty_string")
    return tuple(words)


def _tools(fields: Fields) -> Tools:
    specs, echo, schemas = [], [], RequestSchemas()
    for entry in fields.objects("tools", longest=MAX_REQUEST_TOOLS):
        kind = entry.required("type")
        if kind != "function":
            not_one_of(entry.at("type"), kind, ("function",))
        function = entry.object("function") or entry.missing("function")
        specs.append(function_spec(function, schemas))
        echo.append(echo_function(function.value))
        function.done()
        entry.done()
    names = [spec.name for spec in specs]
    if len(set(names)) < len(names):
        refuse("Duplicate function name in 'tools'.", "tools", "duplicate_value")
    return Tools(functions=tuple(specs), echo=tuple(echo))


def _choice(value: object) -> Choice:
    """The names stand one object deeper than in the newer API."""
    if not isinstance(value, dict):
        return read_choice(value)
    fields = Fields(value, "tool_choice")
    kind = fields.required("type")
    if kind == "function":
        return read_choice({"type": "function", "name": _name(fields)})
    if kind != "allowed_tools":
        not_one_of("tool_choice.type", kind, ("function", "allowed_tools"))
    inner = fields.object("allowed_tools") or fields.missing("allowed_tools")
    tools: list[dict[str, Any]] = []
    for entry in inner.objects("tools"):
        if entry.required("type") != "function":
            not_one_of(entry.at("type"), entry.value["type"], ("function",))
        tools.append({"type": "function", "name": _name(entry)})
    mode = inner.take("mode")
    inner.done()
    fields.done()
    return read_choice({"type": "allowed_tools", "tools": tools, **({} if mode is None else {"mode": mode})})


def _name(fields: Fields) -> str:
    function = fields.object("function")
    if function is None:
        wrong_type(fields.at("function"), "an object", None)
    name = function.required("name", may_be_empty=False)
    function.done()
    fields.done()
    return name
