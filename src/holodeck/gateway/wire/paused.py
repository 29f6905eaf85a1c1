"""A turn that paused in a conversation: its calls where the client's own stand, and a word for what nobody answered."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holodeck.gateway.wire.approvals import UNDECIDED, answer_in_place, told
from holodeck.gateway.wire.fields import refuse
from holodeck.gateway.wire.ids import approval_id, stem_of
from holodeck.gateway.wire.input import check_unique
from holodeck.gateway.wire.reading import Input
from holodeck.lib.bounded_json import parse_json
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, Message

UNANSWERED = "The client went on without an answer to this call."


def restore(read: Input, turn: Sequence[FunctionCall], hidden: Collection[FunctionCall]) -> tuple[FunctionCall, ...]:
    """Put the calls of a turn back in their order, those that the client does not see among them.

    Gives those that stand there now; none, when the client has deleted all that it saw of the turn.
    """
    there = {stem_of(item) for item in _calls(read.items)}
    if not any(stem_of(call) in there for call in turn):
        return ()
    standing = tuple(call for call in turn if call in hidden or stem_of(call) in there)
    stems = {stem_of(call) for call in standing}
    items: list[Item] = []
    is_placed = False
    for item in read.items:
        if not isinstance(item, FunctionCall) or stem_of(item) not in stems:
            items.append(item)
        elif not is_placed:
            items += standing
            is_placed = True
    read.items = items
    read.waiting = [call for call in read.waiting if stem_of(call) not in stems]
    return standing


def sent_back(read: Input) -> dict[str, FunctionCall]:
    """The calls by which a turn that paused is found when a client sends again what it saw, by what names them."""
    called = last_answered(read)
    found = {} if called is None else {called.call_id: called}
    return found | {approval_id(call): call for call in read.waiting[-1:]}


def was_gone_on_from(read: Input, called: FunctionCall) -> bool:
    """Whether the model has said something after the turn of a call."""
    place = max(index for index, item in enumerate(read.items) if item is called)
    return any(
        (isinstance(item, Message) and item.role == "assistant")
        or (isinstance(item, FunctionCall) and item not in read.waiting)
        for item in read.items[place + 1 :]
    )


def last_answered(read: Input) -> FunctionCall | None:
    """The last call of a client's function in an input, if its output is there as well."""
    outputs = {item.call_id for item in read.items if isinstance(item, FunctionCallOutput)}
    if not outputs:
        return None
    own = (item for item in reversed(_calls(read.items)) if item.call_id not in read.places)
    last = next(own, None)
    return last if last is not None and last.call_id in outputs else None


def returning(
    read: Input,
    turn: Sequence[FunctionCall],
    *,
    waiting: Collection[FunctionCall],
    hidden: Collection[FunctionCall],
) -> tuple[FunctionCall, ...]:
    """The calls of a turn that stand when a client sends again what it saw of it; none, when it is another turn's.

    None either when the client sends what came of a call that waited: the turn was gone on with.
    """
    calls = {call.call_id: call for call in _calls(read.items) if call not in read.waiting}
    own = [call for call in turn if call not in waiting]
    if not all(_is_same(calls.get(call.call_id), call, read) for call in own):
        return ()
    there = {stem_of(item) for item in calls.values()}
    if any(stem_of(call) in there for call in waiting):
        return ()
    asked = {stem_of(call) for call in read.waiting}
    if not own and not any(stem_of(call) in asked for call in waiting):
        return ()
    return tuple(call for call in turn if call in own or call in hidden or stem_of(call) in asked)


def put_back(read: Input, turn: Sequence[FunctionCall]) -> None:
    """Put the calls of such a turn into what was read, those that the client did not see among them."""
    if turn:
        last = {item.call_id: index for index, item in enumerate(read.items) if isinstance(item, FunctionCall)}
        for call in turn:
            if call.call_id in last:  # it may have come without its id
                read.items[last[call.call_id]] = call
        restore(read, turn, turn)


def _is_same(sent: FunctionCall | None, call: FunctionCall, read: Input) -> bool:
    if sent is None or sent.name != call.name:
        return False
    return stem_of(sent) == stem_of(call) if sent.id not in read.unnamed else _same_words(sent, call)


def _same_words(one: FunctionCall, other: FunctionCall) -> bool:
    """Whether two calls have the same arguments, however they are spaced."""
    try:
        return bool(parse_json(one.arguments) == parse_json(other.arguments))
    except ValueError:
        return one.arguments == other.arguments


def has_moved_on(read: Input, asked: Input) -> bool:
    """Whether a request says something else instead of answering what it was asked in the conversation."""
    called = {call.call_id for call in _calls(read.items)}
    is_answer = any(isinstance(item, FunctionCallOutput) and item.call_id in called for item in asked.items)
    return _last_said(asked.items) >= 0 and not is_answer and not asked.approvals


def pass_over(read: Input, asked: Input, *, turn: Collection[FunctionCall], waiting: Collection[str]) -> set[str]:
    """Answer the client's calls that it has left behind. Gives the ids of those; `turn` is what it may yet answer.

    `waiting` are the ids of calls that are not the client's to answer.
    """
    answered = {item.call_id for item in (*read.items, *asked.items) if isinstance(item, FunctionCallOutput)}
    last, is_over = _last_said(read.items), has_moved_on(read, asked)
    left = [
        item
        for index, item in enumerate(read.items)
        if isinstance(item, FunctionCall)
        and item.call_id not in answered
        and item.call_id not in waiting
        and (is_over or (index < last and item not in turn))
    ]
    answer_in_place(read, [told(call, UNANSWERED) for call in left])
    return {call.call_id for call in left}


def drop(read: Input, hidden: Collection[FunctionCall], asks: Collection[FunctionCall]) -> None:
    """What waited for the client's answers is not run any more: the model is told of what the client has seen."""
    read.items = [item for item in read.items if not isinstance(item, FunctionCall) or item not in hidden]
    answer_in_place(read, [told(call, UNDECIDED) for call in asks])


def check_new(read: Input, asked: Input, ids: Collection[str]) -> None:
    """Refuse what the conversation has already; `ids` are those of its items. No model takes two outputs of a call."""
    check_unique(asked.shown, ids)
    answered = {item.call_id for item in read.items if isinstance(item, FunctionCallOutput)}
    called = {call.call_id for call in _calls(asked.items)}
    for item in asked.items:
        if isinstance(item, FunctionCallOutput) and item.call_id in answered - called:
            message = f"The function call {item.call_id} already has an output in this conversation."
            refuse(message, "input", "duplicate_tool_output")


def _calls(items: Sequence[Item]) -> list[FunctionCall]:
    return [item for item in items if isinstance(item, FunctionCall)]


def _last_said(items: Sequence[Item]) -> int:
    """Where a person spoke last; -1: nowhere."""
    said = [index for index, item in enumerate(items) if isinstance(item, Message) and item.role == "user"]
    return said[-1] if said else -1
