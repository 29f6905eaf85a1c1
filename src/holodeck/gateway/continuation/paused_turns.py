"""Paused turns: model turns with calls of the client's functions, which the gateway's own calls wait for.

A client sees its own calls of such a turn and requests for approval, not the other calls. When it continues, the hidden
calls are put back at the position of the turn (`restore_calls`, `insert_paused_calls`). When it sends the turn again
without naming the response, the turn is found and matched by the calls that it saw (`find_paused_turn_keys`,
`match_resent_calls`). Calls that a client left unanswered get an error output (`answer_skipped_calls`,
`abandon_pending_calls`), so that the model sees an output for each call.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holodeck.gateway.continuation.approvals import error_output, insert_outputs
from holodeck.gateway.wire.item_ids import approval_id, stem_of
from holodeck.gateway.wire.request.input import check_unique_ids
from holodeck.gateway.wire.request.json_fields import refuse
from holodeck.gateway.wire.request.parsed_input import Input
from holodeck.lib.call_errors import UNANSWERED, UNDECIDED
from holodeck.lib.json.parse import parse_json
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, Message


def restore_calls(
    parsed: Input, paused_calls: Sequence[FunctionCall], hidden: Collection[FunctionCall]
) -> tuple[FunctionCall, ...]:
    """Replace the calls of a paused turn in `parsed` by all of them in their order, the hidden ones included.

    Returns the calls that are there now; none when the client has deleted all that it saw of the turn.
    """
    present = {stem_of(item) for item in _calls_in(parsed.items)}
    if not any(stem_of(call) in present for call in paused_calls):
        return ()
    restored = tuple(call for call in paused_calls if call in hidden or stem_of(call) in present)
    stems = {stem_of(call) for call in restored}
    items: list[Item] = []
    is_inserted = False
    for item in parsed.items:
        if not isinstance(item, FunctionCall) or stem_of(item) not in stems:
            items.append(item)
        elif not is_inserted:
            items += restored
            is_inserted = True
    parsed.items = items
    parsed.pending_calls = [call for call in parsed.pending_calls if stem_of(call) not in stems]
    return restored


def find_paused_turn_keys(parsed: Input) -> dict[str, FunctionCall]:
    """Return the calls that identify a paused turn in a resent input, by the keys of its response in the store."""
    answered = find_last_answered_call(parsed)
    keys = {} if answered is None else {answered.call_id: answered}
    return keys | {approval_id(call): call for call in parsed.pending_calls[-1:]}


def has_model_output_after(parsed: Input, call: FunctionCall) -> bool:
    """Return whether a message or a call of the model follows a call."""
    position = max(index for index, item in enumerate(parsed.items) if item is call)
    requests = {id(pending) for pending in parsed.pending_calls}
    return any(
        (isinstance(item, Message) and item.role == "assistant")
        or (isinstance(item, FunctionCall) and id(item) not in requests)
        for item in parsed.items[position + 1 :]
    )


def find_last_answered_call(parsed: Input) -> FunctionCall | None:
    """Return the last call of a client function in an input. None if it has no output there."""
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
    """Return the calls of a paused turn that a resent input continues; none when the input has another turn.

    None as well when the input has one of the `pending` calls as a finished call: the turn was continued before.
    """
    requests = {id(call) for call in parsed.pending_calls}
    calls = {call.call_id: call for call in _calls_in(parsed.items) if id(call) not in requests}
    own = [call for call in paused_calls if call not in pending]
    if not all(_is_same_call(calls.get(call.call_id), call, parsed) for call in own):
        return ()
    present = {stem_of(item) for item in calls.values()}
    if any(stem_of(call) in present for call in pending):
        return ()
    requested = {stem_of(call) for call in parsed.pending_calls}
    if not own and not any(stem_of(call) in requested for call in pending):
        return ()
    return tuple(call for call in paused_calls if call in own or call in hidden or stem_of(call) in requested)


def insert_paused_calls(parsed: Input, paused_calls: Sequence[FunctionCall]) -> None:
    """Put all calls of a resent paused turn into `parsed`, the hidden ones included."""
    if paused_calls:
        last = {item.call_id: index for index, item in enumerate(parsed.items) if isinstance(item, FunctionCall)}
        for call in paused_calls:
            if call.call_id in last:
                # A client may send the call without its item id, which `restore_calls` matches by.
                parsed.items[last[call.call_id]] = call
        restore_calls(parsed, paused_calls, paused_calls)


def _is_same_call(sent: FunctionCall | None, call: FunctionCall, parsed: Input) -> bool:
    if sent is None or sent.name != call.name:
        return False
    return stem_of(sent) == stem_of(call) if sent.id not in parsed.generated_ids else _has_same_arguments(sent, call)


def _has_same_arguments(one: FunctionCall, other: FunctionCall) -> bool:
    """Return whether two calls have equal arguments as JSON."""
    try:
        return bool(parse_json(one.arguments) == parse_json(other.arguments))
    except ValueError:
        return one.arguments == other.arguments


def has_moved_on(parsed: Input, request_input: Input) -> bool:
    """Return whether a request has a new user message, and no output or approval for the conversation's calls."""
    called = {call.call_id for call in _calls_in(parsed.items)}
    is_answer = any(isinstance(item, FunctionCallOutput) and item.call_id in called for item in request_input.items)
    return _last_user_index(request_input.items) >= 0 and not is_answer and not request_input.approvals


