"""Transcript of a run: the items that it adds to a conversation, however it ended.

Model APIs refuse a conversation with a call that has no output. The transcript therefore adds an output for every call
that has none, and moves such calls to the end of the items. `TurnMessages` has the texts of a turn that was cut off.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from holodeck.engine.steps import AppendEvent
from holodeck.lib.call_errors import INTERRUPTED, NOT_RUN, OUT_OF_TIME
from holodeck.models.events import (
    Event,
    ItemFinished,
    RunFinished,
    RunResult,
    TextAdded,
    ToolFinished,
    TurnFinished,
    TurnStarted,
)
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, Message, TextContent, text_message

STOPPED_MARK = "[stopped by the user]"


class RunTranscript:
    """Collects the events of a run, since a run that is stopped returns no result. `add` every event, in order."""

    def __init__(self) -> None:
        self.result: RunResult | None = None
        self._items: list[Item] = []
        self._partial_texts: dict[str, str] = {}
        self._outputs: dict[str, FunctionCallOutput] = {}
        self._turns = 0
        self._started_at = time.monotonic()

    def add(self, event: Event) -> None:
        match event:
            case TurnStarted(turn=turn):
                self._turns = turn
            case TextAdded(item_id=item_id, text=text):
                self._partial_texts[item_id] = self._partial_texts.get(item_id, "") + text
            case ItemFinished(item=item):
                self._partial_texts.clear()
                self._items.append(item)
            case ToolFinished(output=output):
                self._outputs[output.call_id] = output
            case RunFinished(result=result):
                self.result = result
            case _:
                pass

    def build_stopped_result(self) -> RunResult:
        """Return the result of a run that was stopped now, with its partial text, marked with `STOPPED_MARK`."""
        items = list(self._items)
        partial = "".join(self._partial_texts.values())
        if partial or not items:
            items.append(text_message("assistant", f"{partial} {STOPPED_MARK}".strip()))
        texts = [item.text for item in items if isinstance(item, Message) and item.role == "assistant"]
        return RunResult(
            status="cancelled",
            text=texts[-1] if texts else "",
            items=tuple(items),
            reason="The run was cancelled.",
            turns=self._turns,
            tool_calls=len(self._outputs),
            seconds=time.monotonic() - self._started_at,
        )

    def build_history(self) -> tuple[Item, ...]:
        """Return the items for the context of the next run. A call without an output gets an error that says why."""
        result = self.result or self.build_stopped_result()
        note = INTERRUPTED if result.status == "cancelled" else NOT_RUN
        if result.cause == "max_seconds":
            note = OUT_OF_TIME
        answered = {item.call_id for item in result.items if isinstance(item, FunctionCallOutput)}
        missing = [item for item in result.items if isinstance(item, FunctionCall) and item.call_id not in answered]
        return (*_calls_last(result.items, missing), *(self._output_of(call, note) for call in missing))

    def _output_of(self, call: FunctionCall, note: str) -> FunctionCallOutput:
        known = self._outputs.get(call.call_id)
        if known is not None:
            return replace(known)
        return FunctionCallOutput(call_id=call.call_id, content=(TextContent(text=note),), is_error=True)


def _calls_last(items: tuple[Item, ...], missing: list[FunctionCall]) -> tuple[Item, ...]:
    # The outputs are appended at the end, and must follow their calls without an item in between.
    return (*(item for item in items if item not in missing), *missing) if missing else items


class TurnMessages:
    """Notes the messages of the latest turn as they come."""

    def __init__(self) -> None:
        self._finished: list[Message] = []
        self._texts: dict[str, str] = {}

    def follow(self, append: AppendEvent) -> Callable[..., object]:
        """Return a function that appends events, and notes those of messages."""

        def append_noted(*events: Event) -> object:
            for event in events:
                self._note(event)
            return append(*events)

        return append_noted

    def _note(self, event: Event) -> None:
        match event:
            case TurnStarted() | TurnFinished():
                # Those of a turn that has ended are items of the run.
                self._finished.clear()
                self._texts.clear()
            case TextAdded(item_id=item_id, text=text):
                self._texts[item_id] = self._texts.get(item_id, "") + text
            case ItemFinished(item=Message() as message):
                self._texts.pop(message.id, None)
                self._finished.append(message)
            case _:
                pass

    def cut(self, append: AppendEvent) -> list[Message]:
        """Return the messages, the last as far as it has come, and append the event that ends it."""
        cut = [
            Message(role="assistant", content=(TextContent(text=text),), id=item_id)
            for item_id, text in self._texts.items()
        ]
        for message in cut:
            append(ItemFinished(item=message, is_cut=True))
        return [*self._finished, *cut]
