"""Pending calls, the claims that let exactly one response run them, and the pairing of calls with their outputs.

A response may end with calls that wait for a client's output or for an approval. `CallClaims.store_pending` stores
them under their approval request ids, with digests of what may be approved. A later response claims them all or none
(`claim`) before it runs them. The claim is stored, and ends with the process of the response until it is confirmed
(`confirm`), before the first call may reach its tool. At the end of the response, or when it never starts, calls that
did not reach their tools are released (`release_unstarted`) and may be claimed again. Calls that did are claimed for
ever, and a later request reads their output from the response that claimed them (`find_outcome`).

Model APIs refuse a context in which a call has no output, or an output no call. So a stored run gets an output for each
call that has none (`with_missing_outputs`), a context that lost items is repaired (`without_orphan_outputs`), and a
request whose calls and outputs do not match is refused before a model is paid (`check_answered`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import orjson

from holodeck.gateway.continuation.approvals import approval_used_message, call_digest, error_output
from holodeck.gateway.http.errors import APIError
from holodeck.gateway.wire.item_ids import approval_id, is_unique
from holodeck.gateway.wire.request.json_fields import refuse
from holodeck.gateway.wire.request.parsed_input import Input
from holodeck.lib.call_errors import RESPONSE_ENDED_BEFORE, RESPONSE_ENDED_DURING
from holodeck.lib.errors import ExecutionError
from holodeck.lib.record import record
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, decode_items, encode_items, output_id
from holodeck.storage.pending_calls import PendingCall
from holodeck.storage.runs import UNFINISHED_STATUSES
from holodeck.storage.store import ResponseStore

CallTargets = Mapping[str, tuple[str, str]]
"""Server label and tool name, by call id."""
# The encoding of `PendingCalls()`, which most responses end with.
_NO_PENDING_CALLS = b"{}"


@record
class PendingCalls:
    """The calls that a response ended with and did not run, and all that is needed to run them later.

    Stored as it was at the end of the response, not derived again: the servers may differ by then.
    """

    calls: tuple[FunctionCall, ...] = ()
    needs_approval: frozenset[str] = frozenset()
    """The ids of calls that a person must approve. The others wait for outputs of the client's own calls."""
    listed_servers: frozenset[str] = frozenset()
    """The labels of servers whose tools the client has seen in this chain of responses."""
    targets: CallTargets = field(default_factory=dict)
    """The server and the tool of each call. With other servers, the name alone may be that of another tool."""
    calls_with_caller_credentials: frozenset[str] = frozenset()
    """The ids of calls for which the caller sent its own credentials: they run with no others."""
    paused_calls: tuple[FunctionCall, ...] = ()
    """All calls of the turn that paused, in its order, the client's own among them."""
    client_digests: Mapping[str, bytes] = field(default_factory=dict)
    """Digests, by approval request id, of the approval requests in the client's input. Never stored."""
    definitions: Mapping[str, bytes] = field(default_factory=dict)
    """By call id, the digest of the tool as it is described now. Stored with the digest of the call."""

    @property
    def unseen_calls(self) -> tuple[FunctionCall, ...]:
        """The calls that the client has not seen in any form."""
        return tuple(call for call in self.calls if call.call_id not in self.needs_approval)

    def encode(self) -> bytes:
        if not (self.calls or self.listed_servers or self.targets):
            return _NO_PENDING_CALLS
        plain: dict[str, Any] = {
            "calls": encode_items(self.calls).decode(),
            "needs_approval": sorted(self.needs_approval),
            "listed_servers": sorted(self.listed_servers),
            "targets": dict(self.targets),
            "calls_with_caller_credentials": sorted(self.calls_with_caller_credentials),
            "paused_calls": encode_items(self.paused_calls).decode(),
        }
        return orjson.dumps(plain)

    @classmethod
    def decode(cls, data: bytes) -> PendingCalls:
        if data == _NO_PENDING_CALLS:
            return cls()
        plain: Any = orjson.loads(data)
        return cls(
            calls=_only_calls(decode_items(plain["calls"].encode())),
            needs_approval=frozenset(plain["needs_approval"]),
            listed_servers=frozenset(plain["listed_servers"]),
            targets=targets_from_json(plain["targets"]),
            calls_with_caller_credentials=frozenset(plain["calls_with_caller_credentials"]),
            paused_calls=_only_calls(decode_items(plain["paused_calls"].encode())),
        )


NOTHING_PENDING = PendingCalls()


def pending_calls_of(read: Input) -> PendingCalls:
    """Return the calls of an input that have an approval request and no answer in its past."""
    ids = frozenset(call.call_id for call in read.pending_calls)
    return PendingCalls(
        calls=tuple(read.pending_calls),
        needs_approval=ids,
        listed_servers=frozenset(read.tool_lists),
        targets=dict(read.targets),
        client_digests={
            approval_id(call): call_digest(read.targets[call.call_id], call) for call in read.pending_calls
        },
    )


