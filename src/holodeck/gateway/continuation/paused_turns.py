"""A turn that paused in a conversation: its calls where the client's own stand, and a word for what nobody answered."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holodeck.gateway.continuation.approvals import UNDECIDED, error_output, insert_outputs
from holodeck.gateway.wire.item_ids import approval_id, stem_of
from holodeck.gateway.wire.request.input import check_unique_ids
from holodeck.gateway.wire.request.json_fields import refuse
from holodeck.gateway.wire.request.parsed_input import Input
from holodeck.lib.json.parse import parse_json
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, Message

UNANSWERED = "The client went on without an answer to this call."


def restore_calls(
    parsed: Input, paused_calls: Sequence[FunctionCall], hidden: Collection[FunctionCall]
) -> tuple[FunctionCall, ...]:
    """Put the calls of a turn back in their order, those that the client does not see among them.

    Gives those that stand there now; none, when the client has deleted all that it saw of the turn.
    """
    there = {stem_of(item) for item in _calls_in(parsed.items)}
    if not any(stem_of(call) in there for call in paused_calls):
        return ()
    standing = tuple(call for call in paused_calls if call in hidden or stem_of(call) in there)
    stems = {stem_of(call) for call in standing}
    items: list[Item] = []
    is_placed = False
    for item in parsed.items:
        if not isinstance(item, FunctionCall) or stem_of(item) not in stems:
            items.append(item)
        elif not is_placed:
            items += standing
            is_placed = True
    parsed.items = items
    parsed.pending_calls = [call for call in parsed.pending_calls if stem_of(call) not in stems]
    return standing


def find_paused_turn_keys(parsed: Input) -> dict[str, FunctionCall]:
    """The calls by which a turn that paused is found when a client sends again what it saw, by what names them."""
    called = find_last_answered_call(parsed)
    found = {} if called is None else {called.call_id: called}
    return found | {approval_id(call): call for call in parsed.pending_calls[-1:]}


def has_model_output_after(parsed: Input, call: FunctionCall) -> bool:
    """Whether the model has said something after the turn of a call."""
    place = max(index for index, item in enumerate(parsed.items) if item is call)
    return any(
        (isinstance(item, Message) and item.role == "assistant")
        or (isinstance(item, FunctionCall) and item not in parsed.pending_calls)
        for item in parsed.items[place + 1 :]
    )


def find_last_answered_call(parsed: Input) -> FunctionCall | None:
    """The last call of a client's function in an input, if its output is there as well."""
    outputs = {item.call_id for item in parsed.items if isinstance(item, FunctionCallOutput)}
    if not outputs:
        return None
    own = (item for item in reversed(_calls_in(parsed.items)) if item.call_id not in parsed.targets)
    last = next(own, None)
    return last if last is not None and last.call_id in outputs else None


def match_resent_calls(
    parsed: Input,
    paused_calls: Sequence[FunctionCall],
    *,
    pending: Collection[FunctionCall],
    hidden: Collection[FunctionCall],
) -> tuple[FunctionCall, ...]:
    """The calls of a turn that stand when a client sends again what it saw of it; none, when it is another turn's.

    None either when the client sends what came of a call that waited: the turn was gone on with.
    """
    calls = {call.call_id: call for call in _calls_in(parsed.items) if call not in parsed.pending_calls}
    own = [call for call in paused_calls if call not in pending]
    if not all(_is_same_call(calls.get(call.call_id), call, parsed) for call in own):
        return ()
    there = {stem_of(item) for item in calls.values()}
    if any(stem_of(call) in there for call in pending):
        return ()
    asked = {stem_of(call) for call in parsed.pending_calls}
    if not own and not any(stem_of(call) in asked for call in pending):
        return ()
    return tuple(call for call in paused_calls if call in own or call in hidden or stem_of(call) in asked)


def insert_paused_calls(parsed: Input, paused_calls: Sequence[FunctionCall]) -> None:
    """Put the calls of such a turn into what was read, those that the client did not see among them."""
    if paused_calls:
        last = {item.call_id: index for index, item in enumerate(parsed.items) if isinstance(item, FunctionCall)}
        for call in paused_calls:
            if call.call_id in last:  # it may have come without its id
                parsed.items[last[call.call_id]] = call
        restore_calls(parsed, paused_calls, paused_calls)


def _is_same_call(sent: FunctionCall | None, call: FunctionCall, parsed: Input) -> bool:
    if sent is None or sent.name != call.name:
        return False
    return stem_of(sent) == stem_of(call) if sent.id not in parsed.generated_ids else _has_same_arguments(sent, call)


def _has_same_arguments(one: FunctionCall, other: FunctionCall) -> bool:
    """Whether two calls have the same arguments, however they are spaced."""
    try:
        return bool(parse_json(one.arguments) == parse_json(other.arguments))
    except ValueError:
        return one.arguments == other.arguments


def has_moved_on(parsed: Input, request_input: Input) -> bool:
    """Whether a request says something else instead of answering what it was asked in the conversation."""
    called = {call.call_id for call in _calls_in(parsed.items)}
    is_answer = any(isinstance(item, FunctionCallOutput) and item.call_id in called for item in request_input.items)
    return _last_user_index(request_input.items) >= 0 and not is_answer and not request_input.approvals


def answer_skipped_calls(
    parsed: Input, request_input: Input, *, paused_calls: Collection[FunctionCall], pending_ids: Collection[str]
) -> set[str]:
    """Answer the client's calls that it has left behind. Gives the ids of those; `paused_calls` is what it may yet
    answer.

    `pending_ids` are the ids of calls that are not the client's to answer.
    """
    answered = {item.call_id for item in (*parsed.items, *request_input.items) if isinstance(item, FunctionCallOutput)}
    last, is_over = _last_user_index(parsed.items), has_moved_on(parsed, request_input)
    left = [
        item
        for index, item in enumerate(parsed.items)
        if isinstance(item, FunctionCall)
        and item.call_id not in answered
        and item.call_id not in pending_ids
        and (is_over or (index < last and item not in paused_calls))
    ]
    insert_outputs(parsed, [error_output(call, UNANSWERED) for call in left])
    return {call.call_id for call in left}


def abandon_pending_calls(
    parsed: Input, hidden: Collection[FunctionCall], approval_calls: Collection[FunctionCall]
) -> None:
    """What waited for the client's answers is not run any more: the model is told of what the client has seen."""
    parsed.items = [item for item in parsed.items if not isinstance(item, FunctionCall) or item not in hidden]
    insert_outputs(parsed, [error_output(call, UNDECIDED) for call in approval_calls])


def refuse_duplicates(parsed: Input, request_input: Input, ids: Collection[str]) -> None:
    """Refuse what the conversation has already; `ids` are those of its items. No model takes two outputs of a call."""
    check_unique_ids(request_input.wire_items, ids)
    answered = {item.call_id for item in parsed.items if isinstance(item, FunctionCallOutput)}
    called = {call.call_id for call in _calls_in(request_input.items)}
    for item in request_input.items:
        if isinstance(item, FunctionCallOutput) and item.call_id in answered - called:
            message = f"The function call {item.call_id} already has an output in this conversation."
            refuse(message, "input", "duplicate_tool_output")


def _calls_in(items: Sequence[Item]) -> list[FunctionCall]:
    return [item for item in items if isinstance(item, FunctionCall)]


def _last_user_index(items: Sequence[Item]) -> int:
    """Where a person spoke last; -1: nowhere."""
    said = [index for index, item in enumerate(items) if isinstance(item, Message) and item.role == "user"]
    return said[-1] if said else -1
