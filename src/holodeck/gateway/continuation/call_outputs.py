"""Pairing of calls with their outputs.

Model APIs refuse a context in which a call has no output, or an output no call. So a stored run gets an output for each
call that has none (`with_missing_outputs`), a context that lost items is repaired (`without_orphan_outputs`), and a
request whose calls and outputs do not match is refused before a model is paid (`check_answered`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from holodeck.gateway.continuation.approvals import error_output
from holodeck.gateway.wire.request.json_fields import refuse
from holodeck.lib.call_errors import RESPONSE_ENDED_BEFORE, RESPONSE_ENDED_DURING
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item


def with_missing_outputs(
    items: Sequence[Item],
    *,
    resumed_calls: Sequence[FunctionCall] = (),
    pending: Collection[FunctionCall],
    is_client_call: Callable[[FunctionCall], bool],
    is_cut: bool = False,
) -> tuple[Item, ...]:
    """Return the items of a run, with an error output for each of the gateway's own calls that has none.

    Pending calls and calls of client functions stay without one: their outputs are yet to come.
    `resumed_calls`: calls of an earlier response that this run continued with; their outputs come first.
    `is_cut`: the run was cancelled or failed, so that a call may have taken effect without a result.
    """
    answered = {item.call_id for item in items if isinstance(item, FunctionCallOutput)}
    text = RESPONSE_ENDED_DURING if is_cut else RESPONSE_ENDED_BEFORE
    settled: list[Item] = [error_output(call, text) for call in resumed_calls if call.call_id not in answered]
    answered |= {call.call_id for call in pending}
    for item in items:
        settled.append(item)
        if not isinstance(item, FunctionCall) or item.call_id in answered or is_client_call(item):
            continue
        settled.append(error_output(item, text))
    return tuple(settled)


def without_orphan_outputs(items: Iterable[Item]) -> list[Item]:
    """Return the items without outputs whose call is not before them: a client may have deleted the call."""
    called: set[str] = set()
    complete: list[Item] = []
    for item in items:
        if isinstance(item, FunctionCall):
            called.add(item.call_id)
        elif isinstance(item, FunctionCallOutput) and item.call_id not in called:
            continue
        complete.append(item)
    return complete


def without_resent_items(items: Sequence[Item], context: Sequence[Item]) -> list[Item]:
    """Return the items without calls and outputs that are in `context` already.

    LlamaIndex names the previous response and sends its calls again as well, Semantic Kernel every call and output of
    the conversation. An output that differs from the one in `context` is not removed: the request is refused for it.
    """
    calls = {item.call_id: (item.name, item.arguments) for item in context if isinstance(item, FunctionCall)}
    unanswered = Counter(item.call_id for item in context if isinstance(item, FunctionCall))
    outputs = {item.call_id: item for item in context if isinstance(item, FunctionCallOutput)}
    unanswered.subtract(item.call_id for item in context if isinstance(item, FunctionCallOutput))
    repeated = {
        item.call_id
        for item in items
        if isinstance(item, FunctionCallOutput)
        and unanswered[item.call_id] == 0
        and item.call_id in outputs
        and _is_same_output(item, outputs[item.call_id])
    }

    def is_resent(item: Item) -> bool:
        if isinstance(item, FunctionCall):
            is_known = calls.get(item.call_id) == (item.name, item.arguments)
            return is_known and (unanswered[item.call_id] > 0 or item.call_id in repeated)
        return isinstance(item, FunctionCallOutput) and item.call_id in repeated

    return [item for item in items if not is_resent(item)]


def _is_same_output(one: FunctionCallOutput, other: FunctionCallOutput) -> bool:
    return (one.content, one.is_error) == (other.content, other.is_error)


def check_answered(items: Sequence[Item], *, pending: Collection[FunctionCall], param: str = "input") -> None:
    """Refuse items in which a call has no output, or an output has no unanswered call before it.

    Calls in `pending` need no output. Raises `BadRequestError`.
    """
    unanswered: dict[str, int] = {}
    for item in items:
        if isinstance(item, FunctionCall):
            # Counted, because some models give several calls the same id.
            unanswered[item.call_id] = unanswered.get(item.call_id, 0) + 1
        elif isinstance(item, FunctionCallOutput):
            if not unanswered.get(item.call_id):
                which = "No" if item.call_id not in unanswered else "No further"
                message = f"{which} tool call found for function call output with call_id {item.call_id}."
                refuse(message, param, "unknown_call_id")
            unanswered[item.call_id] -= 1
    pending_ids = {call.call_id for call in pending} if unanswered else ()
    for call_id, count in unanswered.items():
        if count and call_id not in pending_ids:
            refuse(f"No tool output found for function call {call_id}.", param, "missing_tool_output")
