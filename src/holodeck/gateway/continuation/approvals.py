"""Approval answers of a client, matched with the pending calls that they are for.

`decide_calls` decides which pending calls run and which get an error output instead. `resolve_past_requests` does the
same for requests that lie in the past of a conversation. An approval is for one call with its server, its tool and its
arguments (`call_digest`), and is used once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from holodeck.gateway.wire.item_ids import approval_id
from holodeck.gateway.wire.request.json_fields import refuse
from holodeck.gateway.wire.request.parsed_input import ApprovalAnswer, Input
from holodeck.lib.call_errors import APPROVED_WITHOUT_RESULT, NOT_APPROVED, UNDECIDED
from holodeck.lib.ids import new_id
from holodeck.lib.json.parse import parse_exact_json
from holodeck.lib.record import record
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, Message, TextContent

# A message of one of these roles after an undecided call means that the conversation moved on without it. The assistant
# counts too: a model that continued without a call does not wait for its output.
_SPEAKER_ROLES = ("user", "assistant")
DIGEST_BYTES = 16


@record
class ApprovalDecisions:
    """The decisions about pending calls: it runs, or it gets an error output."""

    run: tuple[FunctionCall, ...] = ()
    approved: frozenset[str] = frozenset()
    """The ids of those calls in `run` that a person approved."""
    refused: tuple[FunctionCallOutput, ...] = ()
    """The error outputs of the calls that do not run."""
    denied: tuple[FunctionCall, ...] = ()
    """The calls that a person refused in this request. Others in `refused` were not answered, or not here."""
    definitions: Mapping[str, bytes] = field(default_factory=dict)
    """By call id, the digest of the tool as it was when approval was requested. An approval is for no other."""


NO_DECISIONS = ApprovalDecisions()
_NO_CLAIMS: Mapping[str, str] = {}


def call_digest(target: tuple[str, str], call: FunctionCall) -> bytes:
    """Return the digest of a call's target and arguments. Spacing and key order of the arguments do not change it."""
    try:
        canonical = repr((target, _canonicalize(parse_exact_json(call.arguments))))
    except (ValueError, RecursionError):
        canonical = repr((target, call.arguments))
    return hashlib.blake2b(canonical.encode(), digest_size=DIGEST_BYTES).digest()


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
    """Decide which pending calls run. A call that needs no approval runs; one without an answer does not.

    A call runs with the arguments that it was stored with: an approval is for them and for no others.

    `needs_approval`: the ids of the pending calls that need approval.
    `claimed_by`: by approval request id, the response that has continued with the call. A second approval of it is
    refused, unless the answer is part of the history that a client sends again (`is_past`).
    `is_genuine`: whether an approval request is unchanged since this gateway made it. Checked for approvals only.

    Raises `BadRequestError` for a request that is unknown, answered twice, used, or changed.
    """
    if not pending and not answers:
        return NO_DECISIONS
    needed = set(needs_approval)
    answer_by_call = _match_answers(
        {approval_id(call): call for call in pending if call.call_id in needed}, answers, claimed_by, is_genuine
    )
    run, refused = [], []
    for call in pending:
        answer = answer_by_call.get(call.call_id)
        if call.call_id not in needed or (answer is not None and answer.approve):
            run.append(call)
        else:
            refused.append(_refusal_output(call, answer))
    approved = frozenset(call_id for call_id, answer in answer_by_call.items() if answer.approve)
    answered_now = {call_id: answer for call_id, answer in answer_by_call.items() if not answer.is_past}
    denied = (call for call in pending if call.call_id in answered_now and not answered_now[call.call_id].approve)
    return ApprovalDecisions(run=tuple(run), approved=approved, refused=tuple(refused), denied=tuple(denied))


def _match_answers(
    requests: Mapping[str, FunctionCall],
    answers: Sequence[ApprovalAnswer],
    claimed_by: Mapping[str, str],
    is_genuine: Callable[[str], bool],
) -> dict[str, ApprovalAnswer]:
    """Return the answers by call id; `requests` are the calls by approval request id. Raises, see `decide_calls`."""
    matched: dict[str, ApprovalAnswer] = {}
    for answer in answers:
        call = requests.get(answer.request_id)
        if call is None:
            message = f"There is no approval request '{answer.request_id}' that waits for an answer."
            refuse(message, answer.param, "approval_request_not_found")
        if call.call_id in matched:
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
        matched[call.call_id] = answer
    return matched


def approval_used_message(request_id: str, response_id: str) -> str:
    """Return the error text for an approval that was used before, by the response `response_id`."""
    return (
        f"The approval request '{request_id}' has been answered, and an approval is used once: "
        f"the response {response_id} "
        "has gone on with the call. Go on from that one; if it was not kept, go on without the answer."
    )


def resolve_past_requests(parsed: Input) -> None:
    """Give an error output to each pending call of a past input that was answered, or that the conversation passed.

    Changes `parsed`: such calls are not pending any more, and no approvals remain.
    """
    answers = {answer.request_id: answer for answer in parsed.approvals}
    messages = [
        index for index, item in enumerate(parsed.items) if isinstance(item, Message) and item.role in _SPEAKER_ROLES
    ]
    last = messages[-1] if messages else -1
    indexes = {id(item): index for index, item in enumerate(parsed.items)} if parsed.pending_calls else {}
    outputs: list[FunctionCallOutput] = []
    for call in parsed.pending_calls:
        answer = answers.get(approval_id(call))
        if answer is not None and answer.approve:
            outputs.append(error_output(call, APPROVED_WITHOUT_RESULT))
        elif answer is not None or indexes[id(call)] < last:
            outputs.append(_refusal_output(call, answer))
    insert_outputs(parsed, outputs)
    resolved = {output.call_id for output in outputs}
    parsed.pending_calls = [call for call in parsed.pending_calls if call.call_id not in resolved]
    parsed.approvals = []


def insert_outputs(parsed: Input, outputs: Sequence[FunctionCallOutput]) -> None:
    """Insert each output after the adjacent calls that its call is among: models expect calls of a turn together."""
    by_call = {output.call_id: output for output in outputs}
    items: list[Item] = []
    due: list[Item] = []
    for item in parsed.items:
        if not isinstance(item, FunctionCall):
            items += due
            due = []
        elif item.call_id in by_call:
            due.append(by_call[item.call_id])
        items.append(item)
    parsed.items = [*items, *due]


def _refusal_output(call: FunctionCall, answer: ApprovalAnswer | None) -> FunctionCallOutput:
    text = UNDECIDED if answer is None else NOT_APPROVED
    if answer is not None and answer.reason:
        text = f"{text} Their reason: {answer.reason}"
    return error_output(call, text)


def error_output(call: FunctionCall, message: str) -> FunctionCallOutput:
    """Return an output with an error text for the model, in place of a result."""
    return FunctionCallOutput(
        call_id=call.call_id, content=(TextContent(text=message),), is_error=True, id=new_id("out")
    )
