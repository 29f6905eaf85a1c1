"""The dialect of the Chat Completions API, and models that use it, at Azure OpenAI and at compatible servers.

Requests have few members that not every server with this endpoint accepts, and those only if the caller sets them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Unpack
from urllib.parse import quote, urlsplit, urlunsplit

import orjson

from holodeck.lib.errors import ModelError
from holodeck.models.content import AudioContent, TextContent
from holodeck.models.generation import CACHE_HINTS, CHAT_FIELDS, IDENTIFIERS, APIFields
from holodeck.models.items import (
    FileData,
    FunctionCall,
    FunctionCallOutput,
    ImageLink,
    Item,
    Message,
    Part,
    Reasoning,
)
from holodeck.models.model_io import ModelRequest, ToolChoice, ToolSpec
from holodeck.providers.base import Batches
from holodeck.providers.chat_decoder import REASONING_KEY, SIGNED_KEY, ChatDecoder
from holodeck.providers.encoding import (
    OptionEncoder,
    build_json_format,
    describe_part,
    find_image_url,
    none_if_zero,
    output_text,
    require_supported,
    select_tools,
)
from holodeck.providers.http.errors import find_refused_hints
from holodeck.providers.http.model import HTTPModel, ModelAccess
from holodeck.providers.http.model_address import append_path, host_of
from holodeck.providers.tool_call_assembler import arguments_object

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
) -> dict[str, Any]:
    """Build the body for `/chat/completions`. `tools`: those that the model may call, as JSON."""
    body: dict[str, Any] = {
        "model": model,
        "messages": _build_messages(request),
        "stream": request.is_streamed,
    }
    if request.is_streamed:
        body["stream_options"] = {"include_usage": True}
    options.write(request, body)
    if request.top_logprobs is not None:
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
        if not request.parallel_tool_calls:
            body["parallel_tool_calls"] = False
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
    items = request.items
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
        **access: Unpack[ModelAccess],
    ) -> None:
        """`max_tokens_field`: the name of that field, which differs between servers."""
        super().__init__(url, provider=provider, model=model, **access)
        self._fields = fields
        self._options = OptionEncoder(
            fields.api, converted={"top_logprobs": none_if_zero}, renamed={"max_tokens": max_tokens_field}
        )
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
        return build_chat_body(request, model=self.name, tools=self._encoded_tools, options=self._options)

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
        **access: Unpack[ModelAccess],
    ) -> None:
        super().__init__(
            append_path(base_url, _PATH),
            provider=provider,
            model=model,
            max_tokens_field="max_completion_tokens" if host_of(base_url) == OPENAI_HOST else "max_tokens",
            fields=fields,
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
