"""The dialect of OpenAI's Responses API, and models that use it.

Requests are not stored at the provider (`store: false`), so reasoning is requested in encrypted form and sent back as
received. A stream adds, fills and completes items, then ends with one terminal event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Unpack

from holodeck.lib.errors import ModelError
from holodeck.models.generation import CACHE_HINTS, RESPONSES_FIELDS, TIER
from holodeck.models.items import (
    FileData,
    FunctionCall,
    FunctionCallOutput,
    ImageLink,
    Item,
    Message,
    Part,
    Reasoning,
    TextContent,
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
from holodeck.providers.answer_decoder import NO_ARGUMENTS, AnswerDecoder, build_openai_usage
from holodeck.providers.encoding import (
    OptionEncoder,
    build_json_format,
    describe_part,
    describe_parts,
    find_image_url,
    output_text,
    require_supported,
)
from holodeck.providers.http.errors import find_refused_hints, stream_error
from holodeck.providers.http.model import HTTPModel, ModelAccess
from holodeck.providers.http.model_address import ModelAddress, append_path

OPENAI_URL = "https://api.openai.com/v1"
REASONING_KEY = "responses"
"""Key in `Reasoning.opaque` of the item as the provider sent it."""
CACHE_FIELD = "prompt_cache_breakpoint"
"""The field of this API for marks of the prompt cache."""
ENCRYPTED = "reasoning.encrypted_content"
_LOGPROBS = "message.output_text.logprobs"
_OPTIONS = OptionEncoder("responses")
_BAD_REQUEST = 400
_REFUSAL = "response.refusal.delta"
_TEXT = frozenset({"response.output_text.delta", _REFUSAL})
_THOUGHTS = frozenset(
    {"response.reasoning_text.delta", "response.reasoning.delta", "response.reasoning_summary_text.delta"}
)
_LAST = frozenset({"response.completed", "response.incomplete"})
_FAILED = frozenset({"response.failed", "response.cancelled", "error"})
_UNANSWERED = frozenset({"failed", "cancelled"})


def build_responses_body(request: ModelRequest, *, model: str, wants_encrypted: bool) -> dict[str, Any]:
    """Build the body for `/responses`. Raises `ModelError` for fields that the API does not have."""
    require_supported(request, RESPONSES_FIELDS, "openai")
    body: dict[str, Any] = {
        "model": model,
        "input": [entry for item in request.items for entry in _encode_item(item)],
        "stream": request.is_streamed,
        "store": False,
    }
    included = [ENCRYPTED] if wants_encrypted else []
    if request.wants_logprobs:
        included.append(_LOGPROBS)
    if included:
        body["include"] = included
    if request.instructions:
        body["instructions"] = request.instructions
    _OPTIONS.write(request, body)
    if request.response_format is not None:
        text_format = {"type": "json_schema", **build_json_format(request.response_format)}
        body.setdefault("text", {})["format"] = text_format
    elif request.json_mode:
        body.setdefault("text", {})["format"] = {"type": "json_object"}
    if request.tools:
        body["tools"] = [_encode_tool(tool) for tool in request.tools]
        body["tool_choice"] = _encode_tool_choice(request.tool_choice)
        _OPTIONS.write(request, body, with_tools=True)
    if request.extra_body:
        body.update(request.extra_body)
    return body


def _encode_tool(tool: ToolSpec) -> dict[str, Any]:
    # `strict` is always sent: its default here is true, and most tool schemas do not meet that mode.
    head = {"type": "function", "name": tool.name, "strict": tool.strict, "parameters": dict(tool.parameters)}
    return {**head, "description": tool.description} if tool.description else head


def _encode_tool_choice(choice: ToolChoice) -> Any:
    if choice.name is not None:
        return {"type": "function", "name": choice.name}
    if choice.allowed == () or choice.mode == "none":
        return "none"
    if choice.allowed is not None:
        tools = [{"type": "function", "name": name} for name in choice.allowed]
        return {"type": "allowed_tools", "mode": choice.mode, "tools": tools}
    return choice.mode


def _encode_item(item: Item) -> list[dict[str, Any]]:
    if isinstance(item, Message):
        return [_encode_message(item)]
    if isinstance(item, FunctionCall):
        arguments = item.arguments or NO_ARGUMENTS
        return [{"type": "function_call", "call_id": item.call_id, "name": item.name, "arguments": arguments}]
    if isinstance(item, FunctionCallOutput):
        return [{"type": "function_call_output", "call_id": item.call_id, "output": _encode_output(item)}]
    return _encode_reasoning(item) if isinstance(item, Reasoning) else []


def _encode_message(message: Message) -> dict[str, Any]:
    # Without ids: items are not stored at the provider, and ids from elsewhere are refused.
    content = (
        describe_parts(message.content)
        if message.role == "assistant"
        else [{**_encode_part(part), **_mark(part)} for part in message.content]
    )
    return {"type": "message", "role": message.role, "content": content}


def _mark(part: Part) -> dict[str, Any]:
    """Return the mark for the prompt cache as a member of a part, exactly as the client sent it."""
    mark = part.cache_mark if isinstance(part, TextContent | ImageLink | FileData) else None
    return {CACHE_FIELD: mark[CACHE_FIELD]} if mark is not None and CACHE_FIELD in mark else {}


def _encode_part(part: Part) -> dict[str, Any]:
    url = find_image_url(part)
    if url is not None:
        detail = part.detail if isinstance(part, ImageLink) else "auto"
        return {"type": "input_image", "image_url": url, "detail": detail}
    if isinstance(part, FileData):
        if part.url.startswith("data:"):
            return {"type": "input_file", "filename": part.filename or "file", "file_data": part.url}
        return {"type": "input_file", "file_url": part.url}
    return {"type": "input_text", "text": describe_part(part)}


def _encode_output(output: FunctionCallOutput) -> Any:
    """Encode text alone as a string, which every server accepts, and a result with images as parts."""
    if all(find_image_url(part) is None for part in output.content):
        return output_text(output, describe_parts(output.content))
    parts = [_encode_part(part) for part in output.content if not isinstance(part, TextContent) or part.text]
    if output.is_error:
        parts.insert(0, {"type": "input_text", "text": "Error:"})
    return parts


def _encode_reasoning(item: Reasoning) -> list[dict[str, Any]]:
    """Encode reasoning with its content. A bare id is dropped: the provider has stored nothing under it."""
    entry = item.opaque.get(REASONING_KEY)
    if not isinstance(entry, dict) or not (entry.get("encrypted_content") or entry.get("content")):
        return []
    return [{name: value for name, value in entry.items() if name != "status"}]


class ResponsesDecoder(AnswerDecoder):
    """Assembles one answer. Items are read from their `done` events, since some servers omit them in the last one."""

    finishes: ClassVar[Mapping[str, FinishReason]] = {"content_filter": "content_filter", "length": "length"}

    def __init__(self, request: ModelRequest, address: ModelAddress) -> None:
        super().__init__(request, address)
        # Output indexes of items with deltas.
        self._streamed_indexes: set[Any] = set()
        self._done_items: dict[Any, dict[str, Any]] = {}
        self._response: dict[str, Any] = {}

    def decode(self, event: dict[str, Any]) -> list[ModelEvent]:
        self._events = []
        kind, index = event.get("type"), event.get("output_index", 0)
        if kind in _TEXT:
            logprobs = parse_logprobs(event.get("logprobs")) if self._wants_logprobs else ()
            self._append_delta(TextDelta(text=event["delta"], is_refusal=kind == _REFUSAL, logprobs=logprobs), index)
        elif kind == "response.function_call_arguments.delta":
            self._events += self._calls.append(index, arguments=event["delta"])
        elif kind in _THOUGHTS:
            self._append_delta(ReasoningDelta(text=event["delta"]), index)
        elif kind == "response.reasoning_summary_part.added" and event.get("summary_index"):
            self._append_delta(ReasoningDelta(text="\n\n"), index)
        elif kind == "response.output_item.added":
            self._start_item(event["item"], index)
        elif kind == "response.output_item.done":
            self._finish_item(event["item"], index)
        elif kind in _LAST:
            self._finish_response(event["response"])
        elif kind in _FAILED or event.get("error"):
            response = event.get("response") or {}
            raise stream_error(self._address, event.get("error") or response.get("error") or event)
        elif event.get("object") == "response" and kind is None:
            # A whole answer.
            self._finish_response(event)
        return self._events

    def to_answered(self) -> ModelAnswer | None:
        if not self.is_finished:
            return None
        items = [item for index in sorted(self._done_items) for item in self._build_items(index)]
        reason = None
        if self._response.get("status") == "incomplete":
            details = self._response.get("incomplete_details") or {}
            reason = "content_filter" if details.get("reason") == "content_filter" else "length"
        usage = build_openai_usage(
            self._response.get("usage") or {}, read_name="input_tokens", written_name="output_tokens"
        )
        return self._build_answer(items, reason, usage)

    def _append_delta(self, delta: TextDelta | ReasoningDelta, index: Any) -> None:
        if delta.text:
            self._streamed_indexes.add(index)
            self._events.append(delta)

    def _start_item(self, item: dict[str, Any], index: Any) -> None:
        if item.get("type") == "function_call":
            call_id = item.get("call_id") or item.get("id") or ""
            self._calls.start(index, call_id=call_id, name=item.get("name") or "", item_id=item.get("id") or "")
            self._events += self._calls.append(index, arguments=item.get("arguments") or "")

    def _finish_item(self, item: dict[str, Any], index: Any) -> None:
        """Record a complete item, and add deltas for content that had none."""
        self._done_items[index] = item
        kind = item.get("type")
        if kind == "function_call":
            if index not in self._calls:
                self._start_item({**item, "arguments": ""}, index)
            self._events += self._calls.append_missing(index, item.get("arguments") or "")
        elif kind == "message" and index not in self._streamed_indexes:
            is_refusal = any(part.get("type") == "refusal" for part in item.get("content") or ())
            logprobs = self._parse_item_logprobs(item)
            text = _join_text(item.get("content"))
            self._append_delta(TextDelta(text=text, is_refusal=is_refusal, logprobs=logprobs), index)
        elif kind == "reasoning" and index not in self._streamed_indexes:
            text = _join_text(item.get("content")) or _join_text(item.get("summary"), "\n\n")
            self._append_delta(ReasoningDelta(text=text), index)

    def _parse_item_logprobs(self, item: dict[str, Any]) -> tuple[Logprob, ...]:
        if not self._wants_logprobs:
            return ()
        return tuple(each for part in item.get("content") or () for each in parse_logprobs(part.get("logprobs")))

    def _finish_response(self, response: dict[str, Any]) -> None:
        if response.get("status") in _UNANSWERED or response.get("error"):
            raise stream_error(self._address, response.get("error"))
        if not self._done_items:
            for index, item in enumerate(response.get("output") or ()):
                self._finish_item(item, index)
        self._response, self._model = response, response.get("model") or ""
        self._tier = response.get(TIER)
        self.is_finished = True
        self._events += self._calls.announce_remaining()

    def _build_items(self, index: Any) -> list[Item]:
        item = self._done_items[index]
        kind = item.get("type")
        if kind == "function_call":
            return [self._calls.item(index)]
        if kind == "message":
            content = TextContent(text=_join_text(item.get("content")))
            return [Message(role="assistant", content=(content,), id=item.get("id") or "")]
        if kind == "reasoning":
            text, summary = _join_text(item.get("content")), _join_text(item.get("summary"), "\n\n")
            return [Reasoning(text=text, summary=summary, opaque={REASONING_KEY: item}, id=item.get("id") or "")]
        # Calls of the provider's built-in tools, which no request here enables.
        return []


def _join_text(parts: Any, between: str = "") -> str:
    return between.join(part.get("text") or part.get("refusal") or "" for part in parts or ())


class Responses(HTTPModel):
    """A model of a server with the Responses API. `base_url` usually ends in `/v1`."""

    decoder = ResponsesDecoder

    def __init__(
        self, *, model: str, base_url: str = OPENAI_URL, provider: str = "openai", **access: Unpack[ModelAccess]
    ) -> None:
        super().__init__(append_path(base_url, "/responses"), provider=provider, model=model, **access)
        # Models without reasoning refuse it; it is then switched off.
        self._wants_encrypted = True

    def _build_body(self, request: ModelRequest) -> dict[str, Any]:
        return build_responses_body(request, model=self.name, wants_encrypted=self._wants_encrypted)

    def _leave_out_refused(self, request: ModelRequest, error: ModelError) -> ModelRequest:
        refused = find_refused_hints(error, _list_sent_hints(request))
        if refused:
            return _without_hints(request, refused)
        if self._wants_encrypted and _is_about_encryption(error):
            self._wants_encrypted = False
            return request
        raise error


def _list_sent_hints(request: ModelRequest) -> list[str]:
    names = [name for name in CACHE_HINTS if getattr(request, name) is not None]
    is_marked = any(isinstance(item, Message) and any(map(_mark, item.content)) for item in request.items)
    return [*names, CACHE_FIELD] if is_marked else names


def _without_hints(request: ModelRequest, names: frozenset[str]) -> ModelRequest:
    """Return a request without hints. Not for later ones: a value may be refused as well, and callers choose it."""
    cleared: dict[str, Any] = dict.fromkeys(names - {CACHE_FIELD})
    items = tuple(map(_without_marks, request.items)) if CACHE_FIELD in names else request.items
    return replace(request, items=items, **cleared)


def _without_marks(item: Item) -> Item:
    if not isinstance(item, Message):
        return item
    return replace(item, content=tuple(map(_without_mark, item.content)))


def _without_mark(part: Part) -> Part:
    return replace(part, cache_mark=None) if isinstance(part, TextContent | ImageLink | FileData) else part


def _is_about_encryption(error: ModelError) -> bool:
    return error.status == _BAD_REQUEST and "encrypted" in str(error).lower()
