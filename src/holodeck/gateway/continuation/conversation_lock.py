"""Conversations as requests continue them, and the lease that makes one response at a time continue pending calls.

`ConversationState.read` gives a request the items of its conversation and the calls that are pending in it. If there
are any, the response must lease the conversation before it builds on them: `lease` compares the stored contents with
those that were read, and fails if another request changed them. The lease is stored with the conversation; it ends when
the response is appended (`append_response`) or released (`release`).

A stored lease counts only while its response is alive: one that is stored must be unfinished, one that is not stored
must have its run in this gateway, which calls `forget_lease` at its end, or be leased by another gateway that is alive.
Calls whose lease was lost have an unknown outcome: they may have run, and are not run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

import orjson

from holodeck.gateway.api.models.compact_conversation import COMPACT_PATH
from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.continuation.approvals import resolve_past_requests
from holodeck.gateway.continuation.paused_turns import (
    abandon_pending_calls,
    answer_skipped_calls,
    refuse_duplicates,
    restore_calls,
)
from holodeck.gateway.continuation.pending_calls import PendingCalls, pending_calls_of, without_orphan_outputs
from holodeck.gateway.http.errors import APIError, not_found_error
from holodeck.gateway.wire.item_ids import approval_id
from holodeck.gateway.wire.request.body import ResponseRequest
from holodeck.gateway.wire.request.input import read_stored_items
from holodeck.gateway.wire.request.parsed_input import ApprovalAnswer, Input, SealedInput
from holodeck.lib.record import record
from holodeck.models.items import Item
from holodeck.storage.conversations import ConversationContents, ConversationItem
from holodeck.storage.responses import StoredResponse
from holodeck.storage.runs import UNFINISHED_STATUSES
from holodeck.storage.store import ResponseStore

# Items of a conversation that are read for one request; as many as a request may send as its input.
_MAX_CONVERSATION_ITEMS = 10_000


@record
class ConversationContext:
    """A conversation as one request finds it."""

    items: tuple[Item, ...] = ()
    size: int = 0
    """Bytes of the stored items."""
    pending: PendingCalls = field(default_factory=PendingCalls)
    approvals: tuple[ApprovalAnswer, ...] = ()
    """Approval answers that a client added to the conversation as items, outside of a request for a response."""
    calls_with_unknown_outcome: frozenset[str] = frozenset()
    """The ids of calls whose response leased the conversation and was lost: they may have run."""
    to_lease: ConversationContents | None = None
    """Set if calls are pending: the contents that the response must lease before it continues."""


class ConversationState:
    """Reads, leases and extends the conversations of all callers, and knows the leases of this gateway."""

    def __init__(self, store: ResponseStore, *, max_bytes: int) -> None:
        """`max_bytes`: size limit of a conversation that a request continues."""
        self._max_bytes = max_bytes
        self._store = store
        self._leaseholders: set[str] = set()
        """The ids of the responses with a lease whose runs are in this process."""

    async def read(self, conversation_id: str, request_input: Input, caller: Caller) -> ConversationContext:
        """Read a conversation for a request.

        Raises `APIError` when it does not exist, is too large, repeats items of the request, or is leased by a
        response that is alive.
        """
        conversation = await self._store.read_conversation(
            conversation_id, caller.id, limit=_MAX_CONVERSATION_ITEMS + 1, max_bytes=self._max_bytes
        )
        if conversation is None:
            raise not_found_error("Conversation", conversation_id)
        size = sum(len(item.data) for item in conversation.items)
        check_context_size(size, self._max_bytes, "conversation")
        if len(conversation.items) > _MAX_CONVERSATION_ITEMS:
            raise context_too_long_error(
                f"the conversation has more than {_MAX_CONVERSATION_ITEMS} items", "conversation"
            )
        if conversation.leased_by is not None and await self._check_lease_is_live(conversation, caller):
            raise _conversation_locked_error(conversation.leased_by)
        read = await _parse_conversation_items(conversation.items, request_input.sealed, "conversation")
        refuse_duplicates(read, request_input, {item.id for item in conversation.items})
        found = _build_conversation_context(
            read,
            PendingCalls() if conversation.pending_calls is None else PendingCalls.decode(conversation.pending_calls),
            request_input,
            conversation,
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
        """Return the items of a conversation up to the end of the response `record`, which ended with `pending`.

        A response that is not in it, because it failed at once or was deleted there, is appended with its
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
        is_listed = last >= 0
        read = await _parse_conversation_items(
            listed[: last + 1] if is_listed else listed, sealed, "previous_response_id"
        )
        turn = restore_calls(read, pending.paused_calls, pending.unseen_calls) if is_listed else ()
        resolve_past_requests(read)
        after = Input() if is_listed else Input(items=list(own_items))
        answer_skipped_calls(
            read, after, paused_calls=turn, pending_ids={call.call_id for call in (*pending.calls, *read.pending_calls)}
        )
        return (*read.items, *after.items)

    async def lease(self, conversation_id: str, seen: ConversationContents, caller: Caller, response_id: str) -> bool:
        """Lease a conversation for a response. Returns False when it has changed since `seen` was read.

        The run of the response calls `forget_lease` when it is over. When this raises, the lease may be stored.
        """
        # First: another request may read the stored lease before this one continues.
        self._leaseholders.add(response_id)
        if await self._store.lease_conversation(conversation_id, caller.id, seen, response_id):
            return True
        self.forget_lease(response_id)
        return False

    async def release(self, conversation_id: str, caller: Caller, response_id: str) -> None:
        """End the lease of a response that added nothing. Does nothing if it has none."""
        await self._store.release_conversation(conversation_id, caller.id, response_id)
        self.forget_lease(response_id)

    def forget_lease(self, response_id: str) -> None:
        """Stop to count a response as running here. A lease that is still stored then counts as lost."""
        self._leaseholders.discard(response_id)

    async def append_response(
        self,
        request: ResponseRequest,
        output: Sequence[dict[str, Any]],
        pending: PendingCalls,
        caller: Caller,
        response_id: str,
    ) -> None:
        """Append a finished response to its conversation, with the calls that it leaves pending; this ends its lease.

        Idempotent: does nothing if its last item is there already.
        """
        conversation_id = str(request.conversation_id)
        shown = [*request.input.wire_items, *output]
        if shown and await self._store.get_item(conversation_id, caller.id, shown[-1]["id"]) is not None:
            return
        items = [ConversationItem(id=item["id"], data=orjson.dumps(item)) for item in shown]
        encoded = pending.encode() if pending.calls else None
        await self._store.add_items(conversation_id, caller.id, items, response_id=response_id, pending_calls=encoded)

    async def _check_lease_is_live(self, conversation: ConversationContents, caller: Caller) -> bool:
        """Return whether the response that leases the conversation is still running, in this gateway or another."""
        response_id = conversation.leased_by or ""
        record = await self._store.get(response_id, caller.id)
        if record is not None and record.status not in UNFINISHED_STATUSES:
            return False
        if record is not None and orjson.loads(record.resource)["background"]:
            # Another gateway continues it, or ends it, if its own is gone. Others end with their gateway.
            return True
        return response_id in self._leaseholders if conversation.is_leased_here else conversation.is_leaseholder_alive


