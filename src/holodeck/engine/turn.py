"""One turn: the model is asked; what it says is told as it comes, and is handed on when it is whole."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from holodeck.engine.steps import AppendEvent
from holodeck.lib.byte_budget import OverBudgetError, Reservation
from holodeck.lib.errors import ModelError
from holodeck.lib.ids import new_id
from holodeck.models.events import CallAdded, ItemFinished, ReasoningAdded, TextAdded
from holodeck.models.items import FunctionCall, Item, Message, Reasoning, text_message
from holodeck.models.model_io import (
    CUT_SHORT,
    CallDelta,
    FinishReason,
    ModelAnswer,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
)
from holodeck.providers.base import ModelProvider, stream_in_batches

# Bytes that a piece of an answer counts for in the budget beside its text: it is an event, and JSON.
DELTA_COST = 200
# Bytes that a tool call counts for beside its arguments: a turn may have thousands of empty ones.
CALL_COST = 256


async def stream_turn(
    model: ModelProvider, request: ModelRequest, append: AppendEvent, *, limit: int, memory: Reservation
) -> ModelAnswer:
    """Ask the model once. Ids of deltas and of the finished items are the same. Raises `ModelError`.

    An answer of more than `limit` bytes ends there with the finish `size`, one for which `memory` has no room with
    `memory`: the model is left, and what it has said up to then is the answer, without its calls.
    """
    ids = _ItemIds()
    answered: ModelAnswer | None = None
    heard = _PartialAnswer(limit, memory)
    batches = stream_in_batches(model, request)
    try:
        async for batch in batches:
            for came in batch:
                event = came if isinstance(came, ModelAnswer) else heard.add(came)
                match event:
                    case TextDelta():
                        append(TextAdded(item_id=ids.message, text=event.text, is_refusal=event.is_refusal))
                    case ReasoningDelta():
                        append(ReasoningAdded(item_id=ids.reasoning, text=event.text))
                    case CallDelta():
                        item_id, call_id, name = ids.ids_of_call(event)
                        append(CallAdded(item_id=item_id, call_id=call_id, name=name, arguments=event.arguments))
                    case ModelAnswer():
                        answered = event
                if heard.is_full:
                    answered = heard.build_answer()
                    break
            if heard.is_full:
                break
    finally:
        await batches.aclose()
    if answered is None:
        raise ModelError("The model stopped without finishing its answer.", provider=model.name, is_retryable=True)
    items = tuple(ids.with_id(item) for item in answered.items)
    for item in items:
        append(ItemFinished(item=item, is_cut=item is items[-1] and answered.finish in CUT_SHORT))
    return ModelAnswer(items=items, finish=answered.finish, usage=answered.usage, model=answered.model)


def answer_size(item: Item) -> int:
    """Bytes that an item of an answer counts for."""
    match item:
        case Message():
            return _utf8_size(item.text)
        case Reasoning():
            return _utf8_size(item.text)
        case FunctionCall():
            return _utf8_size(item.arguments) + CALL_COST
        case _:
            return 0


class _PartialAnswer:
    """What a model has said of one answer, up to its limit of bytes."""

    def __init__(self, limit: int, memory: Reservation) -> None:
        self._bytes_left = limit
        self._memory = memory
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._finish: FinishReason = "size"
        self.is_full = False
        """True once something went over the limit; nothing more is taken then."""

    def add(self, delta: TextDelta | ReasoningDelta | CallDelta) -> TextDelta | ReasoningDelta | CallDelta:
        """As much of a delta as fits."""
        if isinstance(delta, CallDelta):
            size = _utf8_size(delta.arguments) + (CALL_COST if delta.name else 0)
            self._bytes_left -= size
            self.is_full = self._bytes_left < 0 or not self._reserve_memory(size)
            return replace(delta, arguments="") if self.is_full else delta
        size = _utf8_size(delta.text)
        if not self._reserve_memory(size):
            self.is_full = True
            return replace(delta, text="")
        if size > self._bytes_left:
            self.is_full = True
            beginning = delta.text.encode("utf-8", "replace")[: max(self._bytes_left, 0)]
            delta = replace(delta, text=beginning.decode("utf-8", "ignore"))
        self._bytes_left -= size
        (self._thoughts if isinstance(delta, ReasoningDelta) else self._texts).append(delta.text)
        return delta

    def _reserve_memory(self, size: int) -> bool:
        try:
            self._memory.extend(size + DELTA_COST)
        except OverBudgetError:
            self._finish = "memory"
            return False
        return True

    def build_answer(self) -> ModelAnswer:
        """All of it, as an answer that was cut."""
        items: list[Item] = []
        if self._thoughts:
            items.append(Reasoning(text="".join(self._thoughts)))
        if self._texts:
            items.append(text_message("assistant", "".join(self._texts)))
        return ModelAnswer(items=tuple(items), finish=self._finish)


def _utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


class _ItemIds:
    """The ids of one turn's items, given when the first piece of each arrives."""

    def __init__(self) -> None:
        self.message = new_id("msg")
        self.reasoning = new_id("rs")
        self._calls: dict[int, tuple[str, str, str]] = {}
        self._used: set[str] = set()

    def ids_of_call(self, delta: CallDelta) -> tuple[str, str, str]:
        if delta.index not in self._calls:
            self._calls[delta.index] = (new_id("fc"), delta.call_id, delta.name)
        return self._calls[delta.index]

    def with_id(self, item: Item) -> Item:
        match item:
            case Message():  # spelled out, because `replace` takes longer than all the rest of it
                return Message(role=item.role, content=item.content, id=self._use_once(self.message, "msg"))
            case Reasoning():
                return replace(item, id=self._use_once(self.reasoning, "rs"))
            case FunctionCall():
                known = next((entry[0] for entry in self._calls.values() if entry[1] == item.call_id), None)
                return replace(item, id=known or new_id("fc"))
            case _:
                return cast(Item, item)

    def _use_once(self, item_id: str, prefix: str) -> str:
        if item_id in self._used:
            return new_id(prefix)
        self._used.add(item_id)
        return item_id
