"""Conversations as requests go on in them: what waits there is gone on with by one response, and by no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any
from weakref import WeakValueDictionary

import orjson

from holodeck.gateway.callers import Caller
from holodeck.gateway.problems import WireError, not_found
from holodeck.gateway.waiting import Waiting, waiting_in
from holodeck.gateway.wire.approvals import close_past
from holodeck.gateway.wire.context import with_calls
from holodeck.gateway.wire.ids import approval_id
from holodeck.gateway.wire.input import read_input
from holodeck.gateway.wire.paused import check_new, drop, pass_over, restore
from holodeck.gateway.wire.reading import ApprovalAnswer, Input
from holodeck.gateway.wire.request import ResponseRequest
from holodeck.gateway.wire.sealed_input import SealedInput
from holodeck.lib.record import record
from holodeck.models.items import Item
from holodeck.storage.store import UNFINISHED, ConversationItem, ResponseStore, StoredResponse, Thread

_MAX_CONVERSATION = 10_000


@record
class Standing:
    """Where a conversation stands for one request."""

    items: tuple[Item, ...] = ()
    size: int = 0
    """Their bytes."""
    waiting: Waiting = field(default_factory=Waiting)
    approvals: tuple[ApprovalAnswer, ...] = ()
    """Answers that were added to the conversation without a request."""
    unknown: frozenset[str] = frozenset()
    """The ids of calls that a response had taken whose gateway died: they may have been run."""
    to_take: Thread | None = None
    """Whoever goes on from here must take this first, because something waits in it."""


class Hold:
    """What waits in a conversation is one response's. Forgotten, it is not: a run that never begins lets go of it."""

    def __init__(self, conversation_id: str, response_id: str) -> None:
        self.conversation_id = conversation_id
        self.response_id = response_id


class Threads:
    """The conversations of all callers, as responses use them."""

    def __init__(self, store: ResponseStore, *, most: int) -> None:
        """`most`: bytes of a conversation that are read for a request."""
        self._most = most
        self._store = store
        self._holds: WeakValueDictionary[str, Hold] = WeakValueDictionary()

    async def standing(self, conversation_id: str, asked: Input, caller: Caller) -> Standing:
        """What a request finds. Raises when it is not there, or another response goes on with what waits in it."""
        thread = await self._store.thread(conversation_id, caller.id, limit=_MAX_CONVERSATION + 1, most=self._most)
        if thread is None:
            raise not_found("Conversation", conversation_id)
        size = sum(len(item.data) for item in thread.items)
        check_size(size, self._most, "conversation")
        if len(thread.items) > _MAX_CONVERSATION:
            raise too_long(f"the conversation has more than {_MAX_CONVERSATION} items", "conversation")
        if thread.taken_by is not None and await self._is_held(thread, caller):
            raise _locked(thread.taken_by)
        read = await _read(thread.items, asked.sealed, "conversation")
        check_new(read, asked, {item.id for item in thread.items})
        found = _stand(read, Waiting() if thread.waiting is None else Waiting.decode(thread.waiting), asked, thread)
        return replace(found, items=tuple(with_calls(read.items)), size=size)

    async def up_to(
        self,
        record: StoredResponse,
        own: tuple[Item, ...],
        waiting: Waiting,
        caller: Caller,
        sealed: SealedInput | None,
    ) -> tuple[Item, ...]:
        """A conversation as it stood when a response had ended, which left `waiting`.

        A response that is not in it, because it failed at once or was deleted there, stands at the end with its `own`.
        """
        found = await self._store.thread(
            str(record.conversation_id), caller.id, limit=_MAX_CONVERSATION + 1, most=self._most
        )
        listed = found.items if found is not None else ()
        ids = {item["id"] for item in (*orjson.loads(record.input_items), *orjson.loads(record.resource)["output"])}
        last = max((index for index, item in enumerate(listed) if item.id in ids), default=-1)
        check_size(sum(len(item.data) for item in listed[: last + 1] or listed), self._most, "previous_response_id")
        if last < 0 and len(listed) > _MAX_CONVERSATION:
            raise too_long(f"its conversation has more than {_MAX_CONVERSATION} items", "previous_response_id")
        is_there = last >= 0
        read = await _read(listed[: last + 1] if is_there else listed, sealed, "previous_response_id")
        turn = restore(read, waiting.turn, waiting.hidden) if is_there else ()
        close_past(read)
        after = Input() if is_there else Input(items=list(own))
        pass_over(read, after, turn=turn, waiting={call.call_id for call in (*waiting.calls, *read.waiting)})
        return (*read.items, *after.items)

    def hold(self, conversation_id: str, response_id: str) -> Hold:
        """What a response has to keep for as long as it has something taken."""
        hold = Hold(conversation_id, response_id)
        self._holds[response_id] = hold
        return hold

    async def take(self, hold: Hold, seen: Thread, caller: Caller) -> bool:
        """Take what waits for a response. False: the conversation has changed since it was seen."""
        return await self._store.take(hold.conversation_id, caller.id, seen, hold.response_id)

    async def give_back(self, hold: Hold, caller: Caller) -> None:
        """The response was not begun; it may not have come to taking anything."""
        await self._store.give_back(hold.conversation_id, caller.id, hold.response_id)

    def forget(self, hold: Hold) -> None:
        """Nobody goes on with what a response has taken. An error of storage may keep a hold alive for long."""
        self._holds.pop(hold.response_id, None)

    async def extend(
        self, request: ResponseRequest, output: Sequence[dict[str, Any]], waiting: Waiting, caller: Caller, by: str
    ) -> None:
        """Add a finished response to its conversation, once, with the calls that wait in it now."""
        conversation_id = str(request.conversation_id)
        shown = [*request.input.shown, *output]
        if shown and await self._store.item(conversation_id, caller.id, shown[-1]["id"]) is not None:
            return
        items = [ConversationItem(id=item["id"], data=orjson.dumps(item)) for item in shown]
        left = waiting.encode() if waiting.calls else None
        await self._store.add_items(conversation_id, caller.id, items, by=by, waiting=left)

    async def _is_held(self, thread: Thread, caller: Caller) -> bool:
        """Whether the response that has taken what waits is still being made, here or elsewhere."""
        taker = thread.taken_by or ""
        record = await self._store.get(taker, caller.id)
        if record is not None:
            return record.status in UNFINISHED
        return taker in self._holds if thread.is_taken_here else thread.is_taker_there


