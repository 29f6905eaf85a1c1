"""Calls that wait are gone on with once: one response takes them, and whoever comes later hears what came of it."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Collection, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Any

import orjson

from holodeck.gateway.continuation.approvals import approval_used_message, call_digest
from holodeck.gateway.http.errors import APIError
from holodeck.gateway.wire.item_ids import approval_id, is_unique
from holodeck.gateway.wire.request.parsed_input import Input
from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.lib.types import record
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, output_id
from holodeck.models.items_json import decode_items, encode_items
from holodeck.storage.base import UNFINISHED_STATUSES, PendingCall, ResponseStore

CallTargets = Mapping[str, tuple[str, str]]
_NO_PENDING_CALLS = b'{"calls":"[]","asks":[],"listed":[],"places":{}}'


@record
class PendingCalls:
    """Calls that were not run, and the ids of those that a person must approve. Kept, not guessed."""

    calls: tuple[FunctionCall, ...] = ()
    needs_approval: frozenset[str] = frozenset()
    listed_servers: frozenset[str] = frozenset()
    """The labels of servers whose tools the client has seen in this chain of responses."""
    targets: CallTargets = field(default_factory=dict)
    """The server and the tool of each call. A name alone may lead elsewhere when other servers are there as well."""
    calls_with_caller_credentials: frozenset[str] = frozenset()
    """The ids of calls for which the caller brought credentials of its own: they run with nobody else's."""
    paused_calls: tuple[FunctionCall, ...] = ()
    """All calls of the turn that paused, in its order, the client's own among them."""
    client_digests: Mapping[str, bytes] = field(default_factory=dict)
    """Digests, by their ids, of requests for approval that the client has sent along. Never kept."""

    @property
    def unseen_calls(self) -> tuple[FunctionCall, ...]:
        """Those that the client has not seen in any form."""
        return tuple(call for call in self.calls if call.call_id not in self.needs_approval)

    def encode(self) -> bytes:
        if not (self.calls or self.listed_servers or self.targets):
            return _NO_PENDING_CALLS
        plain: dict[str, Any] = {
            "calls": encode_items(self.calls).decode(),
            "asks": sorted(self.needs_approval),
            "listed": sorted(self.listed_servers),
            "places": dict(self.targets),
        }
        if self.calls_with_caller_credentials:
            plain["own"] = sorted(self.calls_with_caller_credentials)
        if self.paused_calls:
            plain["turn"] = encode_items(self.paused_calls).decode()
        return orjson.dumps(plain)

    @classmethod
    def decode(cls, data: bytes) -> PendingCalls:
        plain: Any = orjson.loads(data)
        if not isinstance(plain, dict):
            return cls()
        return cls(
            calls=_only_calls(decode_items(plain["calls"].encode())),
            needs_approval=frozenset(plain["asks"]),
            listed_servers=frozenset(plain["listed"]),
            targets=targets_from_json(plain.get("places", {})),
            calls_with_caller_credentials=frozenset(plain.get("own", ())),
            paused_calls=_only_calls(decode_items(plain.get("turn", "[]").encode())),
        )


def pending_calls_of(read: Input) -> PendingCalls:
    """The calls whose requests for approval were read, and have no answer yet."""
    asks = frozenset(call.call_id for call in read.pending_calls)
    return PendingCalls(
        calls=tuple(read.pending_calls),
        needs_approval=asks,
        listed_servers=frozenset(read.tool_lists),
        targets=dict(read.targets),
        client_digests={
            approval_id(call): call_digest(read.targets[call.call_id], call) for call in read.pending_calls
        },
    )


