"""What of a response becomes part of the next: every call in it has an answer, so that any model can go on from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from holodeck.gateway.wire.request.json_fields import refuse
from holodeck.lib.ids import new_id
from holodeck.models.content import TextContent
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item

NOT_RUN = "This call was not run: the response ended before it."
ENDED_DURING_CALL = "The response ended before this call had a result. It is not known whether the call took effect."


def with_missing_outputs(
    items: Sequence[Item],
    *,
    resumed_calls: Sequence[FunctionCall] = (),
    pending: Collection[FunctionCall],
    is_client_function: Callable[[str], bool],
    is_cut: bool = False,
) -> tuple[Item, ...]:
    """The items of a run with an answer for each call of ours that got none. Calls that wait stay as they are.

    `resumed_calls`: calls of an earlier response that this one went on with. `is_cut`: it may have ended within a call.
    """
    answered = {item.call_id for item in items if isinstance(item, FunctionCallOutput)}
    words = ENDED_DURING_CALL if is_cut else NOT_RUN
    settled: list[Item] = [_missing_output(call, words) for call in resumed_calls if call.call_id not in answered]
    answered |= {call.call_id for call in pending}
    for item in items:
        settled.append(item)
        if not isinstance(item, FunctionCall) or item.call_id in answered or is_client_function(item.name):
            continue
        settled.append(_missing_output(item, words))
    return tuple(settled)


def _missing_output(call: FunctionCall, message: str) -> FunctionCallOutput:
    return FunctionCallOutput(
        call_id=call.call_id, content=(TextContent(text=message),), is_error=True, id=new_id("out")
    )


def without_orphan_outputs(items: Iterable[Item]) -> list[Item]:
    """What is left of a past of which something was deleted: an answer without its call is no use to a model."""
    called: set[str] = set()
    left: list[Item] = []
    for item in items:
        if isinstance(item, FunctionCall):
            called.add(item.call_id)
        elif isinstance(item, FunctionCallOutput) and item.call_id not in called:
            continue
        left.append(item)
    return left


def without_resent_calls(items: Iterable[Item], context: Sequence[Item]) -> list[Item]:
    """Items without the calls that stand in what came before and wait there for their answers.

    LlamaIndex names the previous response and sends its calls again as well.
    """
    waiting = {item.call_id: (item.name, item.arguments) for item in context if isinstance(item, FunctionCall)}
    for item in context:
        if isinstance(item, FunctionCallOutput):
            waiting.pop(item.call_id, None)
    return [
        item
        for item in items
        if not isinstance(item, FunctionCall) or waiting.get(item.call_id) != (item.name, item.arguments)
    ]


def check_answered(items: Sequence[Item], *, pending: Collection[FunctionCall], param: str = "input") -> None:
    """Refuse a conversation in which a call has no answer, or an answer has no call before it that needs one."""
    unanswered: dict[str, int] = {}
    for item in items:
        if isinstance(item, FunctionCall):  # there are models that give one id to several calls
            unanswered[item.call_id] = unanswered.get(item.call_id, 0) + 1
        elif isinstance(item, FunctionCallOutput):
            if not unanswered.get(item.call_id):
                said = "No" if item.call_id not in unanswered else "No further"
                message = f"{said} tool call found for function call output with call_id {item.call_id}."
                refuse(message, param, "unknown_call_id")
            unanswered[item.call_id] -= 1
    waiting = {call.call_id for call in pending} if unanswered else ()
    for call_id, count in unanswered.items():
        if count and call_id not in waiting:
            refuse(f"No tool output found for function call {call_id}.", param, "missing_tool_output")
