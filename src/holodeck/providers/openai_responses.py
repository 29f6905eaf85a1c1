"""An answer in the Responses API: items that are added, filled and done, then one terminal event."""

from __future__ import annotations

from typing import Any

from holodeck.models.content import TextContent
from holodeck.models.items import Item, Message, Reasoning, Usage
from holodeck.models.model_io import FinishReason, ModelAnswer, ModelEvent, ModelRequest, ReasoningDelta, TextDelta
from holodeck.providers.http.errors import stream_error
from holodeck.providers.http.model_address import ModelAddress
from holodeck.providers.responses_request import REASONING_KEY
from holodeck.providers.tool_call_assembler import ToolCallAssembler

_REFUSAL = "response.refusal.delta"
_TEXT = frozenset({"response.output_text.delta", _REFUSAL})
_THOUGHTS = frozenset(
    {"response.reasoning_text.delta", "response.reasoning.delta", "response.reasoning_summary_text.delta"}
)
_LAST = frozenset({"response.completed", "response.incomplete"})
_FAILED = frozenset({"response.failed", "response.cancelled", "error"})


class ResponsesDecoder:
    """One answer. Items are taken from their `done` events, since some servers leave them out of the last one."""

    def __init__(self, request: ModelRequest, address: ModelAddress) -> None:
        self._address = address
        self._calls = ToolCallAssembler(request)
        self._streamed_indexes: set[Any] = set()  # places of items of which deltas came
        self._done_items: dict[Any, dict[str, Any]] = {}
        self._response: dict[str, Any] = {}
        self._events: list[ModelEvent] = []
        self.is_finished = False

    def decode(self, event: dict[str, Any]) -> list[ModelEvent]:
        self._events = []
        kind, place = event.get("type"), event.get("output_index", 0)
        if kind in _TEXT:
            self._append_delta(TextDelta(text=event["delta"], is_refusal=kind == _REFUSAL), place)
        elif kind == "response.function_call_arguments.delta":
            self._events += self._calls.append(place, arguments=event["delta"])
        elif kind in _THOUGHTS:
            self._append_delta(ReasoningDelta(text=event["delta"]), place)
        elif kind == "response.reasoning_summary_part.added" and event.get("summary_index"):
            self._append_delta(ReasoningDelta(text="\n\n"), place)
        elif kind == "response.output_item.added":
            self._start_item(event["item"], place)
        elif kind == "response.output_item.done":
            self._finish_item(event["item"], place)
        elif kind in _LAST:
            self._finish_response(event["response"])
        elif kind in _FAILED or event.get("error"):
            response = event.get("response") or {}
            raise stream_error(self._address, event.get("error") or response.get("error") or event)
        elif event.get("object") == "response" and kind is None:  # a server that does not stream
            self._finish_response(event)
        return self._events

    def to_answered(self) -> ModelAnswer | None:
        if not self.is_finished:
            return None
        items = [item for place in sorted(self._done_items) for item in self._build_items(place)]
        details = self._response.get("incomplete_details") or {}
        finish: FinishReason = "tool_calls" if self._calls else "stop"
        if self._response.get("status") == "incomplete":
            finish = "content_filter" if details.get("reason") == "content_filter" else "length"
        return ModelAnswer(
            items=tuple(items),
            finish=finish,
            usage=_build_usage(self._response.get("usage") or {}),
            model=self._response.get("model") or "",
        )

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
        """An item is complete: what of it did not come in deltas is told now."""
        self._done_items[index] = item
        kind = item.get("type")
        if kind == "function_call":
            if index not in self._calls:
                self._start_item({**item, "arguments": ""}, index)
            self._events += self._calls.append_missing(index, item.get("arguments") or "")
        elif kind == "message" and index not in self._streamed_indexes:
            is_refusal = any(part.get("type") == "refusal" for part in item.get("content") or ())
            self._append_delta(TextDelta(text=_join_text(item.get("content")), is_refusal=is_refusal), index)
        elif kind == "reasoning" and index not in self._streamed_indexes:
            text = _join_text(item.get("content")) or _join_text(item.get("summary"), "\n\n")
            self._append_delta(ReasoningDelta(text=text), index)

    def _finish_response(self, response: dict[str, Any]) -> None:
        if response.get("status") == "failed" or response.get("error"):
            raise stream_error(self._address, response.get("error"))
        if not self._done_items:
            for place, item in enumerate(response.get("output") or ()):
                self._finish_item(item, place)
        self._response = response
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
        return []  # tools that the provider runs by itself: nothing of ours asks for them


def _join_text(parts: Any, between: str = "") -> str:
    return between.join(part.get("text") or part.get("refusal") or "" for part in parts or ())


def _build_usage(usage: dict[str, Any]) -> Usage:
    read, written = usage.get("input_tokens_details") or {}, usage.get("output_tokens_details") or {}
    return Usage(
        input_tokens=usage.get("input_tokens") or 0,
        output_tokens=usage.get("output_tokens") or 0,
        cached_tokens=read.get("cached_tokens") or 0,
        reasoning_tokens=written.get("reasoning_tokens") or 0,
    )
