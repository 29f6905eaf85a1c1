"""The dialect of the Chat Completions API, and models that use it, at Azure OpenAI and at compatible servers.

Requests have few members that not every server with this endpoint accepts, and those only if the caller sets them.
Answers are read in the variants of many servers: reasoning in several fields, whole answers instead of streams, calls
without ids, and signatures attached to calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, ClassVar, Unpack
from urllib.parse import quote, urlsplit, urlunsplit

import orjson

from holodeck.lib.errors import ModelError
from holodeck.models.generation import CACHE_HINTS, CHAT_FIELDS, IDENTIFIERS, TIER, APIFields
from holodeck.models.items import (
    AudioContent,
    FileData,
    FunctionCall,
    FunctionCallOutput,
    ImageLink,
    Item,
    Message,
    Part,
    Reasoning,
    TextContent,
    Usage,
    text_message,
)
from holodeck.models.model_io import (
    FinishReason,
    Logprob,
    ModelAnswer,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolChoice,
    ToolSpec,
    parse_logprobs,
)
from holodeck.providers.answer_decoder import AnswerDecoder, arguments_object, arguments_text, build_openai_usage
from holodeck.providers.base import Batches
from holodeck.providers.encoding import (
    OptionEncoder,
    build_json_format,
    describe_part,
    find_image_url,
    output_text,
    require_supported,
    select_tools,
)
from holodeck.providers.http.endpoint import DONE
from holodeck.providers.http.errors import find_refused_hints, stream_error
from holodeck.providers.http.model import HTTPModel, ModelAccess
from holodeck.providers.http.model_address import ModelAddress, append_path, host_of

REASONING_KEY = "chat"
"""Key in `Reasoning.opaque` of the name of the field in which a server sent its reasoning."""
SIGNED_KEY = "chat_calls"
"""Key in `Reasoning.opaque` of what a server attached to calls, by call id, and requires back."""
# The two names in use for the field with the reasoning.
_THOUGHTS = ("reasoning_content", "reasoning")
# Gemini's endpoint refuses calls that come back without it.
_SIGNATURE = "extra_content"
OPENAI_HOST = "api.openai.com"
DEFAULT_AZURE_VERSION = "2024-10-21"
_PATH = "/chat/completions"
_SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_CHOSEN_VALUES = frozenset(CACHE_HINTS) - {"prompt_cache_key"}
"""Identifiers whose value may be what is refused. Callers choose it, so later requests have the field again."""


def build_chat_body(
    request: ModelRequest,
    *,
    model: str,
    tools: orjson.Fragment | None,
    options: OptionEncoder,
    asks_for_usage: bool = True,
) -> dict[str, Any]:
    """Build the body for `/chat/completions`. `tools`: those that the model may call, as JSON.

    `asks_for_usage`: whether a stream has its usage only if the request asks for it.
    """
    body: dict[str, Any] = {
        "model": model,
        "messages": _build_messages(request),
        "stream": request.is_streamed,
    }
    if request.is_streamed and asks_for_usage:
        body["stream_options"] = {"include_usage": True}
    options.write(request, body)
    if request.wants_logprobs:
        body["logprobs"] = True
    if request.response_format is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": build_json_format(request.response_format)}
    elif request.json_mode:
        body["response_format"] = {"type": "json_object"}
    if tools is not None:
        body["tools"] = tools
        choice = _encode_tool_choice(request.tool_choice)
        if choice is not None:
            body["tool_choice"] = choice
        options.write(request, body, with_tools=True)
    if request.extra_body:
        body.update(request.extra_body)
    return body


def _encode_tool(tool: ToolSpec) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "parameters": dict(tool.parameters)}
    if tool.description:
        function["description"] = tool.description
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _encode_tool_choice(choice: ToolChoice) -> Any:
    """Return None for `auto`: it is the default, and some servers refuse it. A restricted choice sends fewer tools."""
    if choice.name is not None:
        return {"type": "function", "function": {"name": choice.name}}
    if choice.allowed == ():
        return "none"
    return None if choice.mode == "auto" else choice.mode


def _build_messages(request: ModelRequest) -> list[dict[str, Any]]:
    """Build all messages. Reasoning is sent back in all of them, so that what was sent once stays the same."""
    messages: list[dict[str, Any]] = []
    if request.instructions:
        messages.append({"role": "system", "content": request.instructions})
    names = {item.call_id: item.name for item in request.items if isinstance(item, FunctionCall)}
    for speaker, group in groupby(request.items, key=_speaker):
        if speaker == "assistant":
            messages += _build_assistant_messages(group)
        elif speaker == "tool":
            messages += _build_result_messages([item for item in group if isinstance(item, FunctionCallOutput)], names)
        else:
            messages += [_build_message(item) for item in group if isinstance(item, Message)]
    return messages


def _speaker(item: Item) -> str:
    if isinstance(item, Message):
        return "assistant" if item.role == "assistant" else "person"
    return "tool" if isinstance(item, FunctionCallOutput) else "assistant"


def _build_message(message: Message) -> dict[str, Any]:
    # Few servers know the role "developer".
    role = "user" if message.role == "user" else "system"
    named = {"name": message.name} if message.name else {}
    if len(message.content) == 1 and isinstance(message.content[0], TextContent):
        return {"role": role, **named, "content": message.content[0].text}
    if all(isinstance(part, TextContent) for part in message.content):
        return {"role": role, **named, "content": message.text}
    return {"role": role, **named, "content": [_encode_part(part) for part in message.content]}


def _encode_part(part: Part) -> dict[str, Any]:
    url = find_image_url(part)
    if url is not None:
        image: dict[str, Any] = {"url": url}
        if isinstance(part, ImageLink) and part.detail != "auto":
            # "high" is the highest level of this API.
            image["detail"] = "high" if part.detail == "original" else part.detail
        return {"type": "image_url", "image_url": image}
    if isinstance(part, AudioContent) and part.mime_type in _SOUNDS:
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": _SOUNDS[part.mime_type]}}
    if isinstance(part, FileData) and part.url.startswith("data:"):
        return {"type": "file", "file": {"filename": part.filename or "file", "file_data": part.url}}
    return {"type": "text", "text": describe_part(part)}


def _build_assistant_messages(items: Iterable[Item]) -> list[dict[str, Any]]:
    """Build the messages of consecutive assistant items. Calls end a message: their results must follow directly."""
    messages: list[dict[str, Any]] = []
    current: dict[str, Any] = {}
    signed: dict[str, dict[str, Any]] = {}
    for item in items:
        if isinstance(item, Message):
            if current.get("content") and "tool_calls" not in current:
                messages.append(current)
                current = {}
            texts = current.setdefault("content", [])
            if text := "\n".join(describe_part(part) for part in item.content):
                texts.append(text)
            if item.name:
                current["name"] = item.name
        elif isinstance(item, FunctionCall):
            current.setdefault("tool_calls", []).append({**_encode_call(item), **signed.get(item.call_id, {})})
        elif isinstance(item, Reasoning):
            signed = item.opaque.get(SIGNED_KEY, {})
            if item.opaque.get(REASONING_KEY):
                current[item.opaque[REASONING_KEY]] = item.text
    if current:
        messages.append(current)
    return [
        {"role": "assistant", "content": "".join(message.pop("content")) if "content" in message else None, **message}
        for message in messages
    ]


def _encode_call(call: FunctionCall) -> dict[str, Any]:
    # Several servers parse the arguments again, and refuse the whole request if one is not a JSON object.
    arguments = orjson.dumps(arguments_object(call.arguments)).decode()
    return {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _build_result_messages(outputs: Sequence[FunctionCallOutput], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Build the messages of tool results. They can contain only text, so images follow in a user message.

    `names`: of the tools, by call id.
    """
    messages: list[dict[str, Any]] = []
    pictures: list[dict[str, Any]] = []
    for output in outputs:
        lines = []
        for part in output.content:
            if isinstance(part, TextContent) or find_image_url(part) is None:
                lines.append(describe_part(part))
                continue
            number = len(pictures) // 2 + 1
            lines.append(f"[Image {number}: it is in the message after the tool results.]")
            pictures += [{"type": "text", "text": f"Image {number}, from {names.get(output.call_id, 'a tool')}:"}]
            pictures += [_encode_part(part)]
        content = output_text(output, "\n".join(lines))
        messages.append({"role": "tool", "tool_call_id": output.call_id, "content": content})
    if pictures:
        messages.append({"role": "user", "content": pictures})
    return messages


