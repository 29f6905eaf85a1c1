"""An answer in Anthropic Messages: blocks that start, grow and stop, between a start and a stop of the message."""

from __future__ import annotations

from typing import Any

from holodeck.models.items import Item, Message, Reasoning, Usage, text_message
from holodeck.models.model_io import FinishReason, ModelAnswer, ModelEvent, ModelRequest, ReasoningDelta, TextDelta
from holodeck.providers.anthropic_request import REASONING_KEY
from holodeck.providers.http.errors import stream_error
from holodeck.providers.http.model_address import ModelAddress
from holodeck.providers.tool_call_assembler import ToolCallAssembler, arguments_text

_FINISHES: dict[str, FinishReason] = {
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


class AnthropicDecoder:
    """One answer. Blocks keep their order, and thoughts their signature."""

    def __init__(self, request: ModelRequest, address: ModelAddress) -> None:
        self._address = address
        self._calls = ToolCallAssembler(request)
        self._blocks: dict[int, dict[str, Any]] = {}
        self._deltas: dict[int, dict[str, list[str]]] = {}
        self._usage: dict[str, Any] = {}
        self._model = ""
        self._stop_reason = ""
        self._events: list[ModelEvent] = []
        self.is_finished = False

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
        elif kind == "message_delta":
            self._stop_reason = event["delta"].get("stop_reason") or self._stop_reason
            self._update_usage(event.get("usage"))
        elif kind == "message_stop":
            self.is_finished = True
        elif kind == "error" or event.get("error"):
            raise stream_error(self._address, event.get("error"))
        elif kind == "message":  # a server that does not stream
            self._decode_message(event)
        return self._events

    def to_answered(self) -> ModelAnswer | None:
        if not self.is_finished:
            return None
        finish = _FINISHES.get(self._stop_reason, "stop")
        if self._calls and finish == "stop":
            finish = "tool_calls"
        return ModelAnswer(items=self._build_items(), finish=finish, usage=_build_usage(self._usage), model=self._model)

    def _start_block(self, index: int, block: dict[str, Any]) -> None:
        self._blocks[index] = dict(block)
        self._deltas[index] = {}
        kind = block.get("type")
        if kind == "tool_use":
            self._calls.start(index, call_id=block.get("id") or "", name=block.get("name") or "")
            # The input of a start is an empty object that fragments replace; only some servers put all of it there.
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
        """A block with all that was added to it."""
        block = self._blocks[index]
        added = self._deltas[index].items()
        return {**block, **{field: (block.get(field) or "") + "".join(parts) for field, parts in added}}

    def _decode_message(self, message: dict[str, Any]) -> None:
        for index, block in enumerate(message.get("content") or ()):
            self._start_block(index, block)
        self._model = message.get("model") or ""
        self._stop_reason = message.get("stop_reason") or ""
        self._update_usage(message.get("usage"))
        self.is_finished = True

    def _update_usage(self, usage: dict[str, Any] | None) -> None:
        """Counts are totals so far; a later event repeats only some of them."""
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
                opaque = {REASONING_KEY: block} if block.get("signature") or block.get("data") else {}
                items.append(Reasoning(text=block.get("thinking") or "", opaque=opaque))
        return tuple(items)


def _build_usage(usage: dict[str, Any]) -> Usage:
    """The three kinds of input add up here; elsewhere the cached part is within the input."""
    cached = usage.get("cache_read_input_tokens") or 0
    details = usage.get("output_tokens_details") or {}
    return Usage(
        input_tokens=(usage.get("input_tokens") or 0) + cached + (usage.get("cache_creation_input_tokens") or 0),
        output_tokens=usage.get("output_tokens") or 0,
        cached_tokens=cached,
        reasoning_tokens=details.get("thinking_tokens") or 0,
    )


def _append_text(items: list[Item], text: str) -> None:
    """Text blocks in a row are one message."""
    last = items[-1] if items else None
    if isinstance(last, Message):
        items[-1] = text_message("assistant", last.text + text)
    else:
        items.append(text_message("assistant", text))
