"""The answers of a person to requests for approval, matched with exactly the calls that wait."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from holodeck.gateway.wire.item_ids import approval_id
from holodeck.gateway.wire.request.json_fields import refuse
from holodeck.gateway.wire.request.parsed_input import ApprovalAnswer, Input
from holodeck.lib.ids import new_id
from holodeck.lib.types import record
from holodeck.models.content import TextContent
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, Message

_SPEAKER_ROLES = ("user", "assistant")  # a model that has gone on without a call does not wait for it, either
REFUSED = "The person did not approve this call; it was not run."
APPROVED_WITHOUT_RESULT = "This call was approved, and came to no result."
UNDECIDED = "The person went on without approving this call; it was not run."
CLAIMED_ELSEWHERE = (
    "Another response has gone on with this call. What came of it is not known here. It is not run again."
)
_DIGEST_BYTES = 16


@record
class ApprovalDecisions:
    """What happens to the calls that waited."""

    run: tuple[FunctionCall, ...] = ()
    approved: frozenset[str] = frozenset()
    """The ids of those calls in `run` that a person approved."""
    refused: tuple[FunctionCallOutput, ...] = ()
    """What the model is told about the others."""


_NO_DECISIONS = ApprovalDecisions()
_NO_CLAIMS: Mapping[str, str] = {}


def call_digest(target: tuple[str, str], call: FunctionCall) -> bytes:
    """The same for the same call of the same tool, however its arguments are spaced; another for any other."""
    try:  # not with orjson: to that one all large numbers are the same
        said = repr((target, _canonicalize(json.loads(call.arguments, parse_float=Decimal))))
    except (ValueError, RecursionError):
        said = repr((target, call.arguments))
    return hashlib.blake2b(said.encode(), digest_size=_DIGEST_BYTES).digest()


def _canonicalize(value: Any) -> Any:
    if isinstance(value, dict):
        return "object", sorted((key, _canonicalize(each)) for key, each in value.items())
    return [_canonicalize(each) for each in value] if isinstance(value, list) else value


def decide_calls(
    pending: Sequence[FunctionCall],
    needs_approval: Iterable[str],
    answers: Sequence[ApprovalAnswer],
    *,
    claimed_by: Mapping[str, str] = _NO_CLAIMS,
    is_genuine: Callable[[str], bool] = lambda request_id: True,
) -> ApprovalDecisions:
    """`needs_approval` are the ids of the pending calls that need approval. Raises `BadRequestError` for an unknown
    request.

    The arguments are those of the call that waits: an approval is for them and for no others.
    `claimed_by`: by the id of its request, the response that went on with a call. It is approved once; that it was may
    be told again, by a client that sends everything.
    `is_genuine`: whether a request stands as this gateway made it; who refuses need not care.
    """
    if not pending and not answers:
        return _NO_DECISIONS
    needed = set(needs_approval)
    requests = {approval_id(call): call for call in pending if call.call_id in needed}
    given: dict[str, ApprovalAnswer] = {}
    for answer in answers:
        call = requests.get(answer.request_id)
        if call is None:
            message = f"There is no approval request '{answer.request_id}' that waits for an answer."
            refuse(message, answer.param, "approval_request_not_found")
        if call.call_id in given:
            refuse(f"The approval request '{answer.request_id}' is answered twice.", answer.param)
        if answer.request_id in claimed_by and answer.is_past:
            continue
        if answer.request_id in claimed_by:
            refuse(
                approval_used_message(answer.request_id, claimed_by[answer.request_id]),
                answer.param,
                "approval_request_used",
            )
        if answer.approve and not is_genuine(answer.request_id):
            message = (
                f"The approval request '{answer.request_id}' is none that this gateway made for you, or its server, "
                "tool or arguments were changed since. Send it as it came; nothing else can be approved."
            )
            refuse(message, answer.param, "approval_request_not_found")
        given[call.call_id] = answer
    run, refused = [], []
    for call in pending:
        answered = given.get(call.call_id)
        if call.call_id not in needed or (answered is not None and answered.approve):
            run.append(call)
        else:
            refused.append(_refusal_output(call, answered))
    approved = frozenset(call_id for call_id, answer in given.items() if answer.approve)
    return ApprovalDecisions(run=tuple(run), approved=approved, refused=tuple(refused))


def approval_used_message(request_id: str, response_id: str) -> str:
    """For an approval that comes a second time."""
    return (
        f"The approval request '{request_id}' has been answered, and an approval is used once: "
        f"the response {response_id} "
        "has gone on with the call. Go on from that one; if it was not kept, go on without the answer."
    )


def resolve_past_requests(parsed: Input) -> None:
    """What was decided earlier in a conversation, or passed over in it, does not wait any more: the model is told."""
    given = {answer.request_id: answer for answer in parsed.approvals}
    said = [
        index for index, item in enumerate(parsed.items) if isinstance(item, Message) and item.role in _SPEAKER_ROLES
    ]
    last = said[-1] if said else -1
    over: list[FunctionCallOutput] = []
    for call in parsed.pending_calls:
        answer = given.get(approval_id(call))
        if answer is not None and answer.approve:
            over.append(error_output(call, APPROVED_WITHOUT_RESULT))
        elif answer is not None or parsed.items.index(call) < last:
            over.append(_refusal_output(call, answer))
    insert_outputs(parsed, over)
    done = {output.call_id for output in over}
    parsed.pending_calls = [call for call in parsed.pending_calls if call.call_id not in done]
    parsed.approvals = []


def insert_outputs(parsed: Input, outputs: Sequence[FunctionCallOutput]) -> None:
    """Put each output behind its call, where a model expects it: calls that were made together stay together."""
    behind = {output.call_id: output for output in outputs}
    items: list[Item] = []
    due: list[Item] = []
    for item in parsed.items:
        if not isinstance(item, FunctionCall):
            items += due
            due = []
        elif item.call_id in behind:
            due.append(behind[item.call_id])
        items.append(item)
    parsed.items = [*items, *due]


def _refusal_output(call: FunctionCall, answer: ApprovalAnswer | None) -> FunctionCallOutput:
    words = UNDECIDED if answer is None else REFUSED
    if answer is not None and answer.reason:
        words = f"{words} Their reason: {answer.reason}"
    return error_output(call, words)


def error_output(call: FunctionCall, message: str) -> FunctionCallOutput:
    """What the model hears instead of a result."""
    return FunctionCallOutput(
        call_id=call.call_id, content=(TextContent(text=message),), is_error=True, id=new_id("out")
    )