class ChatDecoder(AnswerDecoder):
    """Assembles one answer. It is complete with its finish reason; the usage may still follow, until `[DONE]`."""

    finishes: ClassVar[Mapping[str, FinishReason]] = {
        "length": "length",
        "max_tokens": "length",
        "model_length": "length",
        "content_filter": "content_filter",
        "safety": "content_filter",
        "tool_calls": "tool_calls",
        "function_call": "tool_calls",
    }

    def __init__(self, request: ModelRequest, address: ModelAddress) -> None:
        super().__init__(request, address)
        # Log probabilities that belong to the next text.
        self._logprobs: tuple[Logprob, ...] = ()
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._thoughts_field = ""
        self._signed: dict[str, dict[str, Any]] = {}
        self._finish: str | None = None
        self._has_choice = False
        self._receipt = request.receipt
        self._usage = Usage()

    def decode_into(self, batch: list[ModelEvent], events: Iterable[dict[str, Any]]) -> None:
        for event in events:
            text = self._find_only_text(event) if self._has_choice else None
            if text:
                self._text.append(text)
                batch.append(TextDelta(text=text))
            else:
                batch += self.decode(event)

    def decode(self, event: dict[str, Any]) -> list[ModelEvent]:
        self._events = []
        if event is DONE:
            self._end_stream()
            return self._events
        error = event.get("error") or (event if event.get("object") == "error" else None)
        if error:
            raise stream_error(self._address, error)
        self._model = event.get("model") or self._model
        self._tier = event.get(TIER) or self._tier
        usage = event.get("usage")
        if usage:
            self._usage = build_openai_usage(usage, read_name="prompt_tokens", written_name="completion_tokens")
            # Some servers tell it with every chunk.
            self._receipt.told = self._usage
        for choice in event.get("choices") or ():
            if not choice.get("index"):
                self._decode_choice(choice)
        return self._events

    def to_answered(self) -> ModelAnswer | None:
        if self._finish is None and not (self.is_finished and self._has_choice):
            return None
        items: list[Item] = []
        opaque: dict[str, Any] = {REASONING_KEY: self._thoughts_field} if self._thoughts else {}
        if self._signed:
            opaque[SIGNED_KEY] = self._signed
        if opaque:
            items.append(Reasoning(text="".join(self._thoughts), opaque=opaque))
        if self._text:
            items.append(text_message("assistant", "".join(self._text)))
        items += self._calls.items() if self._calls.calls else ()
        return self._build_answer(items, self._finish, self._usage)

    def _find_only_text(self, event: dict[str, Any]) -> str | None:
        """Return the text of a chunk that has nothing else, like nearly all chunks: a fast path."""
        choices = event.get("choices")
        if not choices or len(choices) > 1 or event.get("model") != self._model:
            return None
        if self._wants_logprobs:
            return None
        choice = choices[0]
        delta = choice.get("delta")
        is_text_only = (
            delta
            and len(delta) == 1
            and not choice.get("index")
            and not choice.get("finish_reason")
            and not event.get("usage")
            and not event.get("error")
        )
        text = delta.get("content") if is_text_only else None
        return text if isinstance(text, str) else None

    def _decode_choice(self, choice: dict[str, Any]) -> None:
        self._has_choice = True
        delta = choice.get("delta")
        # A whole answer has a message.
        message = choice.get("message") if delta is None else None
        if self._wants_logprobs and choice.get("logprobs"):
            found = choice["logprobs"]
            self._logprobs += parse_logprobs(found.get("content")) + parse_logprobs(found.get("refusal"))
        if delta or message:
            self._decode_delta(delta or message or {}, is_whole=bool(message))
        finish = choice.get("finish_reason")
        if finish == "error":
            raise stream_error(self._address, choice.get("error"))
        if finish:
            self._finish = finish
        if message:
            self._end_stream()

    def _decode_delta(self, delta: dict[str, Any], *, is_whole: bool) -> None:
        for field in _THOUGHTS:
            thought = delta.get(field)
            if thought and isinstance(thought, str):
                self._thoughts_field = field
                self._append_reasoning(thought)
                break
        content = delta.get("content")
        if content:
            self._decode_content(content)
        if delta.get("refusal"):
            self._append_text(delta["refusal"], is_refusal=True)
        for number, call in enumerate(delta.get("tool_calls") or ()):
            self._decode_call({"index": number, **call} if is_whole else call)
        if delta.get("function_call"):
            self._decode_call({"index": 0, "function": delta["function_call"]})

    def _decode_content(self, content: Any) -> None:
        if isinstance(content, str):
            self._append_text(content)
            return
        # Some servers send a list of parts, reasoning included.
        for part in content:
            if part.get("type") == "thinking":
                self._thoughts_field = self._thoughts_field or _THOUGHTS[0]
                self._append_reasoning("".join(inner.get("text", "") for inner in part.get("thinking") or ()))
            elif part.get("text"):
                self._append_text(part["text"])

    def _append_text(self, text: str, *, is_refusal: bool = False) -> None:
        self._text.append(text)
        logprobs, self._logprobs = self._logprobs, ()
        self._events.append(TextDelta(text=text, is_refusal=is_refusal, logprobs=logprobs))

    def _append_reasoning(self, text: str) -> None:
        self._thoughts.append(text)
        self._events.append(ReasoningDelta(text=text))

    def _decode_call(self, call: dict[str, Any]) -> None:
        function = call.get("function") or {}
        call_id, name = call.get("id") or "", function.get("name") or ""
        index = call.get("index")
        if index not in self._calls or self._calls.is_new_call(index, call_id=call_id, name=name):
            self._calls.start(index, call_id=call_id, name=name)
        self._events += self._calls.append(index, name=name, arguments=arguments_text(function.get("arguments")))
        if call.get(_SIGNATURE):
            self._signed[self._calls.item(index).call_id] = {_SIGNATURE: call[_SIGNATURE]}

    def _end_stream(self) -> None:
        self.is_finished = True
        if self._calls.calls:
            self._events += self._calls.announce_remaining()


