"""Conversations as requests go on in them: what waits there is gone on with by one response, and by no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any
from weakref import WeakValueDictionary

import orjson

from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.continuation.approvals import resolve_past_requests
from holodeck.gateway.continuation.call_outputs import without_orphan_outputs
from holodeck.gateway.continuation.paused_turns import (
    abandon_pending_calls,
    answer_skipped_calls,
    refuse_duplicates,
    restore_calls,
)
from holodeck.gateway.continuation.pending_calls import PendingCalls, pending_calls_of
from holodeck.gateway.http.errors import APIError, not_found_error
from holodeck.gateway.wire.item_ids import approval_id
from holodeck.gateway.wire.request.body import ResponseRequest
from holodeck.gateway.wire.request.input import read_input
from holodeck.gateway.wire.request.parsed_input import ApprovalAnswer, Input
from holodeck.gateway.wire.request.sealed_input import SealedInput
from holodeck.lib.types import record
from holodeck.models.items import Item
from holodeck.storage.base import (
    UNFINISHED_STATUSES,
    ConversationContents,
    ConversationItem,
    ResponseStore,
    StoredResponse,
)

_MAX_CONVERSATION_ITEMS = 10_000


@record
class ConversationContext:
    """Where a conversation stands for one request."""

    items: tuple[Item, ...] = ()
    size: int = 0
    """Their bytes."""
    pending: PendingCalls = field(default_factory=PendingCalls)
    approvals: tuple[ApprovalAnswer, ...] = ()
    """Answers that were added to the conversation without a request."""
    calls_with_unknown_outcome: frozenset[str] = frozenset()
    """The ids of calls that a response had taken whose gateway died: they may have been run."""
    to_lease: ConversationContents | None = None
    """Whoever goes on from here must take this first, because something waits in it."""


class ConversationLease:
    """What waits in a conversation is one response's. Forgotten, it is not: a run that never begins lets go of it."""

    def __init__(self, conversation_id: str, response_id: str) -> None:
        self.conversation_id = conversation_id
        self.response_id = response_id


class ConversationState:
    """The conversations of all callers, as responses use them."""

    def __init__(self, store: ResponseStore, *, max_bytes: int) -> None:
        """`max_bytes`: bytes of a conversation that are read for a request."""
        self._max_bytes = max_bytes
        self._store = store
        self._leases: WeakValueDictionary[str, ConversationLease] = WeakValueDictionary()

    async def read(self, conversation_id: str, request_input: Input, caller: Caller) -> ConversationContext:
        """What a request finds. Raises when it is not there, or another response goes on with what waits in it."""
        thread = await self._store.read_conversation(
            conversation_id, caller.id, limit=_MAX_CONVERSATION_ITEMS + 1, max_bytes=self._max_bytes
        )
        if thread is None:
            raise not_found_error("Conversation", conversation_id)
        size = sum(len(item.data) for item in thread.items)
        check_context_size(size, self._max_bytes, "conversation")
        if len(thread.items) > _MAX_CONVERSATION_ITEMS:
            raise context_too_long_error(
                f"the conversation has more than {_MAX_CONVERSATION_ITEMS} items", "conversation"
            )
        if thread.leased_by is not None and await self._check_lease_is_live(thread, caller):
            raise _conversation_locked_error(thread.leased_by)
        read = await _parse_conversation_items(thread.items, request_input.sealed, "conversation")
        refuse_duplicates(read, request_input, {item.id for item in thread.items})
        found = _build_conversation_context(
            read,
            PendingCalls() if thread.pending_calls is None else PendingCalls.decode(thread.pending_calls),
            request_input,
            thread,
        )
        return replace(found, items=tuple(without_orphan_outputs(read.items)), size=size)

    async def read_at(
        self,
        record: StoredResponse,
        own_items: tuple[Item, ...],
        pending: PendingCalls,
        caller: Caller,
        sealed: SealedInput | None,
    ) -> tuple[Item, ...]:
        """A conversation as it stood when a response had ended, which left `pending`.

        A response that is not in it, because it failed at once or was deleted there, stands at the end with its
        `own_items`.
        """
        found = await self._store.read_conversation(
            str(record.conversation_id), caller.id, limit=_MAX_CONVERSATION_ITEMS + 1, max_bytes=self._max_bytes
        )
        listed = found.items if found is not None else ()
        ids = {item["id"] for item in (*orjson.loads(record.input_items), *orjson.loads(record.resource)["output"])}
        last = max((index for index, item in enumerate(listed) if item.id in ids), default=-1)
        check_context_size(
            sum(len(item.data) for item in listed[: last + 1] or listed), self._max_bytes, "previous_response_id"
        )
        if last < 0 and len(listed) > _MAX_CONVERSATION_ITEMS:
            raise context_too_long_error(
                f"its conversation has more than {_MAX_CONVERSATION_ITEMS} items", "previous_response_id"
            )
        is_there = last >= 0
        read = await _parse_conversation_items(
            listed[: last + 1] if is_there else listed, sealed, "previous_response_id"
        )
        turn = restore_calls(read, pending.paused_calls, pending.unseen_calls) if is_there else ()
        resolve_past_requests(read)
        after = Input() if is_there else Input(items=list(own_items))
        answer_skipped_calls(
            read, after, paused_calls=turn, pending_ids={call.call_id for call in (*pending.calls, *read.pending_calls)}
        )
        return (*read.items, *after.items)

    def lease(self, conversation_id: str, response_id: str) -> ConversationLease:
        """What a response has to keep for as long as it has something taken."""
        hold = ConversationLease(conversation_id, response_id)
        self._leases[response_id] = hold
        return hold

    async def acquire(self, lease: ConversationLease, seen: ConversationContents, caller: Caller) -> bool:
        """Take what waits for a response. False: the conversation has changed since it was seen."""
        return await self._store.lease_conversation(lease.conversation_id, caller.id, seen, lease.response_id)

    async def release(self, lease: ConversationLease, caller: Caller) -> None:
        """The response was not begun; it may not have come to taking anything."""
        await self._store.release_conversation(lease.conversation_id, caller.id, lease.response_id)

    def discard(self, lease: ConversationLease) -> None:
        """Nobody goes on with what a response has taken. An error of storage may keep a hold alive for long."""
        self._leases.pop(lease.response_id, None)

    async def append_response(
        self,
        request: ResponseRequest,
        output: Sequence[dict[str, Any]],
        pending: PendingCalls,
        caller: Caller,
        response_id: str,
    ) -> None:
        """Add a finished response to its conversation, once, with the calls that wait in it now."""
        conversation_id = str(request.conversation_id)
        shown = [*request.input.wire_items, *output]
        if shown and await self._store.get_item(conversation_id, caller.id, shown[-1]["id"]) is not None:
            return
        items = [ConversationItem(id=item["id"], data=orjson.dumps(item)) for item in shown]
        left = pending.encode() if pending.calls else None
        await self._store.add_items(conversation_id, caller.id, items, response_id=response_id, pending_calls=left)

    async def _check_lease_is_live(self, thread: ConversationContents, caller: Caller) -> bool:
        """Whether the response that has taken what waits is still being made, here or elsewhere."""
        taker = thread.leased_by or ""
        record = await self._store.get(taker, caller.id)
        if record is not None:
            return record.status in UNFINISHED_STATUSES
        return taker in self._leases if thread.is_leased_here else thread.is_leaseholder_alive