async def _parse_conversation_items(items: Sequence[ConversationItem], sealed: SealedInput | None, param: str) -> Input:
    if not items:
        return Input()
    data = b"[%b]" % b",".join([item.data for item in items])
    entries = orjson.loads(data)
    if sealed is not None:
        # Few conversations have any, and to search the bytes costs less than to ask each item.
        opened = entries if b'"encrypted_content"' in data else ()
        await sealed.open(opened, param=param, other_bytes=sum(len(item.data) for item in items))
    return read_stored_items(entries, sealed=sealed)


def _build_conversation_context(
    read: Input, pending: PendingCalls, request_input: Input, conversation: ConversationContents
) -> ConversationContext:
    """Restore the pending calls in the items that were read, and answer calls that are not pending any more."""
    turn = restore_calls(read, pending.paused_calls, pending.unseen_calls)
    pending = replace(pending, calls=tuple(call for call in pending.calls if call in turn))
    requests = {approval_id(call) for call in pending.calls if call.call_id in pending.needs_approval}
    approvals = tuple(answer for answer in read.approvals if answer.request_id in requests)
    resolve_past_requests(read)
    other = pending_calls_of(read)
    calls = (*pending.calls, *other.calls)
    skipped = answer_skipped_calls(read, request_input, paused_calls=turn, pending_ids={call.call_id for call in calls})
    unknown = frozenset(call.call_id for call in pending.calls) if conversation.leased_by is not None else frozenset()
    if not unknown and any(call.call_id in skipped for call in turn):
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
        to_lease=conversation if turn or other.calls else None,
    )


def _conversation_locked_error(response_id: str) -> APIError:
    message = (
        f"The response {response_id} is going on with the calls that waited in this conversation. Try again later."
    )
    return APIError(400, message, kind="invalid_request", code="conversation_locked", param="conversation")


def conversation_changing_error() -> APIError:
    """Return the 400 for a conversation that other requests changed during every attempt to lease it."""
    message = "Other requests are changing this conversation at this moment. Try again later."
    return APIError(400, message, kind="invalid_request", code="conversation_locked", param="conversation")


def check_context_size(size: int, max_bytes: int, param: str) -> None:
    """Refuse a context of more than `max_bytes`. Raises `APIError`."""
    if size > max_bytes:
        raise context_too_long_error(f"all that comes before is more than {max_bytes} bytes", param)


def context_too_long_error(reason: str, param: str) -> APIError:
    """Return the 400 for a context over a limit. A context is never shortened silently."""
    message = f"The context is too long: {reason}. Fold an earlier part of it with {COMPACT_PATH}."
    return APIError(400, message, kind="invalid_request", code="context_too_long", param=param)