def targets_from_json(data: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Call targets from JSON, where each pair is a list."""
    return {call_id: (label, tool) for call_id, (label, tool) in data.items()}


def _only_calls(items: list[Item] | tuple[Item, ...]) -> tuple[FunctionCall, ...]:
    return tuple(item for item in items if isinstance(item, FunctionCall))


class CallClaim:
    """The exclusive right of one response to run some pending calls. The run ends it with `release_unstarted`."""

    def __init__(self, caller_id: str, response_id: str, approval_ids: Mapping[str, str]) -> None:
        """`approval_ids`: approval request ids, by call id."""
        self.caller_id = caller_id
        self.response_id = response_id
        self.approval_ids = approval_ids
        self.started: set[str] = set()
        """The ids of calls that may have reached their tools."""
        self.is_confirmed = False
        """Whether it outlives this process."""


class CallClaims:
    """Stores, claims and releases the pending calls of all callers."""

    def __init__(self, store: ResponseStore) -> None:
        self._store = store

    async def store_pending(
        self, pending: PendingCalls, caller_id: str, response_id: str, *, is_findable: bool
    ) -> None:
        """Store the calls that a response ended with.

        `is_findable`: index the response by its client calls, for a client that sends the turn again. If it has calls
        that the client does not see, its own id is indexed as well: see `detect_unseen_calls`.
        """
        requested = [
            call for call in pending.calls if call.call_id in pending.needs_approval and call.call_id in pending.targets
        ]
        digests = {
            approval_id(call): call_digest(pending.targets[call.call_id], call)
            + pending.definitions.get(call.call_id, b"")
            for call in requested
        }
        keys: list[str] = []
        if is_findable:
            own = [call for call in pending.paused_calls if call not in pending.calls]
            keys = [call.call_id for call in own]
            if pending.unseen_calls:
                keys += [*(call.id for call in own if call.id), *(approval_id(call) for call in requested), response_id]
        if digests or keys:
            await self._store.add_pending_calls(caller_id, response_id, digests, client_call_ids=keys)

    async def detect_unseen_calls(self, response_id: str, call: FunctionCall, caller_id: str, *, has_id: bool) -> bool:
        """Return whether the response of a resent call also had calls that its client did not see.

        `has_id`: the client sent the item id of the call. Otherwise only the model's call id identifies it, which
        counts if it is unique: some models number their calls.
        """
        if not await self._store.find_paused_responses(caller_id, response_id):
            return False
        if not has_id:
            return is_unique(call.call_id)
        keys = [key for key in (call.id, approval_id(call)) if key]
        return any([response_id in await self._store.find_paused_responses(caller_id, key) for key in keys])

    async def read_stored_calls(self, pending: PendingCalls, caller_id: str) -> dict[str, PendingCall]:
        """Return the stored state of pending calls, by approval request id."""
        ids = [approval_id(call) for call in pending.calls]
        return await self._store.read_pending_calls(caller_id, ids) if ids else {}

    async def find_outcome(self, call: FunctionCall, claimed_by: str, caller_id: str) -> FunctionCallOutput | None:
        """Return a call's output in the response that claimed it. None if that is unfinished, deleted or has none."""
        record = await self._store.get(claimed_by, caller_id)
        if record is None or record.status in UNFINISHED_STATUSES:
            return None
        outputs = [item for item in decode_items(record.items) if isinstance(item, FunctionCallOutput)]
        # A call that a client sent again may have another `call_id`, but the same output id.
        own_id = output_id(call)
        found = next((item for item in outputs if item.id == own_id or item.call_id == call.call_id), None)
        return None if found is None else replace(found, call_id=call.call_id)

    async def claim(
        self, calls: Collection[FunctionCall], response_id: str, caller_id: str, *, approved: Collection[str] = ()
    ) -> CallClaim:
        """Claim calls for a response, all or none.

        Raises an `APIError` of status 400 if another response has one of them: SDKs do not retry a 400 by themselves.
        `approved`: the ids of the calls that a person approved, for the error.
        """
        claim = CallClaim(caller_id, response_id, {call.call_id: approval_id(call) for call in calls})
        try:
            others = await self._store.claim_calls(caller_id, claim.approval_ids.values(), response_id)
        except asyncio.CancelledError:
            # Storage may have claimed them nevertheless.
            await asyncio.shield(self.release_unstarted(claim))
            raise
        if others:
            raise _already_claimed_error(others, {approval_id(call) for call in calls if call.call_id in approved})
        return claim

    async def confirm(self, claim: CallClaim) -> None:
        """Make a claim outlive this process. Raises `ExecutionError` if it is lost."""
        if claim.is_confirmed:
            return
        ids = claim.approval_ids.values()
        if not await self._store.confirm_claim(claim.caller_id, claim.response_id, ids):
            # Storage took this process for dead, and gave the calls to another response.
            raise ExecutionError("The approved calls are run by another response by now.")
        claim.is_confirmed = True

    async def release_unstarted(self, claim: CallClaim) -> None:
        """Release the calls that did not reach their tools, when the run has ended or will not start."""
        unstarted = [request_id for call_id, request_id in claim.approval_ids.items() if call_id not in claim.started]
        if unstarted:
            await self._store.release_calls(claim.caller_id, claim.response_id, unstarted)


def _already_claimed_error(claimed_by: Mapping[str, str], approved: Collection[str]) -> APIError:
    """Return the 400 for a request that came at the same time as another one with the same answers."""
    for request_id, response_id in claimed_by.items():
        if request_id in approved:
            return APIError(
                400,
                approval_used_message(request_id, response_id),
                kind="invalid_request",
                code="approval_request_used",
            )
    response_id = next(iter(claimed_by.values()))
    message = f"The response {response_id} is going on with the calls that waited for these outputs. Try again later."
    return APIError(400, message, kind="invalid_request", code="calls_taken", param="input")


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
