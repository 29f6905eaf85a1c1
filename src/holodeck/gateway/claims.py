"""Calls that wait are gone on with once: one response takes them, and whoever comes later hears what came of it."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

from holodeck.gateway.problems import WireError
from holodeck.gateway.waiting import Waiting
from holodeck.gateway.wire.approvals import digest_of, used
from holodeck.gateway.wire.ids import approval_id, is_unique
from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.models.items import FunctionCall, FunctionCallOutput, output_id
from holodeck.models.items_codec import decode_items
from holodeck.storage.store import UNFINISHED, ResponseStore, WaitingCall


class Claim:
    """The calls that one response has taken. Forgotten before its run has ended, it gives back what did not begin."""

    def __init__(self, owner: str, response_id: str, ids: Mapping[str, str]) -> None:
        """`ids`: by the ids of the calls, those of their requests for approval."""
        self.owner = owner
        self.response_id = response_id
        self.ids = ids
        self.begun: set[str] = set()
        """The ids of calls that may have reached their tools."""
        self.forgotten: weakref.finalize[..., Claim] | None = None


class Claims:
    """What waits for a person or a client, of all callers."""

    def __init__(self, store: ResponseStore) -> None:
        self._store = store
        self._returning: set[asyncio.Task[None]] = set()

    async def leave(self, waiting: Waiting, owner: str, response_id: str, *, is_found: bool) -> None:
        """A response leaves calls to the next one. `is_found`: also to a client that sends all it saw again.

        Where it has calls that the client does not see, it is found by its own id as well: see `is_incomplete`.
        """
        asked = [call for call in waiting.calls if call.call_id in waiting.asks and call.call_id in waiting.places]
        digests = {approval_id(call): digest_of(waiting.places[call.call_id], call) for call in asked}
        turn: list[str] = []
        if is_found:
            own = [call for call in waiting.turn if call not in waiting.calls]
            turn = [call.call_id for call in own]
            if waiting.hidden:
                turn += [*(call.id for call in own if call.id), *(approval_id(call) for call in asked), response_id]
        if digests or turn:
            await self._store.remember_calls(owner, response_id, digests, turn=turn)

    async def is_incomplete(self, response_id: str, called: FunctionCall, owner: str, *, has_id: bool) -> bool:
        """Whether a response had calls that its client did not see, beside this one, which came back from it.

        `has_id`: else the call is known only by the id that the model gave it, and some models number their calls.
        """
        if not await self._store.paused_in(owner, response_id):
            return False
        if not has_id:
            return is_unique(called.call_id)
        keys = [key for key in (called.id, approval_id(called)) if key]
        return any([response_id in await self._store.paused_in(owner, key) for key in keys])

    async def known(self, waiting: Waiting, owner: str) -> dict[str, WaitingCall]:
        """What is known of calls that wait, by the ids of their requests for approval."""
        ids = [approval_id(call) for call in waiting.calls]
        return await self._store.waiting_calls(owner, ids) if ids else {}

    async def outcome(self, call: FunctionCall, taker: str, owner: str) -> FunctionCallOutput | None:
        """What came of a call that another response has gone on with. None: that is not known."""
        record = await self._store.get(taker, owner)
        if record is None or record.status in UNFINISHED:
            return None
        outputs = [item for item in decode_items(record.items) if isinstance(item, FunctionCallOutput)]
        ids = (output_id(call), call.call_id)  # a call that a client has sent again may have another `call_id`
        found = next((item for item in outputs if item.id == ids[0] or item.call_id == ids[1]), None)
        return None if found is None else replace(found, call_id=call.call_id)

    async def take(
        self, calls: Collection[FunctionCall], response_id: str, owner: str, *, approved: Collection[str] = ()
    ) -> Claim:
        """Take calls for a response. Raises the 400 of one that another has: SDKs do not repeat that by themselves.

        `approved`: the ids of those that a person approved.
        """
        claim = Claim(owner, response_id, {call.call_id: approval_id(call) for call in calls})
        others = await self._store.take_calls(owner, claim.ids.values(), response_id)
        if others and self._returning:
            await asyncio.wait(self._returning)
            others = await self._store.take_calls(owner, claim.ids.values(), response_id)
        if others:
            raise _taken(others, {approval_id(call) for call in calls if call.call_id in approved})
        give_back = partial(self._forgotten, owner, response_id, claim.ids, claim.begun)
        claim.forgotten = weakref.finalize(claim, give_back)
        claim.forgotten.atexit = False
        return claim

    async def settle(self, claim: Claim) -> None:
        """The run has ended, or does not begin: calls that did not reach their tools are there for another."""
        left = [request_id for call_id, request_id in claim.ids.items() if call_id not in claim.begun]
        if left:
            await self._store.return_calls(claim.owner, claim.response_id, left)
        if claim.forgotten is not None:
            claim.forgotten.detach()

    def _forgotten(self, owner: str, response_id: str, ids: Mapping[str, str], begun: Collection[str]) -> None:
        left = [request_id for call_id, request_id in ids.items() if call_id not in begun]
        if not left:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # the gateway has ended: it is not known any more whether they began
            return
        task = loop.create_task(self._return(owner, response_id, left), name=f"return {response_id}")
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    async def _return(self, owner: str, response_id: str, ids: Collection[str]) -> None:
        try:
            if await self._store.get(response_id, owner) is None:  # else its run is another's, or has ended
                await self._store.return_calls(owner, response_id, ids)
        except StorageError as error:
            log.warning("gateway.storage_failed", response=response_id, error=error)


def _taken(others: Mapping[str, str], asked: Collection[str]) -> WireError:
    """For a request that comes at the same moment as another one with the same answers."""
    for request_id, taker in others.items():
        if request_id in asked:
            return WireError(400, used(request_id, taker), kind="invalid_request", code="approval_request_used")
    taker = next(iter(others.values()))
    message = f"The response {taker} is going on with the calls that waited for these outputs. Try again later."
    return WireError(400, message, kind="invalid_request", code="calls_taken", param="input")