def targets_from_json(data: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """From JSON, which has lists for pairs."""
    return {call_id: (label, tool) for call_id, (label, tool) in data.items()}


def _only_calls(items: list[Item] | tuple[Item, ...]) -> tuple[FunctionCall, ...]:
    return tuple(item for item in items if isinstance(item, FunctionCall))


class CallClaim:
    """The calls that one response has taken. Forgotten before its run has ended, it gives back what did not begin."""

    def __init__(self, caller_id: str, response_id: str, approval_ids: Mapping[str, str]) -> None:
        """`approval_ids`: by the ids of the calls, those of their requests for approval."""
        self.caller_id = caller_id
        self.response_id = response_id
        self.approval_ids = approval_ids
        self.started: set[str] = set()
        """The ids of calls that may have reached their tools."""
        self.finalizer: weakref.finalize[..., CallClaim] | None = None


class CallClaims:
    """What waits for a person or a client, of all callers."""

    def __init__(self, store: ResponseStore) -> None:
        self._store = store
        self._release_tasks: set[asyncio.Task[None]] = set()

    async def store_pending(
        self, pending: PendingCalls, caller_id: str, response_id: str, *, is_findable: bool
    ) -> None:
        """A response leaves calls to the next one. `is_findable`: also to a client that sends all it saw again.

        Where it has calls that the client does not see, it is found by its own id as well: see `detect_unseen_calls`.
        """
        asked = [
            call for call in pending.calls if call.call_id in pending.needs_approval and call.call_id in pending.targets
        ]
        digests = {approval_id(call): call_digest(pending.targets[call.call_id], call) for call in asked}
        turn: list[str] = []
        if is_findable:
            own = [call for call in pending.paused_calls if call not in pending.calls]
            turn = [call.call_id for call in own]
            if pending.unseen_calls:
                turn += [*(call.id for call in own if call.id), *(approval_id(call) for call in asked), response_id]
        if digests or turn:
            await self._store.add_pending_calls(caller_id, response_id, digests, client_call_ids=turn)

    async def detect_unseen_calls(self, response_id: str, call: FunctionCall, caller_id: str, *, has_id: bool) -> bool:
        """Whether a response had calls that its client did not see, beside this one, which came back from it.

        `has_id`: else the call is known only by the id that the model gave it, and some models number their calls.
        """
        if not await self._store.find_paused_responses(caller_id, response_id):
            return False
        if not has_id:
            return is_unique(call.call_id)
        keys = [key for key in (call.id, approval_id(call)) if key]
        return any([response_id in await self._store.find_paused_responses(caller_id, key) for key in keys])

    async def read_stored_calls(self, pending: PendingCalls, caller_id: str) -> dict[str, PendingCall]:
        """What is known of calls that wait, by the ids of their requests for approval."""
        ids = [approval_id(call) for call in pending.calls]
        return await self._store.read_pending_calls(caller_id, ids) if ids else {}

    async def find_outcome(self, call: FunctionCall, claimed_by: str, caller_id: str) -> FunctionCallOutput | None:
        """What came of a call that another response has gone on with. None: that is not known."""
        record = await self._store.get(claimed_by, caller_id)
        if record is None or record.status in UNFINISHED_STATUSES:
            return None
        outputs = [item for item in decode_items(record.items) if isinstance(item, FunctionCallOutput)]
        ids = (output_id(call), call.call_id)  # a call that a client has sent again may have another `call_id`
        found = next((item for item in outputs if item.id == ids[0] or item.call_id == ids[1]), None)
        return None if found is None else replace(found, call_id=call.call_id)

    async def claim(
        self, calls: Collection[FunctionCall], response_id: str, caller_id: str, *, approved: Collection[str] = ()
    ) -> CallClaim:
        """Take calls for a response. Raises the 400 of one that another has: SDKs do not repeat that by themselves.

        `approved`: the ids of those that a person approved.
        """
        claim = CallClaim(caller_id, response_id, {call.call_id: approval_id(call) for call in calls})
        others = await self._store.claim_calls(caller_id, claim.approval_ids.values(), response_id)
        if others and self._release_tasks:
            await asyncio.wait(self._release_tasks)
            others = await self._store.claim_calls(caller_id, claim.approval_ids.values(), response_id)
        if others:
            raise _already_claimed_error(others, {approval_id(call) for call in calls if call.call_id in approved})
        give_back = partial(self._release_abandoned, caller_id, response_id, claim.approval_ids, claim.started)
        claim.finalizer = weakref.finalize(claim, give_back)
        claim.finalizer.atexit = False
        return claim

    async def release_unstarted(self, claim: CallClaim) -> None:
        """The run has ended, or does not begin: calls that did not reach their tools are there for another."""
        left = [request_id for call_id, request_id in claim.approval_ids.items() if call_id not in claim.started]
        if left:
            await self._store.release_calls(claim.caller_id, claim.response_id, left)
        if claim.finalizer is not None:
            claim.finalizer.detach()

    def _release_abandoned(
        self, caller_id: str, response_id: str, approval_ids: Mapping[str, str], started: Collection[str]
    ) -> None:
        left = [request_id for call_id, request_id in approval_ids.items() if call_id not in started]
        if not left:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # the gateway has ended: it is not known any more whether they began
            return
        task = loop.create_task(self._release_if_not_stored(caller_id, response_id, left), name=f"return {response_id}")
        self._release_tasks.add(task)
        task.add_done_callback(self._release_tasks.discard)

    async def _release_if_not_stored(self, caller_id: str, response_id: str, approval_ids: Collection[str]) -> None:
        try:
            if await self._store.get(response_id, caller_id) is None:  # else its run is another's, or has ended
                await self._store.release_calls(caller_id, response_id, approval_ids)
        except StorageError as error:
            log.warning("gateway.storage_failed", response=response_id, error=error)


def _already_claimed_error(claimed_by: Mapping[str, str], approved: Collection[str]) -> APIError:
    """For a request that comes at the same moment as another one with the same answers."""
    for request_id, taker in claimed_by.items():
        if request_id in approved:
            return APIError(
                400, approval_used_message(request_id, taker), kind="invalid_request", code="approval_request_used"
            )
    taker = next(iter(claimed_by.values()))
    message = f"The response {taker} is going on with the calls that waited for these outputs. Try again later."
    return APIError(400, message, kind="invalid_request", code="calls_taken", param="input")
