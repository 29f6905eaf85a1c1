"""One model turn: the deltas of the answer become events as they arrive, then its finished items.

A turn is bounded in bytes, by a limit of its own and by a budget that all runs share. An answer that exceeds either is
cut there, and the model's stream is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from holodeck.engine.steps import AppendEvent
from holodeck.lib.byte_budget import OverBudgetError, Reservation
from holodeck.lib.ids import MakeId
from holodeck.models.events import CallAdded, ItemFinished, ReasoningAdded, StandInAnswered, TextAdded
from holodeck.models.items import FunctionCall, Item, Message, Reasoning, Usage, text_message
from holodeck.models.model_io import (
    CUT_SHORT,
    AnswerVoided,
    CallDelta,
    ContextCompacted,
    FinishReason,
    Logprob,
    ModelAnswer,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    StandInChosen,
    TextDelta,
)
from holodeck.providers.base import ModelProvider, build_unfinished_error, stream_in_batches

# Bytes that a delta counts for in the memory budget, in addition to its text: it is also an event object, and JSON.
DELTA_COST = 200
# Bytes that a tool call counts for, in addition to its arguments: a turn may have thousands of calls without any.
CALL_COST = 256
# Bytes that a log probability counts for in the memory budget: a token has one, and up to twenty alternatives.
LOGPROB_COST = 256


async def stream_turn(  # noqa: PLR0912 - one case for each kind of event
    model: ModelProvider,
    request: ModelRequest,
    append: AppendEvent,
    ids: ItemIds,
    *,
    limit: int,
    memory: Reservation,
    on_restart: Callable[[], object] = lambda: None,
) -> ModelAnswer:
    """Ask the model once. The deltas of an item have the same id as the finished item. Raises `ModelError`.

    An answer of more than `limit` bytes is cut there, with the finish reason `size`; one that exceeds the budget of
    `memory`, with `memory`. The cut answer has the text and reasoning up to that point, without its calls.
    `on_restart` is called when the model broke off and is asked again: the items then begin anew, with other ids.
    """
    answer: ModelAnswer | None = None
    before, spent, answered_by = list[Item](), Usage(), ""
    partial, memory_before = _PartialAnswer(limit, memory), memory.size
    batches = stream_in_batches(model, request)
    try:
        async for batch in batches:
            for event in _append_texts(batch, partial, append, ids):
                match event:
                    case TextDelta():
                        text = partial.add(event.text, partial.texts)
                        tokens = event.logprobs
                        partial.count_logprobs(tokens)
                        append(TextAdded(item_id=ids.message, text=text, is_refusal=event.is_refusal, logprobs=tokens))
                    case ReasoningDelta():
                        text = partial.add(event.text, partial.reasoning_texts)
                        append(ReasoningAdded(item_id=ids.reasoning, text=text))
                    case CallDelta():
                        item_id, call_id, name = ids.ids_of_call(event)
                        arguments = partial.add_arguments(event)
                        append(CallAdded(item_id=item_id, call_id=call_id, name=name, arguments=arguments))
                    case ContextCompacted():
                        before.append(event.item)
                        spent += event.usage
                        append(ItemFinished(item=event.item))
                    case StandInChosen():
                        answered_by = event.name
                        append(StandInAnswered(name=event.name))
                    case AnswerVoided():
                        memory.resize(memory_before)
                        partial, ids, before, spent = _PartialAnswer(limit, memory), ids.renew(), [], Usage()
                        on_restart()
                    case ModelAnswer():
                        answer = event
                if partial.is_full:
                    answer = partial.build_answer()
                    break
            if partial.is_full:
                break
    finally:
        await batches.aclose()
    if answer is None:
        raise build_unfinished_error(model.name)
    return _finish_answer(answer, ids, append, before=before, spent=spent, answered_by=answered_by)


def _append_texts(
    batch: Sequence[ModelEvent], partial: _PartialAnswer, append: AppendEvent, ids: ItemIds
) -> Sequence[ModelEvent]:
    """Append the texts with which a batch begins as one piece, and return the events that follow.

    A batch is what arrived together: of a stream, nearly always plain texts.
    """
    texts = []
    for event in batch:
        if not isinstance(event, TextDelta) or event.is_refusal or event.logprobs:
            break
        texts.append(event.text)
    if not texts or not partial.add_all(texts):
        return batch
    append(*[TextAdded(item_id=ids.message, text=text) for text in texts])
    return batch[len(texts) :]


def _finish_answer(
    answer: ModelAnswer,
    ids: ItemIds,
    append: AppendEvent,
    *,
    before: Sequence[Item],
    spent: Usage,
    answered_by: str,
) -> ModelAnswer:
    """Append the finished items, and return the answer with them, after those from `before` the model was asked."""
    items = tuple([ids.with_id(item) for item in answer.items])
    for item in items:
        append(ItemFinished(item=item, is_cut=item is items[-1] and answer.finish in CUT_SHORT))
    usage = answer.usage + spent if before else answer.usage
    # Not `replace`, which takes longer than all else that is done here once per turn.
    return ModelAnswer(
        items=(*before, *items),
        finish=answer.finish,
        usage=usage,
        model=answer.model,
        service_tier=answer.service_tier,
        answered_by=answered_by,
    )


def answer_size(item: Item) -> int:
    """Count the bytes of an item of an answer for the limits of a turn and of a run."""
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
    """Text and reasoning of an unfinished answer, up to its limit of bytes."""

    def __init__(self, limit: int, memory: Reservation) -> None:
        self._bytes_left = limit
        self._memory = memory
        self.texts: list[str] = []
        self.reasoning_texts: list[str] = []
        self._finish: FinishReason = "size"
        self.is_full = False
        """True once a delta exceeded the limit or the budget; no further delta may be added."""

    def add(self, text: str, texts: list[str]) -> str:
        """Add a text to `texts` or `reasoning_texts` and return the part of it that is within the limit."""
        size = len(text) if text.isascii() else _utf8_size(text)
        if not self._reserve_memory(size):
            self.is_full = True
            return ""
        self._bytes_left -= size
        if self._bytes_left < 0:
            self.is_full = True
            beginning = text.encode("utf-8", "replace")[: max(self._bytes_left + size, 0)]
            text = beginning.decode("utf-8", "ignore")
        texts.append(text)
        return text

    def add_all(self, texts: Sequence[str]) -> bool:
        """Add several texts, if all of them are within the limit and the budget. Else none is added."""
        text = "".join(texts)
        size = len(text) if text.isascii() else _utf8_size(text)
        if size > self._bytes_left:
            return False
        try:
            self._memory.extend(size + DELTA_COST * len(texts))
        except OverBudgetError:
            return False
        self._bytes_left -= size
        self.texts += texts
        return True

    def add_arguments(self, delta: CallDelta) -> str:
        """Count a delta of a call and return its arguments, or none of them when they exceed the limit."""
        size = _utf8_size(delta.arguments) + (CALL_COST if delta.name else 0)
        self._bytes_left -= size
        self.is_full = self._bytes_left < 0 or not self._reserve_memory(size)
        return "" if self.is_full else delta.arguments

    def count_logprobs(self, logprobs: Sequence[Logprob]) -> None:
        """Count log probabilities in the memory budget."""
        if logprobs:
            count = sum(1 + len(entry.top) for entry in logprobs)
            self.is_full = self.is_full or not self._reserve_memory(count * LOGPROB_COST)

    def _reserve_memory(self, size: int) -> bool:
        try:
            self._memory.extend(size + DELTA_COST)
        except OverBudgetError:
            self._finish = "memory"
            return False
        return True

    def build_answer(self) -> ModelAnswer:
        """Return the text and reasoning so far, as an answer that was cut."""
        items: list[Item] = []
        if self.reasoning_texts:
            items.append(Reasoning(text="".join(self.reasoning_texts)))
        if self.texts:
            items.append(text_message("assistant", "".join(self.texts)))
        return ModelAnswer(items=tuple(items), finish=self._finish)


def _utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


class ItemIds:
    """Ids of one turn's items, assigned when the first delta of each arrives and used again for the finished item."""

    def __init__(self, make_id: MakeId) -> None:
        self._make_id = make_id
        self.message = make_id("msg")
        self._reasoning = ""
        self._calls: dict[int, tuple[str, str, str]] = {}
        self._used: set[str] = set()

    @property
    def reasoning(self) -> str:
        """The id of the reasoning, which few answers have."""
        self._reasoning = self._reasoning or self._make_id("rs")
        return self._reasoning

    def renew(self) -> ItemIds:
        """Return other ids, for a turn that begins anew."""
        return ItemIds(self._make_id)

    def ids_of_call(self, delta: CallDelta) -> tuple[str, str, str]:
        if delta.index not in self._calls:
            self._calls[delta.index] = (self._make_id("fc"), delta.call_id, delta.name)
        return self._calls[delta.index]

    def with_id(self, item: Item) -> Item:
        match item:
            case Message():
                # Written out for speed: `replace` would take longer than the rest of this method.
                return Message(role=item.role, content=item.content, id=self._use_once(self.message, "msg"))
            case Reasoning():
                return replace(item, id=self._use_once(self.reasoning, "rs"))
            case FunctionCall():
                known = [item_id for item_id, call_id, _ in self._calls.values() if call_id == item.call_id]
                return replace(item, id=known[0] if known else self._make_id("fc"))
            case _:
                return cast(Item, item)

    def _use_once(self, item_id: str, prefix: str) -> str:
        if item_id in self._used:
            return self._make_id(prefix)
        self._used.add(item_id)
        return item_id
