"""The dialect of Anthropic's Messages API, and models that use it.

Tool results may contain images and are marked as errors; instructions have one field outside of the messages. Reasoning
blocks are stored as received, with their signature, and sent back unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Unpack
from urllib.parse import urlsplit

from holodeck.lib.errors import ModelError
from holodeck.models.generation import ANTHROPIC_FIELDS, TIER
from holodeck.models.items import (
    CacheMark,
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
from holodeck.models.llm import CacheMode
from holodeck.models.model_io import (
    JSON_OBJECT_SCHEMA,
    FinishReason,
    ModelAnswer,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolChoice,
    ToolSpec,
)
from holodeck.providers.answer_decoder import AnswerDecoder, arguments_object, arguments_text
from holodeck.providers.cache_marks import CACHE_FIELD, add_marks, has_marks
from holodeck.providers.encoding import (
    NO_OUTPUT,
    OptionEncoder,
    describe_part,
    find_image,
    parse_data_url,
    require_supported,
    select_tools,
)
from holodeck.providers.http.errors import find_refused_hints, stream_error
from holodeck.providers.http.model import HTTPModel, ModelAccess
from holodeck.providers.http.model_address import ModelAddress, append_path

ANTHROPIC_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"
# Tokens of an answer: the API requires a number, and every current model accepts this one.
DEFAULT_ANTHROPIC_MAX_TOKENS = 8_192
DIALECT_KEY = "anthropic"
"""Key in `Reasoning.opaque` of the block as the provider sent it, with its signature; and in `ToolSpec.native`."""
# Tools of these types need a header that names a feature of the same day.
_COMPUTER_TYPE = re.compile(r"computer_([0-9]{4})([0-9]{2})([0-9]{2})")
_MARKS: Mapping[CacheMode, Mapping[str, str]] = {
    "auto": {"type": "ephemeral"},
    "1h": {"type": "ephemeral", "ttl": "1h"},
}
"""Marks for the prompt cache, by the key of the file."""

_EFFORTS = {"none": None, "minimal": "low"}
# The identifier of the end user comes after the older `user`, whose place it has.
_OPTIONS = OptionEncoder(
    "anthropic",
    converted={
        "effort": lambda effort: _EFFORTS.get(effort, effort),
        "user": lambda user: user or None,
        "safety_identifier": lambda identifier: identifier or None,
    },
)

Block = dict[str, Any]

_NO_CALLS: Block = {"type": "none"}


def build_anthropic_body(
    request: ModelRequest, *, model: str, cache: CacheMode = "auto", has_system_role: bool = True
) -> dict[str, Any]:
    """Build the body for `/v1/messages`. Raises `ModelError` for fields that the API does not have.

    `cache`: which marks it gets, if the client has set none. `has_system_role`: whether instructions may be among the
    messages; all are in `system` otherwise.
    """
    require_supported(request, ANTHROPIC_FIELDS, "anthropic")
    first, items = _split_instructions(request.items, has_system_role=has_system_role)
    messages, unplaced = _messages(items)
    if unplaced:
        return build_anthropic_body(request, model=model, cache=cache, has_system_role=False)
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": DEFAULT_ANTHROPIC_MAX_TOKENS,
        "messages": messages,
        "stream": request.is_streamed,
    }
    system = _system(request.instructions, first)
    if system:
        body["system"] = system
    body.update(_mark(request.cache_mark))
    _OPTIONS.write(request, body)
    schema = JSON_OBJECT_SCHEMA if request.json_mode and request.response_format is None else request.response_format
    if schema is not None:
        body.setdefault("output_config", {})["format"] = {"type": "json_schema", "schema": dict(schema)}
    tools = select_tools(request)
    if tools:
        body["tools"] = [_tool(tool) for tool in tools]
        body["tool_choice"] = _choice(request.tool_choice)
        if body["tool_choice"] != _NO_CALLS:
            _OPTIONS.write(request, body, with_tools=True)
    if request.extra_body:
        body.update(request.extra_body)
    if cache != "off" and not has_marks(body):
        add_marks(body, _MARKS[cache])
    return body


def _split_instructions(items: Sequence[Item], *, has_system_role: bool) -> tuple[list[Message], list[Item]]:
    """Return the messages for `system`, and the other items.

    Instructions that come later stay where they are, so that the prompt grows at its end only.
    """
    start = next((index for index, item in enumerate(items) if not _is_instruction(item)), len(items))
    first = items[:start] if has_system_role else items
    others = items[start:] if has_system_role else [item for item in items if not _is_instruction(item)]
    return [item for item in first if isinstance(item, Message) and _is_instruction(item)], list(others)


def _is_instruction(item: Item) -> bool:
    return isinstance(item, Message) and item.role in {"system", "developer"}


def _mark(mark: CacheMark | None) -> Block:
    """Return the mark for the prompt cache as a member of a block, exactly as the client sent it."""
    return {CACHE_FIELD: mark[CACHE_FIELD]} if mark is not None and CACHE_FIELD in mark else {}


def _system(instructions: str | None, messages: list[Message]) -> str | list[Block]:
    """Join all instructions for the one field that this API has for them. With marks they stay blocks."""
    parts = [part for message in messages for part in message.content if isinstance(part, TextContent)]
    if not any(part.cache_mark for part in parts):
        texts = (instructions or "", *(message.text for message in messages))
        return "\n\n".join(text for text in texts if text)
    if instructions:
        parts.insert(0, TextContent(text=instructions))
    return _instruction_blocks(parts)


def _instruction_blocks(parts: Iterable[Part]) -> list[Block]:
    # The API refuses a block of nothing but white space, and separates blocks by itself.
    texts = (part for part in parts if isinstance(part, TextContent) and part.text.strip())
    return [{"type": "text", "text": part.text, **_mark(part.cache_mark)} for part in texts]


def _tool(tool: ToolSpec) -> dict[str, Any]:
    if tool.native is not None and DIALECT_KEY in tool.native:
        return {**tool.native[DIALECT_KEY], **_mark(tool.cache_mark)}
    entry: dict[str, Any] = {"name": tool.name, "input_schema": dict(tool.parameters)}
    if tool.description:
        entry["description"] = tool.description
    if tool.strict:
        entry["strict"] = True
    return {**entry, **_mark(tool.cache_mark)}


def _choice(choice: ToolChoice) -> dict[str, Any]:
    if choice.name is not None:
        return {"type": "tool", "name": choice.name}
    if choice.mode == "none" or choice.allowed == ():
        return _NO_CALLS
    return {"type": "any" if choice.mode == "required" else "auto"}


def _messages(items: list[Item]) -> tuple[list[dict[str, Any]], list[Block]]:
    """Return the messages, and instructions that have no place among them."""
    messages: list[dict[str, Any]] = []
    instructions: list[Block] = []
    result_count = 0
    for item in items:
        if isinstance(item, Message) and _is_instruction(item):
            instructions += _instruction_blocks(item.content)
            continue
        role = _role(item)
        blocks = _blocks(item)
        if not blocks:
            continue
        if role == "assistant":
            instructions = _place_instructions(messages, instructions)
        if not messages or messages[-1]["role"] != role:
            messages.append({"role": role, "content": []})
            result_count = 0
        content: list[Block] = messages[-1]["content"]
        if isinstance(item, FunctionCallOutput):
            # The API requires the results of calls before any other content of a user message.
            content[result_count:result_count] = blocks
            result_count += len(blocks)
        else:
            content += blocks
    return messages, _place_instructions(messages, instructions)


def _place_instructions(messages: list[dict[str, Any]], blocks: list[Block]) -> list[Block]:
    """Append instructions, which this API has only after a message of the user. Return those without a place."""
    if not blocks or not messages or messages[-1]["role"] != "user":
        return blocks
    messages.append({"role": "system", "content": blocks})
    return []


def _role(item: Item) -> str:
    if isinstance(item, Message):
        return "assistant" if item.role == "assistant" else "user"
    return "user" if isinstance(item, FunctionCallOutput) else "assistant"


def _blocks(item: Item) -> list[Block]:
    if isinstance(item, Message):
        return [block for part in item.content for block in _part(part)]
    if isinstance(item, FunctionCall):
        arguments = arguments_object(item.arguments)
        call: Block = {"type": "tool_use", "id": item.call_id, "name": item.name, "input": arguments}
        return [{**call, **_mark(item.cache_mark)}]
    if isinstance(item, FunctionCallOutput):
        content = [block for part in item.content for block in _part(part)]
        result: Block = {"type": "tool_result", "tool_use_id": item.call_id}
        result["content"] = content or [{"type": "text", "text": NO_OUTPUT}]
        if item.is_error:
            result["is_error"] = True
        return [{**result, **_mark(item.cache_mark)}]
    block = item.opaque.get(DIALECT_KEY) if isinstance(item, Reasoning) else None
    return [dict(block)] if isinstance(block, dict) else []


def _part(part: Part) -> list[Block]:
    if isinstance(part, TextContent):
        # The API refuses an empty block.
        return [{"type": "text", "text": part.text, **_mark(part.cache_mark)}] if part.text else []
    block = _media_block(part)
    return [{**block, **_mark(part.cache_mark)} if isinstance(part, ImageLink | FileData) else block]


def _media_block(part: Part) -> Block:
    image = find_image(part)
    if image:
        return {"type": "image", "source": {"type": "base64", "media_type": image.mime_type, "data": image.data}}
    if isinstance(part, ImageLink) and not part.url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": part.url}}
    if isinstance(part, FileData):
        return _document(part)
    return {"type": "text", "text": describe_part(part)}


def _document(part: FileData) -> Block:
    title = {"title": part.filename} if part.filename else {}
    if not part.url.startswith("data:"):
        return {"type": "document", "source": {"type": "url", "url": part.url}, **title}
    data = parse_data_url(part.url)
    if data is None or data.mime_type != "application/pdf":
        return {"type": "text", "text": describe_part(part)}
    source = {"type": "base64", "media_type": data.mime_type, "data": data.data}
    return {"type": "document", "source": source, **title}


class AnthropicDecoder(AnswerDecoder):
    """Assembles one answer. Blocks stay in order, and reasoning blocks keep their signature."""

    finishes: ClassVar[Mapping[str, FinishReason]] = {
        "tool_use": "tool_calls",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "refusal": "content_filter",
    }

    def __init__(self, request: ModelRequest, address: ModelAddress) -> None:
        super().__init__(request, address)
        self._blocks: dict[int, dict[str, Any]] = {}
        self._deltas: dict[int, dict[str, list[str]]] = {}
        self._usage: dict[str, Any] = {}
        self._receipt = request.receipt
        self._stop_reason = ""

    def decode(self, event: dict[str, Any]) -> list[ModelEvent]:
        self._events = []
        kind = event.get("type")
        if kind == "content_block_delta":
            self._append_delta(event["index"], event["delta"])
        elif kind == "content_block_start":
            self._start_block(event["index"], event["content_block"])
        elif kind == "message_start":
            self._model = event["message"].get("model") or ""
            self._update_usage(event["message"].get("usage"))
            self._receipt.told = _build_usage(self._usage)
        elif kind == "message_delta":
            self._stop_reason = event["delta"].get("stop_reason") or self._stop_reason
            self._update_usage(event.get("usage"))
        elif kind == "message_stop":
            self.is_finished = True
        elif kind == "error" or event.get("error"):
            raise stream_error(self._address, event.get("error"))
        elif kind == "message":
            # A whole answer.
            self._decode_message(event)
        return self._events

    def to_answered(self) -> ModelAnswer | None:
        if not self.is_finished:
            return None
        # The fast mode is no tier in the words of this API. It has a price of its own as tiers do.
        self._tier = "fast" if self._usage.get("speed") == "fast" else self._usage.get(TIER)
        return self._build_answer(self._build_items(), self._stop_reason, _build_usage(self._usage))

    def _start_block(self, index: int, block: dict[str, Any]) -> None:
        self._blocks[index] = dict(block)
        self._deltas[index] = {}
        kind = block.get("type")
        if kind == "tool_use":
            self._calls.start(index, call_id=block.get("id") or "", name=block.get("name") or "")
            # Usually an empty object, followed by fragments; some servers send the whole input here.
            self._events += self._calls.append(index, arguments=arguments_text(block.get("input") or None))
        elif kind == "text" and block.get("text"):
            self._events.append(TextDelta(text=block["text"]))
        elif kind == "thinking" and block.get("thinking"):
            self._events.append(ReasoningDelta(text=block["thinking"]))

    def _append_delta(self, index: int, delta: dict[str, Any]) -> None:
        kind = delta.get("type")
        if kind == "text_delta":
            self._deltas[index].setdefault("text", []).append(delta["text"])
            self._events.append(TextDelta(text=delta["text"]))
        elif kind == "input_json_delta":
            self._events += self._calls.append(index, arguments=delta.get("partial_json") or "")
        elif kind == "thinking_delta":
            self._deltas[index].setdefault("thinking", []).append(delta["thinking"])
            self._events.append(ReasoningDelta(text=delta["thinking"]))
        elif kind == "signature_delta":
            self._deltas[index].setdefault("signature", []).append(delta["signature"])

    def _join_block(self, index: int) -> dict[str, Any]:
        """Return a block with all its deltas."""
        block = self._blocks[index]
        deltas = self._deltas[index].items()
        return {**block, **{field: (block.get(field) or "") + "".join(parts) for field, parts in deltas}}

    def _decode_message(self, message: dict[str, Any]) -> None:
        for index, block in enumerate(message.get("content") or ()):
            self._start_block(index, block)
        self._model = message.get("model") or ""
        self._stop_reason = message.get("stop_reason") or ""
        self._update_usage(message.get("usage"))
        self.is_finished = True

    def _update_usage(self, usage: dict[str, Any] | None) -> None:
        """Merge the counts of an event. They are totals so far, and a later event has only some of them."""
        self._usage.update({name: value for name, value in (usage or {}).items() if value is not None})

    def _build_items(self) -> tuple[Item, ...]:
        items: list[Item] = []
        for index in sorted(self._blocks):
            block = self._join_block(index)
            kind = block.get("type")
            if kind == "tool_use":
                items.append(self._calls.item(index))
            elif kind == "text" and block.get("text"):
                _append_text(items, block["text"])
            elif kind in {"thinking", "redacted_thinking"}:
                opaque = {DIALECT_KEY: block} if block.get("signature") or block.get("data") else {}
                items.append(Reasoning(text=block.get("thinking") or "", opaque=opaque))
        return tuple(items)


def _build_usage(usage: dict[str, Any]) -> Usage:
    """Add up the three kinds of input: in this API, cached tokens are not part of `input_tokens`."""
    cached, written = usage.get("cache_read_input_tokens") or 0, usage.get("cache_creation_input_tokens") or 0
    details, lifetimes = usage.get("output_tokens_details") or {}, usage.get("cache_creation") or {}
    return Usage(
        input_tokens=(usage.get("input_tokens") or 0) + cached + written,
        output_tokens=usage.get("output_tokens") or 0,
        cached_tokens=cached,
        reasoning_tokens=details.get("thinking_tokens") or 0,
        cache_write_tokens=written,
        cache_write_1h_tokens=lifetimes.get("ephemeral_1h_input_tokens") or 0,
    )


def _append_text(items: list[Item], text: str) -> None:
    """Append text to the last message, or as a new one: consecutive text blocks are one message."""
    last = items[-1] if items else None
    if isinstance(last, Message):
        items[-1] = text_message("assistant", last.text + text)
    else:
        items.append(text_message("assistant", text))


class Anthropic(HTTPModel):
    """A model of a server with the Messages API. `base_url` may end in `/v1` or not."""

    decoder = AnthropicDecoder
    usual_key_source = "ANTHROPIC_API_KEY"

    def __init__(
        self,
        *,
        model: str,
        base_url: str = ANTHROPIC_URL,
        cache: CacheMode = "auto",
        **access: Unpack[ModelAccess],
    ) -> None:
        has_version = urlsplit(base_url).path.rstrip("/").endswith(("/v1", "/messages"))
        url = append_path(base_url, "/messages" if has_version else "/v1/messages")
        super().__init__(url, provider="anthropic", model=model, **access)
        self._cache = cache
        # Older models refuse it; it is then switched off.
        self._has_system_role = True

    def _build_body(self, request: ModelRequest) -> dict[str, Any]:
        return build_anthropic_body(request, model=self.name, cache=self._cache, has_system_role=self._has_system_role)

    def _leave_out_refused(self, request: ModelRequest, error: ModelError) -> ModelRequest:
        body = self._build_body(request)
        roles = {message["role"] for message in body["messages"]}
        if "system" in roles and find_refused_hints(error, ("role", "system")):
            self._has_system_role = False
            return request
        if self._cache != "off" and find_refused_hints(error, (CACHE_FIELD,)) and _has_own_marks(request, self.name):
            self._cache = "off"
            return request
        raise error

    def _key_headers(self) -> Mapping[str, str]:
        key = {"x-api-key": self._api_key.reveal()} if self._api_key else {}
        return {"anthropic-version": API_VERSION, **key}

    def _headers_for(self, request: ModelRequest) -> Mapping[str, str]:
        return _beta_headers(request)


def _has_own_marks(request: ModelRequest, model: str) -> bool:
    """Return whether the marks of a request are ours. A refusal of a client's marks is the client's to read."""
    return not has_marks(build_anthropic_body(request, model=model, cache="off"))


def _beta_headers(request: ModelRequest) -> dict[str, str]:
    """Return the header for the tools of a request that the API has not released yet."""
    types = [str((tool.native or {}).get(DIALECT_KEY, {}).get("type")) for tool in request.tools if tool.native]
    days = ["-".join(found.groups()) for each in types if (found := _COMPUTER_TYPE.fullmatch(each))]
    return {"anthropic-beta": ",".join(f"computer-use-{day}" for day in days)} if days else {}
