"""The dialect of the Chat Completions API, and models that use it, at Azure OpenAI and at compatible servers.

Requests use only what every server with this endpoint accepts. The decoder accepts the variants of many servers:
reasoning in several fields, whole answers instead of streams, calls without ids, and signatures attached to calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import orjson

from holodeck.lib.secret import Secret
from holodeck.models.content import AudioContent, TextContent
from holodeck.models.items import (
    FileData,
    FunctionCall,
    FunctionCallOutput,
    ImageLink,
    Item,
    Message,
    Part,
    Reasoning,
    Usage,
    text_message,
)
from holodeck.models.model_io import (
    FinishReason,
    ModelAnswer,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolChoice,
    ToolSpec,
)
from holodeck.providers.encoding import build_json_format, describe_part, find_image_url, output_text, select_tools
from holodeck.providers.http.endpoint import DONE, Endpoint
from holodeck.providers.http.errors import stream_error
from holodeck.providers.http.model import HTTPModel
from holodeck.providers.http.model_address import ModelAddress, append_path, bearer_headers, host_of
from holodeck.providers.tool_call_assembler import ToolCallAssembler, arguments_object, arguments_text

REASONING_KEY = "chat"
"""Key in `Reasoning.opaque` of the name of the field in which a server sent its reasoning."""
SIGNED_KEY = "chat_calls"
"""Key in `Reasoning.opaque` of what a server attached to calls, by call id, and requires back."""
OPENAI_HOST = "api.openai.com"
DEFAULT_AZURE_VERSION = "2024-10-21"
_PATH = "/chat/completions"
_SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_FINISHES: dict[str, FinishReason] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}
# The two names in use for the field with the reasoning.
_THOUGHTS = ("reasoning_content", "reasoning")
# Gemini's endpoint refuses calls that come back without it.
_SIGNATURE = "extra_content"


def build_chat_body(
    request: ModelRequest, *, model: str, max_tokens_field: str, tools: orjson.Fragment | None
) -> dict[str, Any]:
    """Build the body for `/chat/completions`. `tools`: those that the model may call, as JSON."""
    body: dict[str, Any] = {
        "model": model,
        "messages": _build_messages(request),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    options = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        max_tokens_field: request.max_tokens,
        "reasoning_effort": request.effort,
        "verbosity": request.verbosity,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "stop": list(request.stop) or None,
        "seed": request.seed,
    }
    body.update({name: value for name, value in options.items() if value is not None})
    if request.response_format is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": build_json_format(request.response_format)}
    if tools is not None:
        body["tools"] = tools
        choice = _encode_tool_choice(request.tool_choice)
        if choice is not None:
            body["tool_choice"] = choice
        if not request.parallel_tool_calls:
            body["parallel_tool_calls"] = False
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
    messages: list[dict[str, Any]] = []
    if request.instructions:
        messages.append({"role": "system", "content": request.instructions})
    last_question = max((i for i, item in enumerate(request.items) if _is_from_user(item)), default=-1)
    # Reasoning is sent back only for the current question: servers that require it require it there.
    items = [item for i, item in enumerate(request.items) if i > last_question or not isinstance(item, Reasoning)]
    for speaker, group in groupby(items, key=_speaker):
        if speaker == "assistant":
            messages += _build_assistant_messages(group)
        elif speaker == "tool":
            messages += _build_result_messages([item for item in group if isinstance(item, FunctionCallOutput)], items)
        else:
            messages += [_build_message(item) for item in group if isinstance(item, Message)]
    return messages


def _speaker(item: Item) -> str:
    if isinstance(item, Message):
        return "assistant" if item.role == "assistant" else "person"
    return "tool" if isinstance(item, FunctionCallOutput) else "assistant"


def _is_from_user(item: Item) -> bool:
    return isinstance(item, Message) and item.role == "user"


def _build_message(message: Message) -> dict[str, Any]:
    # Few servers know the role "developer".
    role = "user" if message.role == "user" else "system"
    named = {"name": message.name} if message.name else {}
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
            current["content"] = current.get("content", "") + "\n".join(describe_part(part) for part in item.content)
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
    return [{"role": "assistant", "content": message.pop("content", None), **message} for message in messages]


def _encode_call(call: FunctionCall) -> dict[str, Any]:
    # Several servers parse the arguments again, and refuse the whole request if one is not a JSON object.
    arguments = orjson.dumps(arguments_object(call.arguments)).decode()
    return {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _build_result_messages(outputs: Sequence[FunctionCallOutput], items: Sequence[Item]) -> list[dict[str, Any]]:
    """Build the messages of tool results. They can contain only text, so images follow in a user message."""
    names = {item.call_id: item.name for item in items if isinstance(item, FunctionCall)}
    messages: list[dict[str, Any]] = []
    pictures: list[dict[str, Any]] = []
    for output in outputs:
        lines = []
        for part in output.content:
            if find_image_url(part) is None:
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


class ChatDecoder:
    """Assembles one answer. It is complete with its finish reason; the usage may still follow, until `[DONE]`."""

    def __init__(self, request: ModelRequest, address: ModelAddress) -> None:
        self._address = address
        self._calls = ToolCallAssembler(request)
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._thoughts_field = ""
        self._signed: dict[str, dict[str, Any]] = {}
        self._finish: str | None = None
        self._has_choice = False
        self._usage = Usage()
        self._model = ""
        self._events: list[ModelEvent] = []
        self.is_finished = False

    def decode(self, event: dict[str, Any]) -> list[ModelEvent]:
        text = self._find_only_text(event)
        if text:
            self._text.append(text)
            return [TextDelta(text=text)]
        self._events = []
        if event is DONE:
            self._end_stream()
            return self._events
        error = event.get("error") or (event if event.get("object") == "error" else None)
        if error:
            raise stream_error(self._address, error)
        self._model = event.get("model") or self._model
        usage = event.get("usage")
        if usage:
            self._usage = build_openai_usage(usage, read_name="prompt_tokens", written_name="completion_tokens")
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
        finish = _FINISHES.get(self._finish or "", "stop")
        # Some servers report every end as "stop".
        if self._calls and finish == "stop":
            finish = "tool_calls"
        return ModelAnswer(items=(*items, *self._calls.items()), finish=finish, usage=self._usage, model=self._model)

    def _find_only_text(self, event: dict[str, Any]) -> str | None:
        """Return the text of a chunk that has nothing else, like nearly all chunks: a fast path."""
        choices = event.get("choices")
        if not self._has_choice or not choices or len(choices) > 1 or event.get("model") != self._model:
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
        # A server that does not stream sends a whole message.
        message = choice.get("message") if delta is None else None
        if delta or message:
            self._decode_delta(delta or message or {})
        finish = choice.get("finish_reason")
        if finish == "error":
            raise stream_error(self._address, choice.get("error"))
        if finish:
            self._finish = finish
        if message:
            self._end_stream()

    def _decode_delta(self, delta: dict[str, Any]) -> None:
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
        for call in delta.get("tool_calls") or ():
            self._decode_call(call)
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
        self._events.append(TextDelta(text=text, is_refusal=is_refusal))

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
        self._events += self._calls.announce_remaining()


def build_openai_usage(usage: dict[str, Any], *, read_name: str, written_name: str) -> Usage:
    """Parse the token counts of OpenAI, whose two APIs differ only in the names of what was read and written."""
    read, written = usage.get(f"{read_name}_details") or {}, usage.get(f"{written_name}_details") or {}
    return Usage(
        input_tokens=usage.get(read_name) or 0,
        output_tokens=usage.get(written_name) or 0,
        cached_tokens=read.get("cached_tokens") or 0,
        reasoning_tokens=written.get("reasoning_tokens") or 0,
    )


class ChatDialect:
    """The dialect for one model. `max_tokens_field`: the name of that field, which differs between servers."""

    def __init__(self, model: str, *, max_tokens_field: str = "max_tokens") -> None:
        self._model = model
        self._max_tokens_field = max_tokens_field
        self._tools: tuple[ToolSpec, ...] = ()
        self._encoded_tools: orjson.Fragment | None = None

    def build_body(self, request: ModelRequest) -> dict[str, Any]:
        tools = select_tools(request)
        # The tools of most requests are the same object, and longer than the rest of the body.
        if tools is not self._tools:
            encoded = orjson.dumps([_encode_tool(tool) for tool in tools])
            self._tools, self._encoded_tools = tools, orjson.Fragment(encoded) if tools else None
        return build_chat_body(
            request, model=self._model, max_tokens_field=self._max_tokens_field, tools=self._encoded_tools
        )

    def create_decoder(self, request: ModelRequest, address: ModelAddress) -> ChatDecoder:
        return ChatDecoder(request, address)


class ChatCompletions(HTTPModel):
    """A model of a server with the Chat Completions API. `base_url` usually ends in `/v1`."""

    def __init__(
        self,
        *,
        base_url: str,
        model: str,
        api_key: Secret | None = None,
        key_source: str = "model.api_key",
        provider: str = "openai_compatible",
    ) -> None:
        address = ModelAddress(
            provider=provider, model=model, host=host_of(base_url), key=api_key, key_source=key_source
        )
        field = "max_completion_tokens" if address.host == OPENAI_HOST else "max_tokens"
        endpoint = Endpoint(append_path(base_url, _PATH), address=address, headers=lambda: bearer_headers(api_key))
        super().__init__(endpoint, ChatDialect(model, max_tokens_field=field))


class AzureChatCompletions(HTTPModel):
    """A deployment at Azure OpenAI, whose name is part of the URL."""

    def __init__(
        self,
        *,
        base_url: str,
        deployment: str,
        api_key: Secret,
        api_version: str | None = None,
        key_source: str = "AZURE_OPENAI_API_KEY",
    ) -> None:
        address = ModelAddress(
            provider="azure_openai", model=deployment, host=host_of(base_url), key=api_key, key_source=key_source
        )
        endpoint = Endpoint(
            azure_url(base_url, deployment, api_version),
            address=address,
            headers=lambda: {"api-key": api_key.reveal()},
        )
        super().__init__(endpoint, ChatDialect(deployment, max_tokens_field="max_completion_tokens"))


def azure_url(base_url: str, deployment: str, api_version: str | None) -> str:
    """Return the URL of a deployment. A base that ends in `/openai/v1` is Azure's newer form, without a version."""
    if urlsplit(base_url).path.rstrip("/").endswith("/openai/v1"):
        return append_path(base_url, _PATH)
    parts = urlsplit(append_path(base_url, f"/openai/deployments/{quote(deployment, safe='')}{_PATH}"))
    version = f"api-version={quote(api_version or DEFAULT_AZURE_VERSION)}"
    return urlunsplit(parts._replace(query=f"{parts.query}&{version}" if parts.query else version))
