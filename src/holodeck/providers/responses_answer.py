"""An answer in the Responses API: items that are added, filled and done, then one terminal event."""

from __future__ import annotations

from typing import Any

from holodeck.models.content import TextContent
from holodeck.models.exchange import Answered, FinishReason, ModelEvent, ModelRequest, ReasoningDelta, TextDelta
from holodeck.models.items import Item, Message, Reasoning, Usage
from holodeck.providers.address import Address
from holodeck.providers.calls import Calls
from holodeck.providers.failures import reported
from holodeck.providers.responses_request import REASONING_KEY

_REFUSAL = "response.refusal.delta"
_TEXT = frozenset({"response.output_text.delta", _REFUSAL})
_THOUGHTS = frozenset(
    {"response.reasoning_text.delta", "response.reasoning.delta", "response.reasoning_summary_text.delta"}
)
_LAST = frozenset({"response.completed", "response.incomplete"})
_FAILED = frozenset({"response.failed", "response.cancelled", "error"})


class ResponsesAnswer:
    """One answer. Items are taken from their `done` events, since some servers leave them out of the last one."""

    def __init__(self, request: ModelRequest, address: Address) -> None:
        self._address = address
        self._calls = Calls(request)
        self._told: set[Any] = set()  # places of items of which deltas came
        self._done: dict[Any, dict[str, Any]] = {}
        self._response: dict[str, Any] = {}
        self._news: list[ModelEvent] = []
        self.is_over = False

    def take(self, event: dict[str, Any]) -> list[ModelEvent]:
        self._news = []
        kind, place = event.get("type"), event.get("output_index", 0)
        if kind in _TEXT:
            self._tell(TextDelta(text=event["delta"], is_refusal=kind == _REFUSAL), place)
        elif kind == "response.function_call_arguments.delta":
            self._news += self._calls.more(place, arguments=event["delta"])
        elif kind in _THOUGHTS:
            self._tell(ReasoningDelta(text=event["delta"]), place)
        elif kind == "response.reasoning_summary_part.added" and event.get("summary_index"):
            self._tell(ReasoningDelta(text="\n\n"), place)
        elif kind == "response.output_item.added":
            self._added(event["item"], place)
        elif kind == "response.output_item.done":
            self._finished(event["item"], place)
        elif kind in _LAST:
            self._end(event["response"])
        elif kind in _FAILED or event.get("error"):
            response = event.get("response") or {}
            raise reported(self._address, event.get("error") or response.get("error") or event)
        elif event.get("object") == "response" and kind is None:  # a server that does not stream
            self._end(event)
        return self._news

    def whole(self) -> Answered | None:
        if not self.is_over:
            return None
        items = [item for place in sorted(self._done) for item in self._item(place)]
        details = self._response.get("incomplete_details") or {}
        finish: FinishReason = "tool_calls" if self._calls else "stop"
        if self._response.get("status") == "incomplete":
            finish = "content_filter" if details.get("reason") == "content_filter" else "length"
        return Answered(
            items=tuple(items),
            finish=finish,
            usage=_usage(self._response.get("usage") or {}),
            model=self._response.get("model") or "",
        )

    def _tell(self, delta: TextDelta | ReasoningDelta, place: Any) -> None:
        if delta.text:
            self._told.add(place)
            self._news.append(delta)

    def _added(self, item: dict[str, Any], place: Any) -> None:
        if item.get("type") == "function_call":
            call_id = item.get("call_id") or item.get("id") or ""
            self._calls.begin(place, call_id=call_id, name=item.get("name") or "", item_id=item.get("id") or "")
            self._news += self._calls.more(place, arguments=item.get("arguments") or "")

    def _finished(self, item: dict[str, Any], place: Any) -> None:
        """An item is complete: what of it did not come in deltas is told now."""
        self._done[place] = item
        kind = item.get("type")
        if kind == "function_call":
            if place not in self._calls:
                self._added({**item, "arguments": ""}, place)
            self._news += self._calls.rest(place, item.get("arguments") or "")
        elif kind == "message" and place not in self._told:
            is_refusal = any(part.get("type") == "refusal" for part in item.get("content") or ())
            self._tell(TextDelta(text=_words(item.get("content")), is_refusal=is_refusal), place)
        elif kind == "reasoning" and place not in self._told:
            text = _words(item.get("content")) or _words(item.get("summary"), "\n\n")
            self._tell(ReasoningDelta(text=text), place)

    def _end(self, response: dict[str, Any]) -> None:
        if response.get("status") == "failed" or response.get("error"):
            raise reported(self._address, response.get("error"))
        if not self._done:
            for place, item in enumerate(response.get("output") or ()):
                self._finished(item, place)
        self._response = response
        self.is_over = True
        self._news += self._calls.unannounced()

    def _item(self, place: Any) -> list[Item]:
        item = self._done[place]
        kind = item.get("type")
        if kind == "function_call":
            return [self._calls.item(place)]
        if kind == "message":
            content = TextContent(text=_words(item.get("content")))
            return [Message(role="assistant", content=(content,), id=item.get("id") or "")]
        if kind == "reasoning":
            text, summary = _words(item.get("content")), _words(item.get("summary"), "\n\n")
            return [Reasoning(text=text, summary=summary, opaque={REASONING_KEY: item}, id=item.get("id") or "")]
        return []  # tools that the provider runs by itself: nothing of ours asks for them


def _words(parts: Any, between: str = "") -> str:
    return between.join(part.get("text") or part.get("refusal") or "" for part in parts or ())


def _usage(usage: dict[str, Any]) -> Usage:
    read, written = usage.get("input_tokens_details") or {}, usage.get("output_tokens_details") or {}
    return Usage(
        input_tokens=usage.get("input_tokens") or 0,
        output_tokens=usage.get("output_tokens") or 0,
        cached_tokens=read.get("cached_tokens") or 0,
        reasoning_tokens=written.get("reasoning_tokens") or 0,
    )
