"""Resolution of a request's continuation: everything that its response starts from.

A request continues from a previous response, from a conversation, or from the history in its own input.
`ContinuationResolver.resolve` reads the earlier items and the pending calls from there, matches the approvals, and
gives one `Continuation`. It claims and leases nothing; that is done when the run is built. A `Continuation` is data: a
durable response stores it as JSON, and is rebuilt from it in another process.

The resolver also finds stored items that a body refers to, and opens sealed items, before the body is parsed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import orjson

from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.continuation.approvals import (
    DIGEST_BYTES,
    NO_DECISIONS,
    ApprovalDecisions,
    decide_calls,
    error_output,
    insert_outputs,
)
from holodeck.gateway.continuation.conversation_lock import (
    ConversationContext,
    ConversationState,
    check_context_size,
    context_too_long_error,
)
from holodeck.gateway.continuation.memory import PendingCallCache, ResponseContext, SocketHistory, ToolHistoryCache
from holodeck.gateway.continuation.paused_turns import (
    find_paused_turn_keys,
    has_model_output_after,
    insert_paused_calls,
    match_resent_calls,
)
from holodeck.gateway.continuation.pending_calls import (
    CallClaims,
    PendingCalls,
    check_answered,
    pending_calls_of,
    targets_from_json,
    without_orphan_outputs,
    without_resent_items,
)
from holodeck.gateway.http.errors import APIError
from holodeck.gateway.sealing import SealKeys
from holodeck.gateway.wire.item_ids import approval_id
from holodeck.gateway.wire.request.body import ResponseRequest
from holodeck.gateway.wire.request.input import list_calls_without_result, list_references, resolve_entries
from holodeck.gateway.wire.request.parsed_input import ApprovalAnswer, FindItem, Input, SealedInput, find_nothing
from holodeck.lib.call_errors import CLAIMED_ELSEWHERE, RESPONSE_ENDED_BEFORE
from holodeck.lib.limits import DEFAULT_CONTEXT_BYTES, MAX_CONTEXT_DEPTH
from holodeck.lib.record import record
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, decode_item, decode_items, encode_item
from holodeck.storage.conversations import ConversationContents
from holodeck.storage.runs import UNFINISHED_STATUSES
from holodeck.storage.store import ResponseStore

# Stored items that are looked up for one request, because each costs a read from storage: those that it refers to, then
# its latest calls without a result.
MAX_REFERENCES = 64
_CALL_ITEMS = frozenset({FunctionCall, FunctionCallOutput})


@record
class Continuation:
    """Everything that a request starts from: earlier items, pending calls, and the decisions about them."""

    context: tuple[Item, ...] = ()
    """The items before those of the request."""
    decisions: ApprovalDecisions = NO_DECISIONS
    listed_servers: frozenset[str] = frozenset()
    """The labels of servers whose tools the client has seen."""
    size: int = 0
    """Bytes of the earlier items."""
    targets: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """The server and the tool of each pending call, by call id."""
    inline_outputs: tuple[FunctionCallOutput, ...] = ()
    """Error outputs of refused calls that are in the request's own input: see `apply_to`."""
    is_stored: bool = True
    """False when the context is in no stored chain of responses: a conversation has it, or a WebSocket remembers it."""
    calls_with_caller_credentials: frozenset[str] = frozenset()
    """The ids of calls that run only with credentials that the caller sends."""
    calls_with_unknown_outcome: frozenset[str] = frozenset()
    """The ids of pending calls that a lost response may have run; they are not run again."""
    conversation_to_lease: ConversationContents | None = None
    """The conversation that the response must lease, as it was read. None if nothing is pending in one."""
    paused_calls: tuple[FunctionCall, ...] = ()
    """All calls of a paused turn that the client sent again; it has seen only some of them."""
    client_items: tuple[Item, ...] = ()
    """The input as the client sent it, when it is the whole history: the key for `ToolHistoryCache`."""

    @property
    def calls_to_claim(self) -> tuple[FunctionCall, ...]:
        """The calls that the response must claim before it runs them."""
        if not self.decisions.run:
            return ()
        return tuple(call for call in self.decisions.run if call.call_id not in self.calls_with_unknown_outcome)

    def apply_to(self, request: ResponseRequest) -> None:
        """Complete the request's own input: calls that the client did not see, and outputs of refused calls."""
        if self.context and any(isinstance(item, FunctionCall | FunctionCallOutput) for item in request.input.items):
            request.input.items = without_resent_items(request.input.items, self.context)
        insert_paused_calls(request.input, self.paused_calls)
        insert_outputs(request.input, self.inline_outputs)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that is stored for a durable response. The keys are stored data: see `from_json`."""
        return {
            "context": [encode_item(item) for item in self.context],
            "run": [encode_item(call) for call in self.decisions.run],
            "approved": sorted(self.decisions.approved),
            "definitions": {call_id: digest.hex() for call_id, digest in self.decisions.definitions.items()},
            "refused": [encode_item(output) for output in self.decisions.refused],
            "inline_outputs": [encode_item(output) for output in self.inline_outputs],
            "listed_servers": sorted(self.listed_servers),
            "targets": dict(self.targets),
            "calls_with_unknown_outcome": sorted(self.calls_with_unknown_outcome),
            "is_stored": self.is_stored,
            "paused_calls": [encode_item(call) for call in self.paused_calls],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Continuation:
        """Return the continuation of a stored durable response.

        Claims, leases and what serves only the first process (`size`, `client_items`, ...) are not restored.
        """
        decisions = ApprovalDecisions(
            run=_decode_calls(data["run"]),
            approved=frozenset(data["approved"]),
            refused=_decode_outputs(data["refused"]),
            definitions={call_id: bytes.fromhex(each) for call_id, each in data["definitions"].items()},
        )
        return cls(
            context=tuple(decode_item(entry) for entry in data["context"]),
            decisions=decisions,
            listed_servers=frozenset(data["listed_servers"]),
            targets=targets_from_json(data["targets"]),
            inline_outputs=_decode_outputs(data["inline_outputs"]),
            calls_with_unknown_outcome=frozenset(data["calls_with_unknown_outcome"]),
            is_stored=data["is_stored"],
            paused_calls=_decode_calls(data["paused_calls"]),
        )


class ContinuationResolver:
    """Finds what a request starts from and refers to, among the data of its caller."""

    def __init__(self, store: ResponseStore, seal_keys: SealKeys, *, max_bytes: int = DEFAULT_CONTEXT_BYTES) -> None:
        """`max_bytes`: size limit of the context of a request."""
        self._store = store
        self._seal_keys = seal_keys
        self._max_bytes = max_bytes
        self.conversations = ConversationState(store, max_bytes=max_bytes)
        self.claims = CallClaims(store)
        self.pending_call_cache = PendingCallCache()
        self.tool_history = ToolHistoryCache()

    def forget_caller(self, caller_id: str) -> None:
        """Delete what is in memory of a caller."""
        self.pending_call_cache.forget_caller(caller_id)
        self.tool_history.forget_caller(caller_id)

    async def resolve(
        self, request: ResponseRequest, caller: Caller, socket_history: SocketHistory | None = None
    ) -> Continuation:
        """Read what a request starts from, and complete its input (`Continuation.apply_to`).

        `socket_history`: the responses that the WebSocket of the request remembers.
        Raises when that does not exist, is not finished, is too large, is leased by another response, or does not
        match the outputs and approvals of the request.
        """
        read, is_named = request.input, request.previous_response_id is not None or request.conversation_id is not None
        # Most requests start from nothing: messages alone refer to no call, so that nothing is looked up.
        has_answers = read.approvals or read.pending_calls or read.tool_lists
        if not is_named and not has_answers and _CALL_ITEMS.isdisjoint(map(type, read.items)):
            return Continuation(client_items=tuple(read.items))
        items: tuple[Item, ...] = ()
        client_items: tuple[Item, ...] = ()
        paused_calls: tuple[FunctionCall, ...] = ()
        pending, is_stored, is_in_input, size = pending_calls_of(request.input), True, False, 0
        conversation = ConversationContext()
        previous = socket_history.get(request.previous_response_id or "") if socket_history is not None else None
        if previous is None and request.previous_response_id is not None:
            previous = await self.require_response_context(request.previous_response_id, caller, request.input.sealed)
        if previous is not None:
            items, pending, is_stored, size = previous.items, previous.pending, previous.is_stored, previous.size
            sealed_bytes = request.input.sealed.size if request.input.sealed is not None else 0
            check_context_size(size + sealed_bytes, self._max_bytes, "previous_response_id")
        elif request.conversation_id is not None:
            conversation = await self.conversations.read(request.conversation_id, request.input, caller)
            items, pending, size = conversation.items, conversation.pending, conversation.size
        else:
            is_in_input = True
            client_items = tuple(request.input.items)
            request.input.items = self.tool_history.restore_calls(caller.id, client_items)
            pending, paused_calls = await self._match_paused_turn(request.input, pending, caller)
        answers = (*conversation.approvals, *request.input.approvals)
        decisions = await self._decide_calls(pending, answers, conversation.calls_with_unknown_outcome, caller)
        inline_outputs: tuple[FunctionCallOutput, ...] = ()
        if decisions.refused and is_in_input:
            inline_outputs, decisions = decisions.refused, replace(decisions, refused=())
        continuation = Continuation(
            context=(*items, *decisions.refused),
            decisions=decisions,
            listed_servers=pending.listed_servers | set(request.input.tool_lists),
            size=size,
            targets=pending.targets,
            inline_outputs=inline_outputs,
            is_stored=is_stored,
            calls_with_caller_credentials=pending.calls_with_caller_credentials,
            calls_with_unknown_outcome=conversation.calls_with_unknown_outcome,
            conversation_to_lease=conversation.to_lease,
            paused_calls=paused_calls,
            client_items=client_items,
        )
        continuation.apply_to(request)
        check_answered((*continuation.context, *request.input.items), pending=decisions.run)
        return continuation

    async def _decide_calls(
        self,
        pending: PendingCalls,
        answers: Sequence[ApprovalAnswer],
        calls_with_unknown_outcome: Collection[str],
        caller: Caller,
    ) -> ApprovalDecisions:
        """Decide which pending calls run. A call that another response has claimed gets its output from there."""
        if not pending.calls:
            return decide_calls((), (), answers)
        stored = await self.claims.read_stored_calls(pending, caller.id)
        unknown = {approval_id(call) for call in pending.calls if call.call_id in calls_with_unknown_outcome}
        claimed_by = {
            request_id: call.claimed_by
            for request_id, call in stored.items()
            if call.claimed_by is not None and request_id not in unknown
        }

        def is_genuine(request_id: str) -> bool:
            digest = pending.client_digests.get(request_id)
            return digest is None or (
                request_id in stored and (stored[request_id].digest or b"")[:DIGEST_BYTES] == digest
            )

        decisions = decide_calls(
            pending.calls, pending.needs_approval, answers, claimed_by=claimed_by, is_genuine=is_genuine
        )
        digests = {
            call.call_id: stored[approval_id(call)].digest for call in decisions.run if approval_id(call) in stored
        }
        definitions = {call_id: digest[DIGEST_BYTES:] for call_id, digest in digests.items() if digest}
        # A call whose tool was not described when it was stored has no digest of one.
        decisions = replace(decisions, definitions={call_id: each for call_id, each in definitions.items() if each})
        if calls_with_unknown_outcome:
            decisions = _move_unknown_to_run(decisions, pending.calls, calls_with_unknown_outcome)
        outcomes = [
            await self.claims.find_outcome(call, claimed_by[approval_id(call)], caller.id)
            or error_output(call, CLAIMED_ELSEWHERE)
            for call in pending.calls
            if approval_id(call) in claimed_by
        ]
        if not outcomes:
            return decisions
        ids = {output.call_id for output in outcomes}
        return replace(
            decisions,
            run=tuple(call for call in decisions.run if call.call_id not in ids),
            refused=(*(output for output in decisions.refused if output.call_id not in ids), *outcomes),
        )

    async def build_abandoned_outputs(self, pending: PendingCalls, caller: Caller) -> tuple[FunctionCallOutput, ...]:
        """Return an output for each pending call that will not be continued: that of its claimant, or an error."""
        stored = await self.claims.read_stored_calls(pending, caller.id)
        outputs = []
        for call in pending.calls:
            found = stored.get(approval_id(call))
            claimant = None if found is None else found.claimed_by
            outcome = None if claimant is None else await self.claims.find_outcome(call, claimant, caller.id)
            outputs.append(
                outcome or error_output(call, RESPONSE_ENDED_BEFORE if claimant is None else CLAIMED_ELSEWHERE)
            )
        return tuple(outputs)

    async def _match_paused_turn(
        self, read: Input, pending: PendingCalls, caller: Caller
    ) -> tuple[PendingCalls, tuple[FunctionCall, ...]]:
        """Return the pending calls of an input, completed by those of a paused turn that the client sent again.

        Also returns the calls of that turn.
        """
        keys = find_paused_turn_keys(read)
        if not keys:
            return pending, ()
        async for earlier in self._read_paused_turns(keys, read, caller):
            turn = match_resent_calls(read, earlier.paused_calls, pending=earlier.calls, hidden=earlier.unseen_calls)
            if turn:
                calls = tuple(call for call in earlier.calls if call in turn)
                own = {approval_id(call) for call in calls}
                rest = tuple(call for call in pending.calls if approval_id(call) not in own)
                needs_approval = {call.call_id for call in calls if call.call_id in earlier.needs_approval}
                needs_approval |= {call.call_id for call in rest}
                return replace(
                    pending,
                    calls=(*calls, *rest),
                    needs_approval=frozenset(needs_approval),
                    targets={**pending.targets, **earlier.targets},
                    calls_with_caller_credentials=earlier.calls_with_caller_credentials,
                ), turn
        return pending, ()

    async def _read_paused_turns(
        self, keys: Mapping[str, FunctionCall], read: Input, caller: Caller
    ) -> AsyncIterator[PendingCalls]:
        """Yield the pending calls of each response that an input may continue.

        Raises `APIError` when such a response had calls that the client did not see, and is neither stored nor cached:
        the model would not see its own calls, or would repeat calls that have run.
        """
        for key, called in keys.items():
            for response_id in await self._store.find_paused_responses(caller.id, key):
                record = await self._store.get(response_id, caller.id)
                cached = self.pending_call_cache.find(caller.id, response_id)
                if record is not None:
                    yield PendingCalls.decode(record.pending)
                elif cached is not None:
                    yield cached
                elif not has_model_output_after(read, called):
                    has_id = called.id not in read.generated_ids
                    if await self.claims.detect_unseen_calls(response_id, called, caller.id, has_id=has_id):
                        raise _paused_turn_gone_error(response_id, called)

    async def build_item_lookup(self, body: object, caller: Caller) -> FindItem:
        """Read the stored items that a body refers to, or sends without their result. Returns their lookup by id.

        Items that are not found are left out. Raises `APIError` for too many references or bytes.
        """
        raw_input = body.get("input") if isinstance(body, dict) else None
        if not isinstance(raw_input, list):
            return find_nothing
        ids = set(list_references(raw_input))
        if len(ids) > MAX_REFERENCES:
            message = f"Invalid 'input': at most {MAX_REFERENCES} items may be referred to."
            raise APIError(400, message, kind="invalid_request", code="array_above_max_length", param="input")
        if remaining := MAX_REFERENCES - len(ids):
            ids.update(list_calls_without_result(raw_input)[-remaining:])
        items: dict[str, dict[str, Any]] = {}
        size = 0
        for item_id in ids:
            item = await self._store.find_item(item_id, caller.id)
            if item is not None:
                size += len(item.data)
                check_context_size(size, self._max_bytes, "input")
                items[item_id] = orjson.loads(item.data)
        if ids - items.keys():
            await self._find_in_responses(ids - items.keys(), items, caller)
        return items.get

    async def open_sealed(
        self, body: object, find: FindItem, caller: Caller, acquire: Callable[[int], None]
    ) -> SealedInput:
        """Open the sealed items of a body and of the items that it refers to. `acquire` reserves their bytes.

        Raises what `SealedInput.open` raises.
        """
        sealed = SealedInput(self._seal_keys.for_caller(caller.id), max_bytes=self._max_bytes, acquire=acquire)
        if entries := resolve_entries(body, find):
            await sealed.open(entries, param="input")
        return sealed

    async def _find_in_responses(self, ids: Collection[str], items: dict[str, dict[str, Any]], caller: Caller) -> None:
        """Add to `items` those that are in stored responses, as far back as the store searches."""
        for resource, input_items in await self._store.find_responses_containing(ids, caller.id):
            for item in (*orjson.loads(resource)["output"], *orjson.loads(input_items)):
                if item.get("id") in ids:
                    items.setdefault(item["id"], item)

    async def require_response_context(
        self, response_id: str, caller: Caller, sealed: SealedInput | None
    ) -> ResponseContext:
        """Return the context up to a stored response. Raises `APIError` if it is missing, unfinished or too large."""
        record = await self._store.get(response_id, caller.id)
        if record is None:
            message = f"Previous response with id '{response_id}' not found."
            code, param = "previous_response_not_found", "previous_response_id"
            raise APIError(400, message, kind="invalid_request", code=code, param=param)
        if record.status in UNFINISHED_STATUSES:
            message = "The previous response has not ended yet."
            raise APIError(400, message, kind="invalid_request", param="previous_response_id")
        chain = await self._store.read_context(response_id, caller.id, max_bytes=self._max_bytes) or []
        size = sum(map(len, chain))
        check_context_size(size, self._max_bytes, "previous_response_id")
        if len(chain) > MAX_CONTEXT_DEPTH:
            raise context_too_long_error(f"more than {MAX_CONTEXT_DEPTH} responses come before", "previous_response_id")
        items = tuple(item for part in chain for item in decode_items(part))
        pending = PendingCalls.decode(record.pending)
        if record.conversation_id is not None:
            items = await self.conversations.read_at(record, items, pending, caller, sealed)
        is_chain = record.conversation_id is None
        return ResponseContext(
            items=tuple(without_orphan_outputs(items)), size=size, pending=pending, is_stored=is_chain
        )


def _move_unknown_to_run(
    decisions: ApprovalDecisions, calls: Sequence[FunctionCall], calls_with_unknown_outcome: Collection[str]
) -> ApprovalDecisions:
    """Move calls that may have run to `run`, whatever the answer: there the model gets their real state."""
    run = {call.call_id for call in decisions.run} | set(calls_with_unknown_outcome)
    return replace(
        decisions,
        run=tuple(call for call in calls if call.call_id in run),
        refused=tuple(output for output in decisions.refused if output.call_id not in calls_with_unknown_outcome),
    )


def _paused_turn_gone_error(response_id: str, call: FunctionCall) -> APIError:
    message = (
        f"The turn with the call {call.call_id} also called tools of this gateway, which waited for its output in "
        f"the response {response_id}. That one was not stored, or is deleted, and so it is not known what they were "
        "called with, nor whether they have run. Go on from it with 'previous_response_id' on its own connection, or "
        "send the input without this turn."
    )
    return APIError(400, message, kind="invalid_request", code="paused_turn_gone", param="input")


def _decode_calls(entries: Iterable[Mapping[str, Any]]) -> tuple[FunctionCall, ...]:
    items = (decode_item(entry) for entry in entries)
    return tuple(item for item in items if isinstance(item, FunctionCall))


def _decode_outputs(entries: Iterable[Mapping[str, Any]]) -> tuple[FunctionCallOutput, ...]:
    items = (decode_item(entry) for entry in entries)
    return tuple(item for item in items if isinstance(item, FunctionCallOutput))