async def _read(items: Sequence[ConversationItem], sealed: SealedInput | None, param: str) -> Input:
    if not items:
        return Input()
    entries = [orjson.loads(item.data) for item in items]
    if sealed is not None:
        await sealed.open(entries, param=param, beside=sum(len(item.data) for item in items))
    return read_input(entries, sealed=sealed)


def _stand(read: Input, kept: Waiting, asked: Input, thread: Thread) -> Standing:
    """Put what waits into what was read, and settle what does not wait any more."""
    turn = restore(read, kept.turn, kept.hidden)
    kept = replace(kept, calls=tuple(call for call in kept.calls if call in turn))
    requests = {approval_id(call) for call in kept.calls if call.call_id in kept.asks}
    approvals = tuple(answer for answer in read.approvals if answer.request_id in requests)
    close_past(read)
    other = waiting_in(read)
    calls = (*kept.calls, *other.calls)
    left = pass_over(read, asked, turn=turn, waiting={call.call_id for call in calls})
    unknown = frozenset(call.call_id for call in kept.calls) if thread.taken_by is not None else frozenset()
    if not unknown and any(call.call_id in left for call in turn):
        drop(read, kept.hidden, [call for call in kept.calls if call.call_id in kept.asks])
        kept, calls, approvals = Waiting(), other.calls, ()
    return Standing(
        waiting=Waiting(
            calls=calls,
            asks=other.asks | {call.call_id for call in kept.calls if call.call_id in kept.asks},
            listed=other.listed,
            places={**other.places, **kept.places},
            own=kept.own,
            brought=other.brought,
        ),
        approvals=approvals,
        unknown=unknown,
        to_take=thread if turn or other.calls else None,
    )


def _locked(taker: str) -> WireError:
    message = f"The response {taker} is going on with the calls that waited in this conversation. Try again later."
    return WireError(400, message, kind="invalid_request", code="conversation_locked", param="conversation")


def changed() -> WireError:
    """For a conversation that others change faster than a request can go on in it."""
    message = "Other requests are changing this conversation at this moment. Try again later."
    return WireError(400, message, kind="invalid_request", code="conversation_locked", param="conversation")


def check_size(size: int, most: int, param: str) -> None:
    """Refuse what is too many bytes; nobody has read more of it."""
    if size > most:
        raise too_long(f"all that comes before is more than {most} bytes", param)


def too_long(reason: str, param: str) -> WireError:
    """Nothing is ever left out of a context in silence."""
    message = f"The context is too long: {reason}. Fold an earlier part of it with /v1/responses/compact."
    return WireError(400, message, kind="invalid_request", code="context_too_long", param=param)