class ChatModel(HTTPModel):
    """A model in this dialect. An identifier that its server refuses as unknown is left out from then on."""

    decoder = ChatDecoder

    def __init__(
        self,
        url: str,
        *,
        provider: str,
        model: str,
        max_tokens_field: str,
        fields: APIFields = CHAT_FIELDS,
        asks_for_usage: bool = True,
        **access: Unpack[ModelAccess],
    ) -> None:
        """`max_tokens_field`: the name of that field, which differs between servers."""
        super().__init__(url, provider=provider, model=model, **access)
        self._fields = fields
        self._options = OptionEncoder(fields.api, renamed={"max_tokens": max_tokens_field})
        self._asks_for_usage = asks_for_usage
        self._tools: tuple[ToolSpec, ...] = ()
        self._encoded_tools: orjson.Fragment | None = None
        self._refused: frozenset[str] = frozenset()

    def _build_body(self, request: ModelRequest) -> dict[str, Any]:
        require_supported(request, self._fields, self._endpoint.address.provider)
        tools = select_tools(request)
        # The tools of most requests are the same object, and longer than the rest of the body.
        if tools is not self._tools:
            encoded = orjson.dumps([_encode_tool(tool) for tool in tools])
            self._tools, self._encoded_tools = tools, orjson.Fragment(encoded) if tools else None
        return build_chat_body(
            request,
            model=self.name,
            tools=self._encoded_tools,
            options=self._options,
            asks_for_usage=self._asks_for_usage,
        )

    def stream_batches(self, request: ModelRequest) -> Batches:
        return super().stream_batches(_without(request, self._refused) if self._refused else request)

    def _leave_out_refused(self, request: ModelRequest, error: ModelError) -> ModelRequest:
        refused = find_refused_hints(error, _list_identifiers(request))
        if not refused:
            raise error
        return _without(request, refused)

    def _remember_refused(self, original: ModelRequest, request: ModelRequest) -> None:
        self._refused |= _list_identifiers(original) - _list_identifiers(request) - _CHOSEN_VALUES


