"""One model turn: the deltas of the answer become events as they arrive, then its finished items.

A turn is bounded in bytes, by a limit of its own and by a budget that all runs share. An answer that exceeds either is
cut there, and the model's stream is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import cast

from holodeck.engine.steps import AppendEvent
from holodeck.engine.tokens import find_cut_usage
from holodeck.lib import log
from holodeck.lib.byte_budget import OverBudgetError, Reservation
from holodeck.lib.errors import ModelError
from holodeck.lib.ids import MakeId
from holodeck.lib.record import copy_record
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
from holodeck.models.price import NO_PRICES, ModelPrices
from holodeck.providers.base import ModelProvider, build_unfinished_error, stream_in_batches

# Bytes that a delta counts for in the memory budget, in addition to its text: it is also an event object, and JSON.
DELTA_COST = 200
# Bytes that a tool call counts for, in addition to its arguments: a turn may have thousands of calls without any.
CALL_COST = 256
# Bytes that a log probability counts for in the memory budget: a token has one, and up to twenty alternatives.
LOGPROB_COST = 256
# Pairs of a model and a service tier without a price that are remembered, so that each is logged once.
MAX_NAMED_TIERS = 256

OnCut = Callable[[Usage, float | None], object]


async def stream_turn(  # noqa: PLR0912 - one case for each kind of event
    model: ModelProvider,
    request: ModelRequest,
    append: AppendEvent,
    ids: ItemIds,
    *,
    limit: int,
    memory: Reservation,
    prices: ModelPrices = NO_PRICES,
    on_restart: Callable[[], object] = lambda: None,
    on_cut: OnCut | None = None,
) -> ModelAnswer:
    """Ask the model once. The deltas of an item have the same id as the finished item. Raises `ModelError`.

    An answer is cut at `limit` bytes (finish reason `size`) or at the budget of `memory` (`memory`), without its calls.
    `on_restart` is called when the model broke off and is asked again: the items then begin anew, with other ids.
    `on_cut` is called with the tokens and the cost of a turn without an answer. Before any output, an error has none.
    """
    answer: ModelAnswer | None = None
    partial, bill = _PartialAnswer(limit, memory), _Bill(request, prices)
    batches, has_failed = stream_in_batches(model, request), False
    try:
        async for batch in batches:
            for event in _append_texts(batch, partial, append, ids):
                match event:
                    case TextDelta():
                        text = partial.add(event.text, partial.texts)
                        tokens = partial.count_logprobs(event.logprobs)
                        append(TextAdded(item_id=ids.message, text=text, is_refusal=event.is_refusal, logprobs=tokens))
                    case ReasoningDelta():
                        added = partial.add(event.text, partial.reasoning_texts)
                        append(ReasoningAdded(item_id=ids.reasoning, text=added))
                    case CallDelta():
                        item_id, call_id, name = ids.ids_of_call(event)
                        added = partial.add_arguments(event)
                        append(CallAdded(item_id=item_id, call_id=call_id, name=name, arguments=added))
                    case ContextCompacted() | StandInChosen():
                        append(bill.note(event))
                    case AnswerVoided():
                        bill.restart(partial)
                        partial, ids = partial.renew(), ids.renew()
                        on_restart()
                    case ModelAnswer():
                        answer = event
                if partial.is_full:
                    break
            if partial.is_full:
                answer = partial.build_answer()
                break
        if answer is None:
            raise build_unfinished_error(model.name)
    except ModelError:
        has_failed = True
        raise
    finally:
        await batches.aclose()
        if answer is None or partial.is_full:
            bill.end_cut(partial, None if answer else on_cut, has_failed=has_failed)
    return _finish_answer(answer, ids, append, model=model.name, bill=bill)


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
    model: str,
    bill: _Bill,
) -> ModelAnswer:
    """Append the finished items, and return the answer with them, after those from before the model was asked."""
    items = tuple([ids.with_id(item) for item in answer.items])
    for item in items:
        append(ItemFinished(item=item, is_cut=item is items[-1] and answer.finish in CUT_SHORT))
    usage, price, cost = answer.usage, bill.price, None
    if price is not None:
        cost = price.cost_of_answer(answer)
        if (tier := price.find_unknown_tier(answer)) is not None:
            _say_tier_unknown(bill.answered_by or model, tier)
    if bill.usage is not None:
        usage += bill.usage
        cost = None if cost is None or bill.cost is None else cost + bill.cost
    return copy_record(answer, items=(*bill.before, *items), usage=usage, answered_by=bill.answered_by, cost=cost)


@lru_cache(MAX_NAMED_TIERS)
def _say_tier_unknown(model: str, tier: str) -> None:
    """Log once that a turn is priced as one of the usual tier."""
    fix = f"write 'price: {{..., service_tiers: {{{tier}: {{input: ..., output: ...}}}}}}' in the model"
    log.warning("model.tier_price_unknown", model=model, tier=tier, fix=fix)


class _Bill:
    """The tokens and the cost of a turn beside those of its answer: of a summary before it, and of cut answers."""

    __slots__ = ("_has_summary", "_prices", "_request", "answered_by", "before", "cost", "price", "usage")

    def __init__(self, request: ModelRequest, prices: ModelPrices) -> None:
        self._request = request
        self._prices = prices
        self._has_summary = False
        self.before: tuple[Item, ...] = ()
        """The items from before the model was asked."""
        self.answered_by = ""
        self.price = prices.usual
        """Of the model that answers."""
        self.usage: Usage | None = None
        """None: there are none."""
        self.cost: float | None = 0.0
        """None: a price is unknown."""
        # One for all turns of a run, as its other fields.
        request.receipt.is_sent, request.receipt.told = False, None

    def add(self, usage: Usage, cost: float | None) -> None:
        self.usage = usage if self.usage is None else self.usage + usage
        self.cost = None if self.cost is None or cost is None else self.cost + cost

    def note(self, event: ContextCompacted | StandInChosen) -> ItemFinished | StandInAnswered:
        """Note what comes before an answer, and return the event of the run for it."""
        if isinstance(event, StandInChosen):
            self.answered_by, self.price = event.name, self._prices.find(event.name)
            return StandInAnswered(name=event.name)
        self.before = (*self.before, event.item)
        # Once: a turn that is repeated has the same summary.
        if not self._has_summary:
            self._has_summary = True
            self.add(event.usage, event.cost)
        return ItemFinished(item=event.item)

    def restart(self, partial: _PartialAnswer) -> None:
        """Begin the answer anew. What came of it is paid."""
        self.add_cut(partial)
        self.before = ()

    def end_cut(self, partial: _PartialAnswer, on_cut: OnCut | None, *, has_failed: bool) -> None:
        """Add an answer of which no more comes, and report all that the turn has cost, if it has any."""
        self.add_cut(partial, has_failed=has_failed)
        if on_cut is not None and self.usage is not None:
            on_cut(self.usage, self.cost)

    def add_cut(self, partial: _PartialAnswer, *, has_failed: bool = False) -> None:
        """Add what an answer has cost of which no more comes. `has_failed`: it costs nothing if none of it came."""
        request, characters = self._request, partial.characters
        usage = Usage() if has_failed and not characters else find_cut_usage(request, characters)
        if usage.total_tokens:
            self.add(usage, None if self.price is None else self.price.cost_of_cut(request, usage))
        request.receipt.is_sent, request.receipt.told = False, None


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
        self._limit = self._bytes_left = limit
        self._memory = memory
        self._memory_before = memory.size
        self.texts: list[str] = []
        self.reasoning_texts: list[str] = []
        self._finish: FinishReason = "size"
        self.is_full = False
        """True once a delta exceeded the limit or the budget; no further delta may be added."""
        self._call_characters = 0

    def renew(self) -> _PartialAnswer:
        """Return an empty one in its place, and give back its memory."""
        self._memory.resize(self._memory_before)
        return _PartialAnswer(self._limit, self._memory)

    @property
    def characters(self) -> int:
        """The characters of text, reasoning and calls so far."""
        return sum(map(len, self.texts)) + sum(map(len, self.reasoning_texts)) + self._call_characters

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
        self._call_characters += len(delta.name) + len(delta.arguments)
        self._bytes_left -= size
        self.is_full = self._bytes_left < 0 or not self._reserve_memory(size)
        return "" if self.is_full else delta.arguments

    def count_logprobs(self, logprobs: tuple[Logprob, ...]) -> tuple[Logprob, ...]:
        """Count log probabilities in the memory budget, and return them."""
        if logprobs:
            count = sum(1 + len(entry.top) for entry in logprobs)
            self.is_full = self.is_full or not self._reserve_memory(count * LOGPROB_COST)
        return logprobs

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
