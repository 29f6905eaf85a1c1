"""Writes a run as a chat completion: one message with text, reasoning and calls of the client's functions.

Calls that the gateway runs do not appear. A `ChatWriter` belongs to one run and is fed its events in order. The first
chunk of a stream is written when a model has begun to answer, since every chunk names the one that does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from holodeck.gateway.wire.chat.request import REASONING_FIELD, ChatRequest
from holodeck.gateway.wire.response.resource import ending_of
from holodeck.gateway.wire.response.text_items import streamed_beyond
from holodeck.models.events import (
    CallAdded,
    Event,
    ItemFinished,
    ReasoningAdded,
    RunFinished,
    RunResult,
    StandInAnswered,
    TextAdded,
    is_before_answer,
)
from holodeck.models.generation import DEFAULT_OPTIONS
from holodeck.models.items import FunctionCall, Message, Usage
from holodeck.models.model_io import Logprob, logprobs_to_json

# Between the messages of a run, which are one message here.
_MESSAGE_SEPARATOR = "\n\n"
_FINISH_REASONS = {"content_filter": "content_filter"}


def encode_chat_sse(chunk: bytes) -> bytes:
    """Encode a chunk as a server-sent event. Events of this API have no names."""
    return b"data: %b\n\n" % chunk


class ChatWriter:
    """Writes one completion. Feed it every event of the run, in order. A silent writer only builds the completion."""

    def __init__(
        self, request: ChatRequest, *, completion_id: str, created_at: float, model: str = "", is_silent: bool = False
    ) -> None:
        self._request = request
        self.is_silent = is_silent
        self._common_fields = {
            "id": completion_id,
            "created": int(created_at),
            "model": model or request.response.model or "",
            "service_tier": request.response.options.service_tier or "default",
            "system_fingerprint": None,
        }
        self._chunks: list[bytes] = []
        self._texts: list[str] = []
        options = request.response.options
        self._has_logprobs = options is not DEFAULT_OPTIONS and options.wants_logprobs
        self._logprobs: dict[str, list[dict[str, Any]]] = {"content": [], "refusal": []}
        self._refusals: list[str] = []
        self._reasoning_texts: list[str] = []
        self._calls: dict[str, dict[str, Any]] = {}
        self._latest_item_id = ""
        # Deltas of this turn that no finished message has covered yet.
        self._unmatched_texts: list[str] = []
        self._finish_reason = ""
        self._details: dict[str, Any] = {}
        self._usage = Usage()
        self.error: dict[str, Any] | None = None
        """The error of the API, when the run failed or was cancelled."""
        self._head = b""
        self._must_begin = not is_silent

    def build_resource(self) -> dict[str, Any]:
        """Build the whole completion."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(self._texts) or (None if self._calls or self._refusals else ""),
            "refusal": "".join(self._refusals) or None,
            "annotations": [],
        }
        if self._reasoning_texts:
            message[REASONING_FIELD] = "".join(self._reasoning_texts)
        if self._calls:
            message["tool_calls"] = list(self._calls.values())
        logprobs = _logprobs_to_chat_json(self._logprobs) if self._has_logprobs else None
        choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": self._finish_reason}
        return {
            **self._common_fields,
            "object": "chat.completion",
            "choices": [choice],
            "usage": usage_to_chat_json(self._usage),
            **self._details,
        }

    def feed(self, *events: Event) -> list[bytes]:
        """Return the chunks for events of the run as server-sent events, often none."""
        for event in events:
            if self._must_begin and not is_before_answer(event):
                self._begin()
            self._write_event(event)
        chunks, self._chunks = self._chunks, []
        return chunks

    def _begin(self) -> None:
        self._must_begin = False
        self._head = self._build_head()
        self._emit_delta({"role": "assistant", "content": "", "refusal": None})

    def _write_event(self, event: Event) -> None:
        match event:
            case TextAdded(is_refusal=True):
                self._unmatched_texts.append(event.text)
                self._refusals.append(event.text)
                self._emit_delta({"refusal": event.text}, logprobs=self._add_logprobs("refusal", event.logprobs))
            case TextAdded():
                self._add_text(event.item_id, event.text, event.logprobs)
            case ReasoningAdded():
                self._reasoning_texts.append(event.text)
                self._emit_delta({REASONING_FIELD: event.text})
            case CallAdded() if self._request.response.is_client_function(event.name):
                self._add_call(event.call_id, event.name, event.arguments)
            case ItemFinished(item=Message() as message):
                self._finish_message(message)
            case ItemFinished(item=FunctionCall(name=name) as call) if self._request.response.is_client_function(name):
                if call.call_id not in self._calls:
                    self._add_call(call.call_id, name, call.arguments)
            case StandInAnswered():
                self._common_fields["model"] = event.name
            case RunFinished():
                self._finish_run(event.result)
            case _:
                pass

    def _add_text(self, item_id: str, text: str, logprobs: Sequence[Logprob] = ()) -> None:
        self._unmatched_texts.append(text)
        if item_id != self._latest_item_id and self._texts:
            text = _MESSAGE_SEPARATOR + text
        self._latest_item_id = item_id
        self._texts.append(text)
        self._emit_delta({"content": text}, logprobs=self._add_logprobs("content", logprobs))

    def _add_logprobs(self, key: str, logprobs: Sequence[Logprob]) -> dict[str, Any] | None:
        """Add log probabilities to those of the text or of the refusal, and return them as a chunk has them."""
        if not logprobs or not self._has_logprobs:
            return None
        encoded = logprobs_to_json(logprobs, has_all_bytes=True)
        self._logprobs[key] += encoded
        return _logprobs_to_chat_json({key: encoded})

    def _finish_message(self, item: Message) -> None:
        # A message that was not streamed is written now.
        if not any(self._unmatched_texts) and item.text:
            self._add_text(item.id, item.text)
        self._unmatched_texts = streamed_beyond(self._unmatched_texts, item.text)

    def _add_call(self, call_id: str, name: str, arguments: str) -> None:
        known = self._calls.get(call_id)
        if known is None:
            function = {"name": name, "arguments": arguments}
            self._calls[call_id] = {"id": call_id, "type": "function", "function": function}
            index = len(self._calls) - 1
            self._emit_delta(
                {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
            )
        elif arguments:
            known["function"]["arguments"] += arguments
            index = list(self._calls).index(call_id)
            self._emit_delta({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})

    def _finish_run(self, result: RunResult) -> None:
        self._usage = result.usage
        self._common_fields["service_tier"] = result.service_tier or "default"
        ending = ending_of(result, is_pause_completed=False)
        if ending.incomplete is not None:
            self._details = ending.details
        if not self.is_silent:
            self._head = self._build_head()
        if ending.error is not None or ending.status == "cancelled":
            error = ending.error or {"code": "cancelled", "message": "The run was cancelled."}
            self.error = {"type": ending.error_type, "param": None, **error}
            self._emit_chunk(orjson.dumps({"error": self.error}))
            return
        if ending.status == "incomplete":
            self._finish_reason = _FINISH_REASONS.get(ending.incomplete or "", "length")
        else:
            self._finish_reason = "tool_calls" if self._calls else "stop"
        self._emit_delta({}, self._finish_reason)
        if self._request.needs_usage:
            self._emit_chunk(
                b'%b,"choices":[],"usage":%b}' % (self._head, orjson.dumps(usage_to_chat_json(self._usage)))
            )

    def _build_head(self) -> bytes:
        """Return the fields that all chunks have in common."""
        return orjson.dumps({**self._common_fields, "object": "chat.completion.chunk", **self._details})[:-1]

    def _emit_delta(
        self, delta: dict[str, Any], finish: str | None = None, *, logprobs: dict[str, Any] | None = None
    ) -> None:
        if self.is_silent:
            return
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        usage = b',"usage":null' if self._request.needs_usage else b""
        self._chunks.append(encode_chat_sse(b'%b,"choices":[%b]%b}' % (self._head, orjson.dumps(choice), usage)))

    def _emit_chunk(self, chunk: bytes) -> None:
        if not self.is_silent:
            self._chunks.append(encode_chat_sse(chunk))


def _logprobs_to_chat_json(logprobs: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
    return {key: logprobs.get(key) or None for key in ("content", "refusal")}


def usage_to_chat_json(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