async def _parse_conversation_items(items: Sequence[ConversationItem], sealed: SealedInput | None, param: str) -> Input:
    if not items:
        return Input()
    entries = [orjson.loads(item.data) for item in items]
    if sealed is not None:
        await sealed.open(entries, param=param, other_bytes=sum(len(item.data) for item in items))
    return read_input(entries, sealed=sealed)


def _build_conversation_context(
    read: Input, pending: PendingCalls, request_input: Input, thread: ConversationContents
) -> ConversationContext:
    """Put what waits into what was read, and settle what does not wait any more."""
    turn = restore_calls(read, pending.paused_calls, pending.unseen_calls)
    pending = replace(pending, calls=tuple(call for call in pending.calls if call in turn))
    requests = {approval_id(call) for call in pending.calls if call.call_id in pending.needs_approval}
    approvals = tuple(answer for answer in read.approvals if answer.request_id in requests)
    resolve_past_requests(read)
    other = pending_calls_of(read)
    calls = (*pending.calls, *other.calls)
    left = answer_skipped_calls(read, request_input, paused_calls=turn, pending_ids={call.call_id for call in calls})
    unknown = frozenset(call.call_id for call in pending.calls) if thread.leased_by is not None else frozenset()
    if not unknown and any(call.call_id in left for call in turn):
        abandon_pending_calls(
            read, pending.unseen_calls, [call for call in pending.calls if call.call_id in pending.needs_approval]
        )
        pending, calls, approvals = PendingCalls(), other.calls, ()
    return ConversationContext(
        pending=PendingCalls(
            calls=calls,
            needs_approval=other.needs_approval
            | {call.call_id for call in pending.calls if call.call_id in pending.needs_approval},
            listed_servers=other.listed_servers,
            targets={**other.targets, **pending.targets},
            calls_with_caller_credentials=pending.calls_with_caller_credentials,
            client_digests=other.client_digests,
        ),
        approvals=approvals,
        calls_with_unknown_outcome=unknown,
        to_lease=thread if turn or other.calls else None,
    )


def _conversation_locked_error(taker: str) -> APIError:
    message = f"The response {taker} is going on with the calls that waited in this conversation. Try again later."
    return APIError(400, message, kind="invalid_request", code="conversation_locked", param="conversation")


def conversation_changing_error() -> APIError:
    """For a conversation that others change faster than a request can go on in it."""
    message = "Other requests are changing this conversation at this moment. Try again later."
    return APIError(400, message, kind="invalid_request", code="conversation_locked", param="conversation")


def check_context_size(size: int, max_bytes: int, param: str) -> None:
    """Refuse what is too many bytes; nobody has read more of it."""
    if size > max_bytes:
        raise context_too_long_error(f"all that comes before is more than {max_bytes} bytes", param)


def context_too_long_error(reason: str, param: str) -> APIError:
    """Nothing is ever left out of a context in silence."""
    message = f"The context is too long: {reason}. Fold an earlier part of it with /v1/responses/compact."
    return APIError(400, message, kind="invalid_request", code="context_too_long", param=param)