def answer_skipped_calls(
    parsed: Input, request_input: Input, *, paused_calls: Collection[FunctionCall], pending_ids: Collection[str]
) -> set[str]:
    """Give an error output to each call of the client's functions that the client left unanswered. Returns their ids.

    `paused_calls`: calls that the client may still answer, unless its request has moved on.
    `pending_ids`: the ids of calls that are not the client's to answer.
    """
    answered = {item.call_id for item in (*parsed.items, *request_input.items) if isinstance(item, FunctionCallOutput)}
    last, is_over = _last_user_index(parsed.items), has_moved_on(parsed, request_input)
    skipped = [
        item
        for index, item in enumerate(parsed.items)
        if isinstance(item, FunctionCall)
        and item.call_id not in answered
        and item.call_id not in pending_ids
        and (is_over or (index < last and item not in paused_calls))
    ]
    insert_outputs(parsed, [error_output(call, UNANSWERED) for call in skipped])
    return {call.call_id for call in skipped}


def abandon_pending_calls(
    parsed: Input, hidden: Collection[FunctionCall], approval_calls: Collection[FunctionCall]
) -> None:
    """Drop pending calls that will not run: hidden ones are removed, those in `approval_calls` get an error output."""
    parsed.items = [item for item in parsed.items if not isinstance(item, FunctionCall) or item not in hidden]
    insert_outputs(parsed, [error_output(call, UNDECIDED) for call in approval_calls])


def refuse_duplicates(parsed: Input, request_input: Input, ids: Collection[str]) -> None:
    """Refuse items and outputs that the conversation has already: model APIs refuse two outputs of one call.

    `ids` are those of the conversation's items. Raises `BadRequestError`.
    """
    check_unique_ids(request_input.wire_items, ids)
    answered = {item.call_id for item in parsed.items if isinstance(item, FunctionCallOutput)}
    answered -= {call.call_id for call in _calls_in(request_input.items)}
    for item in request_input.items:
        if isinstance(item, FunctionCallOutput) and item.call_id in answered:
            message = f"The function call {item.call_id} already has an output in this conversation."
            refuse(message, "input", "duplicate_tool_output")


def _calls_in(items: Sequence[Item]) -> list[FunctionCall]:
    return [item for item in items if isinstance(item, FunctionCall)]


def _last_user_index(items: Sequence[Item]) -> int:
    """Return the index of the last user message, or -1."""
    indexes = [index for index, item in enumerate(items) if isinstance(item, Message) and item.role == "user"]
    return indexes[-1] if indexes else -1
