"""A run as a client of `/v1/chat/completions` sees it: one message, in chunks or whole. Our own tools stay unseen."""

from __future__ import annotations

from typing import Any

import orjson

from holodeck.gateway.wire.chat_messages import REASONING_FIELD
from holodeck.gateway.wire.chat_request import ChatRequest
from holodeck.gateway.wire.endings import ending_of
from holodeck.models.events import CallAdded, Event, ItemFinished, ReasoningAdded, RunFinished, RunResult, TextAdded
from holodeck.models.items import FunctionCall, Message, Usage

_BETWEEN = "\n\n"  # what the model says before and after a tool is one message here
_CAUSES = {"content_filter": "content_filter"}


def chat_sse(payload: bytes) -> bytes:
    """A chunk as server-sent events have it; this API gives them no names."""
    return b"data: %b\n\n" % payload


class ChatWriter:
    """Writes one completion. `feed` it every event of the run, in order; a silent one only keeps the completion."""

    def __init__(
        self, request: ChatRequest, *, completion_id: str, created_at: float, model: str = "", is_silent: bool = False
    ) -> None:
        self._request = request
        self.is_silent = is_silent
        self._about = {
            "id": completion_id,
            "created": int(created_at),
            "model": model or request.response.model or "",
            "service_tier": "default",
            "system_fingerprint": None,
        }
        self._chunks: list[bytes] = []
        self._texts: list[str] = []
        self._refusals: list[str] = []
        self._thoughts: list[str] = []
        self._calls: dict[str, dict[str, Any]] = {}
        self._latest = ""
        self._spoken: list[str] = []  # of this turn, and not yet accounted for by a finished message
        self._finish = ""
        self._usage = Usage()
        self.error: dict[str, Any] | None = None
        """What went wrong, when the run failed."""
        self._head = orjson.dumps({**self._about, "object": "chat.completion.chunk"})[:-1]
        self._delta({"role": "assistant", "content": "", "refusal": None})

    def completion(self) -> dict[str, Any]:
        """The whole answer."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(self._texts) or (None if self._calls or self._refusals else ""),
            "refusal": "".join(self._refusals) or None,
            "annotations": [],
        }
        if self._thoughts:
            message[REASONING_FIELD] = "".join(self._thoughts)
        if self._calls:
            message["tool_calls"] = list(self._calls.values())
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish}
        return {**self._about, "object": "chat.completion", "choices": [choice], "usage": _shown(self._usage)}

    def feed(self, event: Event) -> list[bytes]:
        """The chunks that this event makes, often none."""
        match event:
            case TextAdded(is_refusal=True):
                self._spoken.append(event.text)
                self._refusals.append(event.text)
                self._delta({"refusal": event.text})
            case TextAdded():
                self._say(event.item_id, event.text)
            case ReasoningAdded():
                self._thoughts.append(event.text)
                self._delta({REASONING_FIELD: event.text})
            case CallAdded() if self._request.response.is_client(event.name):
                self._call(event.call_id, event.name, event.arguments)
            case ItemFinished(item=Message() as message):
                self._said(message)
            case ItemFinished(item=FunctionCall(name=name) as call) if self._request.response.is_client(name):
                if call.call_id not in self._calls:
                    self._call(call.call_id, name, call.arguments)
            case RunFinished():
                self._end(event.result)
            case _:
                pass
        chunks, self._chunks = self._chunks, []
        return chunks

    def _say(self, item_id: str, text: str) -> None:
        self._spoken.append(text)
        if item_id != self._latest and self._texts:
            text = _BETWEEN + text
        self._latest = item_id
        self._texts.append(text)
        self._delta({"content": text})

    def _said(self, item: Message) -> None:
        """What was streamed stands; a provider that does not stream is heard now."""
        if not any(self._spoken) and item.text:
            self._say(item.id, item.text)
        spoken = "".join(self._spoken)
        self._spoken = [spoken[len(item.text) :]] if spoken.startswith(item.text) else []

    def _call(self, call_id: str, name: str, arguments: str) -> None:
        known = self._calls.get(call_id)
        if known is None:
            function = {"name": name, "arguments": arguments}
            self._calls[call_id] = {"id": call_id, "type": "function", "function": function}
            index = len(self._calls) - 1
            self._delta({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]})
        elif arguments:
            known["function"]["arguments"] += arguments
            index = list(self._calls).index(call_id)
            self._delta({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})

    def _end(self, result: RunResult) -> None:
        self._usage = result.usage
        ending = ending_of(result, is_only_approval=False)
        if ending.error is not None or ending.status == "cancelled":
            error = ending.error or {"code": "cancelled", "message": "The run was cancelled."}
            self.error = {"type": ending.error_type, "param": None, **error}
            self._chunk(orjson.dumps({"error": self.error}))
            return
        if ending.status == "incomplete":
            self._finish = _CAUSES.get(ending.incomplete or "", "length")
        else:
            self._finish = "tool_calls" if self._calls else "stop"
        self._delta({}, self._finish)
        if self._request.wants_usage:
            self._chunk(b'%b,"choices":[],"usage":%b}' % (self._head, orjson.dumps(_shown(self._usage))))

    def _delta(self, delta: dict[str, Any], finish: str | None = None) -> None:
        if self.is_silent:
            return
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = b',"usage":null' if self._request.wants_usage else b""
        self._chunk(b'%b,"choices":[%b]%b}' % (self._head, orjson.dumps(choice), usage))

    def _chunk(self, chunk: bytes) -> None:
        if not self.is_silent:
            self._chunks.append(chunk)


def _shown(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
