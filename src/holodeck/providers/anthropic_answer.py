"""An answer in Anthropic Messages: blocks that start, grow and stop, between a start and a stop of the message."""

from __future__ import annotations

from typing import Any

from holodeck.models.exchange import Answered, FinishReason, ModelEvent, ModelRequest, ReasoningDelta, TextDelta
from holodeck.models.items import Item, Message, Reasoning, Usage, said
from holodeck.providers.address import Address
from holodeck.providers.anthropic_request import REASONING_KEY
from holodeck.providers.calls import Calls, arguments_text
from holodeck.providers.failures import reported

_FINISHES: dict[str, FinishReason] = {
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


class AnthropicAnswer:
    """One answer. Blocks keep their order, and thoughts their signature."""

    def __init__(self, request: ModelRequest, address: Address) -> None:
        self._address = address
        self._calls = Calls(request)
        self._blocks: dict[int, dict[str, Any]] = {}
        self._growth: dict[int, dict[str, list[str]]] = {}
        self._usage: dict[str, Any] = {}
        self._model = ""
        self._stop = ""
        self._news: list[ModelEvent] = []
        self.is_over = False

    def take(self, event: dict[str, Any]) -> list[ModelEvent]:
        self._news = []
        kind = event.get("type")
        if kind == "content_block_delta":
            self._grow(event["index"], event["delta"])
        elif kind == "content_block_start":
            self._start(event["index"], event["content_block"])
        elif kind == "message_start":
            self._model = event["message"].get("model") or ""
            self._spent(event["message"].get("usage"))
        elif kind == "message_delta":
            self._stop = event["delta"].get("stop_reason") or self._stop
            self._spent(event.get("usage"))
        elif kind == "message_stop":
            self.is_over = True
        elif kind == "error" or event.get("error"):
            raise reported(self._address, event.get("error"))
        elif kind == "message":  # a server that does not stream
            self._all(event)
        return self._news

    def whole(self) -> Answered | None:
        if not self.is_over:
            return None
        finish = _FINISHES.get(self._stop, "stop")
        if self._calls and finish == "stop":
            finish = "tool_calls"
        return Answered(items=self._items(), finish=finish, usage=_counted(self._usage), model=self._model)

    def _start(self, index: int, block: dict[str, Any]) -> None:
        self._blocks[index] = dict(block)
        self._growth[index] = {}
        kind = block.get("type")
        if kind == "tool_use":
            self._calls.begin(index, call_id=block.get("id") or "", name=block.get("name") or "")
            # The input of a start is an empty object that fragments replace; only some servers put all of it there.
            self._news += self._calls.more(index, arguments=arguments_text(block.get("input") or None))
        elif kind == "text" and block.get("text"):
            self._news.append(TextDelta(text=block["text"]))
        elif kind == "thinking" and block.get("thinking"):
            self._news.append(ReasoningDelta(text=block["thinking"]))

    def _grow(self, index: int, delta: dict[str, Any]) -> None:
        kind = delta.get("type")
        if kind == "text_delta":
            self._growth[index].setdefault("text", []).append(delta["text"])
            self._news.append(TextDelta(text=delta["text"]))
        elif kind == "input_json_delta":
            self._news += self._calls.more(index, arguments=delta.get("partial_json") or "")
        elif kind == "thinking_delta":
            self._growth[index].setdefault("thinking", []).append(delta["thinking"])
            self._news.append(ReasoningDelta(text=delta["thinking"]))
        elif kind == "signature_delta":
            self._growth[index].setdefault("signature", []).append(delta["signature"])

    def _grown(self, index: int) -> dict[str, Any]:
        """A block with all that was added to it."""
        block = self._blocks[index]
        added = self._growth[index].items()
        return {**block, **{field: (block.get(field) or "") + "".join(parts) for field, parts in added}}

    def _all(self, message: dict[str, Any]) -> None:
        for index, block in enumerate(message.get("content") or ()):
            self._start(index, block)
        self._model = message.get("model") or ""
        self._stop = message.get("stop_reason") or ""
        self._spent(message.get("usage"))
        self.is_over = True

    def _spent(self, usage: dict[str, Any] | None) -> None:
        """Counts are totals so far; a later event repeats only some of them."""
        self._usage.update({name: value for name, value in (usage or {}).items() if value is not None})

    def _items(self) -> tuple[Item, ...]:
        items: list[Item] = []
        for index in sorted(self._blocks):
            block = self._grown(index)
            kind = block.get("type")
            if kind == "tool_use":
                items.append(self._calls.item(index))
            elif kind == "text" and block.get("text"):
                _speak(items, block["text"])
            elif kind in {"thinking", "redacted_thinking"}:
                opaque = {REASONING_KEY: block} if block.get("signature") or block.get("data") else {}
                items.append(Reasoning(text=block.get("thinking") or "", opaque=opaque))
        return tuple(items)


def _counted(usage: dict[str, Any]) -> Usage:
    """The three kinds of input add up here; elsewhere the cached part is within the input."""
    cached = usage.get("cache_read_input_tokens") or 0
    details = usage.get("output_tokens_details") or {}
    return Usage(
        input_tokens=(usage.get("input_tokens") or 0) + cached + (usage.get("cache_creation_input_tokens") or 0),
        output_tokens=usage.get("output_tokens") or 0,
        cached_tokens=cached,
        reasoning_tokens=details.get("thinking_tokens") or 0,
    )


def _speak(items: list[Item], text: str) -> None:
    """Text blocks in a row are one message."""
    last = items[-1] if items else None
    if isinstance(last, Message):
        items[-1] = said("assistant", last.text + text)
    else:
        items.append(said("assistant", text))
