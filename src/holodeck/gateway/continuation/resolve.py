"""How a request goes on from an earlier response: its items, the calls that waited, what a person said of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import orjson

from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.continuation.approvals import (
    CLAIMED_ELSEWHERE,
    ApprovalDecisions,
    decide_calls,
    error_output,
    insert_outputs,
)
from holodeck.gateway.continuation.call_outputs import (
    NOT_RUN,
    check_answered,
    without_orphan_outputs,
    without_resent_calls,
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
from holodeck.gateway.continuation.pending_calls import CallClaims, PendingCalls, pending_calls_of, targets_from_json
from holodeck.gateway.http.errors import APIError
from holodeck.gateway.sealing import SealKeys
from holodeck.gateway.wire.item_ids import approval_id
from holodeck.gateway.wire.request.body import ResponseRequest
from holodeck.gateway.wire.request.input import list_calls_without_result, list_references, resolve_entries
from holodeck.gateway.wire.request.parsed_input import ApprovalAnswer, FindItem, Input
from holodeck.gateway.wire.request.sealed_input import SealedInput
from holodeck.lib.limits import DEFAULT_CONTEXT_BYTES, MAX_CONTEXT_DEPTH
from holodeck.lib.types import record
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item
from holodeck.models.items_json import decode_item, decode_items, encode_item
from holodeck.storage.base import UNFINISHED_STATUSES, ConversationContents, ResponseStore

# Of one request.
MAX_REFERENCES = 64


@record
class Continuation:
    """Where a request starts from."""

    context: tuple[Item, ...]
    decisions: ApprovalDecisions
    listed_servers: frozenset[str]
    size: int = 0
    """The bytes of all that came before."""
    targets: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """The server and the tool of each call that waited."""
    inline_outputs: tuple[FunctionCallOutput, ...] = ()
    """What the model is told of calls that stand in the input of the request itself: see `Continuation.apply_to`."""
    is_stored: bool = True
    """False when what came before is in no chain of responses: it is a conversation's, or a connection remembers it."""
    calls_with_caller_credentials: frozenset[str] = frozenset()
    """The ids of calls that run only with credentials that the caller brings."""
    calls_with_unknown_outcome: frozenset[str] = frozenset()
    """The ids of calls that waited and may have been run by somebody who died; they are not run again."""
    conversation_to_lease: ConversationContents | None = None
    """The conversation from which the response must take what waits in it."""
    paused_calls: tuple[FunctionCall, ...] = ()
    """The calls of a turn that paused, some of which the client has sent again without having seen the others."""
    client_items: tuple[Item, ...] = ()
    """What the client sent, when that is all there is: it may not send back what is done here."""

    @property
    def calls_to_claim(self) -> tuple[FunctionCall, ...]:
        """The calls that the response must take before it goes on with them."""
        return tuple(call for call in self.decisions.run if call.call_id not in self.calls_with_unknown_outcome)

    def apply_to(self, request: ResponseRequest) -> None:
        """Put what the client did not see into the request's own input, and what was decided behind its calls."""
        if self.context and any(isinstance(item, FunctionCall) for item in request.input.items):
            request.input.items = without_resent_calls(request.input.items, self.context)
        insert_paused_calls(request.input, self.paused_calls)
        insert_outputs(request.input, self.inline_outputs)

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON can say it."""
        return {
            "items": [encode_item(item) for item in self.context],
            "run": [encode_item(call) for call in self.decisions.run],
            "approved": sorted(self.decisions.approved),
            "refused": [encode_item(output) for output in self.decisions.refused],
            "in_place": [encode_item(output) for output in self.inline_outputs],
            "listed": sorted(self.listed_servers),
            "places": dict(self.targets),
            "unknown": sorted(self.calls_with_unknown_outcome),
            "is_stored": self.is_stored,
            "turn": [encode_item(call) for call in self.paused_calls],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Continuation:
        """The other way round."""
        decided = ApprovalDecisions(
            run=_decode_calls(data["run"]),
            approved=frozenset(data["approved"]),
            refused=_decode_outputs(data["refused"]),
        )
        return cls(
            context=tuple(decode_item(entry) for entry in data["items"]),
            decisions=decided,
            listed_servers=frozenset(data["listed"]),
            targets=targets_from_json(data["places"]),
            inline_outputs=_decode_outputs(data["in_place"]),
            calls_with_unknown_outcome=frozenset(data.get("unknown", ())),
            is_stored=data.get("is_stored", True),
            paused_calls=_decode_calls(data.get("turn", ())),
        )


class ContinuationResolver:
    """Finds what a request refers to, as its own caller."""

    def __init__(self, store: ResponseStore, seal_keys: SealKeys, *, max_bytes: int = DEFAULT_CONTEXT_BYTES) -> None:
        """`max_bytes`: bytes that may come before a request."""
        self._store = store
        self._seal_keys = seal_keys
        self._max_bytes = max_bytes
        self.conversations = ConversationState(store, max_bytes=max_bytes)
        self.claims = CallClaims(store)
        self.pending_call_cache = PendingCallCache()
        self.tool_history = ToolHistoryCache()

    async def resolve(
        self, request: ResponseRequest, caller: Caller, socket_history: SocketHistory | None = None
    ) -> Continuation:
        """The context of a request. Raises when it does not exist, is not finished, or is not answered."""
        items: tuple[Item, ...] = ()
        given: tuple[Item, ...] = ()
        turn: tuple[FunctionCall, ...] = ()
        waiting, is_stored, is_in_input, size = pending_calls_of(request.input), True, False, 0
        standing = ConversationContext()
        known = socket_history.get(request.previous_response_id or "") if socket_history is not None else None
        if known is None and request.previous_response_id is not None:
            known = await self.require_response_context(request.previous_response_id, caller, request.input.sealed)
        if known is not None:
            items, waiting, is_stored, size = known.items, known.pending, known.is_stored, known.size
            opened = request.input.sealed.size if request.input.sealed is not None else 0
            check_context_size(size + opened, self._max_bytes, "previous_response_id")
        elif request.conversation_id is not None:
            standing = await self.conversations.read(request.conversation_id, request.input, caller)
            items, waiting, size = standing.items, standing.pending, standing.size
        else:
            is_in_input = True
            given = tuple(request.input.items)
            request.input.items = self.tool_history.restore_calls(caller.id, given)
            waiting, turn = await self._match_paused_turn(request.input, waiting, caller)
        answers = (*standing.approvals, *request.input.approvals)
        decided = await self._decide_calls(waiting, answers, standing.calls_with_unknown_outcome, caller)
        in_place: tuple[FunctionCallOutput, ...] = ()
        if decided.refused and is_in_input:
            in_place, decided = decided.refused, replace(decided, refused=())
        before = Continuation(
            context=(*items, *decided.refused),
            decisions=decided,
            listed_servers=waiting.listed_servers | set(request.input.tool_lists),
            size=size,
            targets=waiting.targets,
            inline_outputs=in_place,
            is_stored=is_stored,
            calls_with_caller_credentials=waiting.calls_with_caller_credentials,
            calls_with_unknown_outcome=standing.calls_with_unknown_outcome,
            conversation_to_lease=standing.to_lease,
            paused_calls=turn,
            client_items=given,
        )
        before.apply_to(request)
        check_answered((*before.context, *request.input.items), pending=decided.run)
        return before

    async def _decide_calls(
        self,
        pending: PendingCalls,
        answers: Sequence[ApprovalAnswer],
        calls_with_unknown_outcome: Collection[str],
        caller: Caller,
    ) -> ApprovalDecisions:
        """What happens to calls that wait. Of those that another response has taken, the model hears what came."""
        if not pending.calls:
            return decide_calls((), (), answers)
        known = await self.claims.read_stored_calls(pending, caller.id)
        lost = {approval_id(call) for call in pending.calls if call.call_id in calls_with_unknown_outcome}
        taken = {
            request_id: call.claimed_by
            for request_id, call in known.items()
            if call.claimed_by is not None and request_id not in lost
        }

        def is_genuine(request_id: str) -> bool:
            brought = pending.client_digests.get(request_id)
            return brought is None or (request_id in known and known[request_id].digest == brought)

        decided = decide_calls(pending.calls, pending.needs_approval, answers, claimed_by=taken, is_genuine=is_genuine)
        if calls_with_unknown_outcome:
            decided = _move_unknown_to_run(decided, pending.calls, calls_with_unknown_outcome)
        over = [
            await self.claims.find_outcome(call, taken[approval_id(call)], caller.id)
            or error_output(call, CLAIMED_ELSEWHERE)
            for call in pending.calls
            if approval_id(call) in taken
        ]
        if not over:
            return decided
        ids = {output.call_id for output in over}
        return replace(
            decided,
            run=tuple(call for call in decided.run if call.call_id not in ids),
            refused=(*(output for output in decided.refused if output.call_id not in ids), *over),
        )

    async def build_abandoned_outputs(self, pending: PendingCalls, caller: Caller) -> tuple[FunctionCallOutput, ...]:
        """What a model is told of calls that nobody goes on with after this."""
        known = await self.claims.read_stored_calls(pending, caller.id)
        outputs = []
        for call in pending.calls:
            found = known.get(approval_id(call))
            taker = None if found is None else found.claimed_by
            came = None if taker is None else await self.claims.find_outcome(call, taker, caller.id)
            outputs.append(came or error_output(call, NOT_RUN if taker is None else CLAIMED_ELSEWHERE))
        return tuple(outputs)

    async def _match_paused_turn(
        self, read: Input, pending: PendingCalls, caller: Caller
    ) -> tuple[PendingCalls, tuple[FunctionCall, ...]]:
        """What waits in an input, with the turn that paused if the client has sent one again to answer its part."""
        async for kept in self._read_paused_turns(read, caller):
            turn = match_resent_calls(read, kept.paused_calls, pending=kept.calls, hidden=kept.unseen_calls)
            if turn:
                calls = tuple(call for call in kept.calls if call in turn)
                own = {approval_id(call) for call in calls}
                rest = tuple(call for call in pending.calls if approval_id(call) not in own)
                asks = {call.call_id for call in calls if call.call_id in kept.needs_approval}
                asks |= {call.call_id for call in rest}
                places = {**pending.targets, **kept.targets}
                return replace(
                    pending,
                    calls=(*calls, *rest),
                    needs_approval=frozenset(asks),
                    targets=places,
                    calls_with_caller_credentials=kept.calls_with_caller_credentials,
                ), turn
        return pending, ()

    async def _read_paused_turns(self, read: Input, caller: Caller) -> AsyncIterator[PendingCalls]:
        """What waits in the responses to which an input may go back. Raises when that is gone, and the input has
        nothing of it: the model would never hear of its own calls, or make those again that have been run.
        """
        for key, called in find_paused_turn_keys(read).items():
            for response_id in await self._store.find_paused_responses(caller.id, key):
                record = await self._store.get(response_id, caller.id)
                kept = self.pending_call_cache.find(caller.id, response_id)
                if record is not None:
                    yield PendingCalls.decode(record.pending)
                elif kept is not None:
                    yield kept
                elif not has_model_output_after(read, called):
                    has_id = called.id not in read.generated_ids
                    if await self.claims.detect_unseen_calls(response_id, called, caller.id, has_id=has_id):
                        raise _paused_turn_gone_error(response_id, called)

    async def build_item_lookup(self, body: object, caller: Caller) -> FindItem:
        """Finds the items that a body only refers to, or sends in part, in what its caller has stored."""
        given = body.get("input") if isinstance(body, dict) else None
        ids = set(list_references(given))
        if len(ids) > MAX_REFERENCES:
            message = f"Invalid 'input': at most {MAX_REFERENCES} items may be referred to."
            raise APIError(400, message, kind="invalid_request", code="array_above_max_length", param="input")
        if room := MAX_REFERENCES - len(ids):
            ids.update(list_calls_without_result(given)[-room:])
        items: dict[str, dict[str, Any]] = {}
        size = 0
        for item_id in ids:
            kept = await self._store.find_item(item_id, caller.id)
            if kept is not None:
                size += len(kept.data)
                check_context_size(size, self._max_bytes, "input")
                items[item_id] = orjson.loads(kept.data)
        if ids - items.keys():
            await self._find_in_responses(ids - items.keys(), items, caller)
        return items.get

    async def open_sealed(
        self, body: object, find: FindItem, caller: Caller, acquire: Callable[[int], None]
    ) -> SealedInput:
        """Open the sealed items of a body, and of what it refers to. Raises; see `SealedInput.open`."""
        sealed = SealedInput(self._seal_keys.for_caller(caller.id), max_bytes=self._max_bytes, acquire=acquire)
        await sealed.open(resolve_entries(body, find), param="input")
        return sealed

    async def _find_in_responses(self, ids: Collection[str], items: dict[str, dict[str, Any]], caller: Caller) -> None:
        """Add those items that stand in a response, as far as responses are searched."""
        for resource, input_items in await self._store.find_responses_containing(ids, caller.id):
            for item in (*orjson.loads(resource)["output"], *orjson.loads(input_items)):
                if item.get("id") in ids:
                    items.setdefault(item["id"], item)

    async def require_response_context(
        self, response_id: str, caller: Caller, sealed: SealedInput | None
    ) -> ResponseContext:
        """All up to a stored response, and what waits in it. Raises when it is not there, or too much."""
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
        items, waiting = (
            tuple(item for part in chain for item in decode_items(part)),
            PendingCalls.decode(record.pending),
        )
        if record.conversation_id is not None:
            items = await self.conversations.read_at(record, items, waiting, caller, sealed)
        is_chain = record.conversation_id is None
        return ResponseContext(
            items=tuple(without_orphan_outputs(items)), size=size, pending=waiting, is_stored=is_chain
        )


def _move_unknown_to_run(
    decisions: ApprovalDecisions, calls: Sequence[FunctionCall], calls_with_unknown_outcome: Collection[str]
) -> ApprovalDecisions:
    """Calls that somebody may have run are not refused, whatever is said of them now: the model hears the truth."""
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