def _list_identifiers(request: ModelRequest) -> frozenset[str]:
    return frozenset(name for name in IDENTIFIERS if getattr(request, name) is not None)


def _without(request: ModelRequest, names: frozenset[str]) -> ModelRequest:
    cleared: dict[str, Any] = dict.fromkeys(names)
    return replace(request, **cleared)


class ChatCompletions(ChatModel):
    """A model of a server with the Chat Completions API. `base_url` usually ends in `/v1`."""

    def __init__(
        self,
        *,
        base_url: str,
        model: str,
        provider: str = "openai_compatible",
        fields: APIFields = CHAT_FIELDS,
        asks_for_usage: bool = True,
        **access: Unpack[ModelAccess],
    ) -> None:
        super().__init__(
            append_path(base_url, _PATH),
            provider=provider,
            model=model,
            max_tokens_field="max_completion_tokens" if host_of(base_url) == OPENAI_HOST else "max_tokens",
            fields=fields,
            asks_for_usage=asks_for_usage,
            **access,
        )


class AzureChatCompletions(ChatModel):
    """A deployment at Azure OpenAI, whose name is part of the URL."""

    usual_key_source = "AZURE_OPENAI_API_KEY"

    def __init__(
        self, *, base_url: str, deployment: str, api_version: str | None = None, **access: Unpack[ModelAccess]
    ) -> None:
        super().__init__(
            azure_url(base_url, deployment, api_version),
            provider="azure_openai",
            model=deployment,
            max_tokens_field="max_completion_tokens",
            **access,
        )

    def _key_headers(self) -> Mapping[str, str]:
        return {"api-key": self._api_key.reveal() if self._api_key else ""}


def azure_url(base_url: str, deployment: str, api_version: str | None) -> str:
    """Return the URL of a deployment. A base that ends in `/openai/v1` is Azure's newer form, without a version."""
    if urlsplit(base_url).path.rstrip("/").endswith("/openai/v1"):
        return append_path(base_url, _PATH)
    parts = urlsplit(append_path(base_url, f"/openai/deployments/{quote(deployment, safe='')}{_PATH}"))
    version = f"api-version={quote(api_version or DEFAULT_AZURE_VERSION)}"
    return urlunsplit(parts._replace(query=f"{parts.query}&{version}" if parts.query else version))
