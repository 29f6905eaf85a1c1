"""A response in the making: a request, what came before it, the tools it may use, and how it is written and kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import orjson

from holodeck.gateway.callers import Caller, Callers
from holodeck.gateway.claims import Claim
from holodeck.gateway.continuing import Continued, Continuing
from holodeck.gateway.live_run import LiveRun
from holodeck.gateway.mcp_view import RequestServers
from holodeck.gateway.recent import Kept, Recent
from holodeck.gateway.starting import Starter
from holodeck.gateway.threads import Hold, changed
from holodeck.gateway.unasked import Unasked
from holodeck.gateway.waiting import Waiting
from holodeck.gateway.wire.context import settled
from holodeck.gateway.wire.dialects import Dialect
from holodeck.gateway.wire.past import Past
from holodeck.gateway.wire.reading import nothing_stored
from holodeck.gateway.wire.request import ResponseRequest, read_request
from holodeck.gateway.wire.seal import SealKeys
from holodeck.gateway.wire.tool_search import with_found_tools
from holodeck.gateway.wire.writer import ResponseWriter, takes_functions_for_its_own
from holodeck.lib import trace
from holodeck.lib.errors import ExecutionError, StorageError
from holodeck.lib.ids import new_id
from holodeck.lib.limits import TAKE_ATTEMPTS
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item
from holodeck.models.items_codec import encode_items
from holodeck.storage.store import UNFINISHED, ResponseStore, StoredResponse

Live = LiveRun[ResponseWriter]


class ResponseMaker:
    """Makes runs that are ready to go: new ones, and those that another process had begun."""

    def __init__(
        self,
        starter: Starter,
        store: ResponseStore,
        seal_keys: SealKeys,
        continuing: Continuing,
        *,
        callers: Callers,
        is_durable: bool,
        in_flight: Callable[[], int],
    ) -> None:
        """`is_durable`: whether background runs are kept step by step. `in_flight`: how many runs there are now."""
        self._callers = callers
        self._is_durable = is_durable
        self._in_flight = in_flight
        self._starter = starter
        self._store = store
        self._seal_keys = seal_keys
        self._continuing = continuing

    async def prepare(
        self, request: ResponseRequest, caller: Caller, recent: Recent | None = None, *, dialect: Dialect = "openai"
    ) -> Live:
        """A run with the context of what came before. `recent`: what its connection remembers."""
        self._starter.backend(request.model)
        live, _ = await self._begun(request, caller, recent, dialect=dialect)
        return live

    async def prepare_for_long(
        self, request: ResponseRequest, body: object, caller: Caller, *, dialect: Dialect
    ) -> tuple[Live, Mapping[str, Any] | None, StoredResponse]:
        """The same, and its record, with all that `revive` needs; `body` is the whole request.

        None: it has secrets, and nobody may.
        """
        self._starter.backend(request.model)
        live, before = await self._begun(request, caller, dialect=dialect)
        record = record_of(live, request, before)
        if request.has_secrets:
            return live, None, record
        given: dict[str, Any] = {"body": body, "owner": caller.id, "before": before.plain(), "dialect": dialect}
        if caller.issuer:
            given["issuer"] = caller.issuer
        if carried := trace.carrier():
            given["trace"] = dict(carried)
        return live, given, record

    async def revive(self, response_id: str, given: Mapping[str, Any]) -> Live | None:
        """A background run as it was given, with what clients have heard of it. None: it has ended, or is deleted.

        Raises `ExecutionError` when the gateway does not know its caller any more.
        """
        caller = Caller(id=given["owner"])
        record = await self._store.get(response_id, caller.id)
        if record is None or record.status not in UNFINISHED:
            return None
        if not self._callers.is_known(caller.id, given.get("issuer", "")):
            raise ExecutionError("the key of its caller was removed from the gateway.")
        # It was within the budget when it came, and is a run now, not a request.
        sealed = await self._continuing.open_sealed(given["body"], nothing_stored, caller, lambda _size: None)
        request = read_request(given["body"], sealed=sealed)
        request.input.shown[:] = orjson.loads(record.input_items)
        before = Continued.of_plain(given["before"])
        before.complete(request)
        told = await self._store.grown(response_id, caller.id) or []
        dialect = given.get("dialect", "openai")
        return await self._assemble(request, caller, before, response_id, dialect=dialect, again=record, told=told)

    async def _begun(
        self, request: ResponseRequest, caller: Caller, recent: Recent | None = None, *, dialect: Dialect
    ) -> tuple[Live, Continued]:
        """A new response that has taken what waits in its conversation, if something does."""
        if request.store and (why := self._store.refusal):  # before a model is paid and tools act for nothing
            raise StorageError(why)
        response_id, threads = new_id("resp"), self._continuing.threads
        for _ in range(TAKE_ATTEMPTS):
            before = await self._continuing.before(request, caller, recent)
            if before.to_take is None:
                return await self._claimed(request, caller, before, response_id, dialect, recent), before
            hold = threads.hold(str(request.conversation_id), response_id)
            try:
                if not await threads.take(hold, before.to_take, caller):
                    continue
                live = await self._claimed(request, caller, before, response_id, dialect, recent, hold)
            except BaseException:
                threads.forget(hold)
                await asyncio.shield(threads.give_back(hold, caller))
                raise
            return live, before
        raise changed()

    async def _claimed(
        self,
        request: ResponseRequest,
        caller: Caller,
        before: Continued,
        response_id: str,
        dialect: Dialect,
        recent: Recent | None,
        hold: Hold | None = None,
    ) -> Live:
        """A run that has taken the calls with which it begins, if there are any."""
        claim, claims = None, self._continuing.claims
        if before.to_claim:
            claim = await claims.take(before.to_claim, response_id, caller.id, approved=before.decided.approved)
        try:
            return await self._assemble(
                request, caller, before, response_id, dialect=dialect, recent=recent, hold=hold, claim=claim
            )
        except BaseException:
            if claim is not None:
                await asyncio.shield(claims.settle(claim))
            raise

    async def _assemble(
        self,
        request: ResponseRequest,
        caller: Caller,
        before: Continued,
        response_id: str,
        *,
        dialect: Dialect,
        recent: Recent | None = None,
        again: StoredResponse | None = None,
        told: Sequence[bytes] = (),
        hold: Hold | None = None,
        claim: Claim | None = None,
    ) -> Live:
        """`again`: the response whose run this is, if there is one already; `told` is its stream so far.

        `hold` and `claim` are kept for as long as the run is.
        """
        request = with_found_tools(request, chain(before.items, request.input.items))
        start = await self._starter.start(
            request,
            response_id,
            items=before.items,
            pending=before.decided.run,
            can_wait=request.store or recent is not None or request.conversation_id is not None,
            caller=caller.id,
            approved=before.decided.approved,
            places=before.places,
            own=before.own,
            unknown=before.unknown,
            can_ask=True,
        )
        if again is None:
            await start.servers.check_required()
        if claim is not None:
            start.servers.begun = claim.begun
        output = self._starter.config.mcp_output
        mode = None if output == "auto" else output
        forgets = takes_functions_for_its_own(mode, dialect)
        writer = ResponseWriter(
            request,
            response_id=start.request.run_id,
            created_at=time.time() if again is None else again.created_at,
            model=start.backend.name,
            mode=mode,
            routes=start.servers,
            pending=start.request.pending,
            approved=before.decided.approved,
            listed=before.listed,
            dialect=dialect,
            seal=self._seal_keys.for_caller(caller.id),
            is_silent=not (request.stream or request.background),
            is_kept=self._is_durable and request.background and not request.has_secrets,
            past=Past(told) if again is not None else None,
        )

        async def leave(live: Live, output: Sequence[dict[str, Any]], waiting: Waiting) -> None:
            threads = self._continuing.threads
            if not _may_be_repeated(live, before):
                await threads.extend(request, output, waiting, caller, live.id)
            elif before.to_take is not None or again is not None:
                await threads.give_back(threads.hold(str(request.conversation_id), live.id), caller)

        async def keep(live: Live, hold: Hold | None = hold, claim: Claim | None = claim) -> None:
            resource = live.writer.resource()
            waiting = _waiting_of(live, resource, before, start.servers)
            record = record_of(live, request, before, waiting, resource)
            if claim is not None:
                await self._continuing.claims.settle(claim)
            if waiting.calls:
                is_found = request.conversation_id is None and (request.store or recent is not None)
                await self._continuing.claims.leave(waiting, caller.id, live.id, is_found=is_found)
                if is_found and not request.store:
                    self._continuing.unstored.keep(caller.id, live.id, waiting)
            if forgets and before.given and live.result is not None and live.result.tool_calls:
                made = (*before.decided.run, *live.result.items)
                self._continuing.untold.keep(caller.id, before.given, made, is_client=request.is_client)
            if recent is not None:
                items = (*before.items, *_added(live, request, before))
                size = len(record.items) + (before.size if before.is_stored else 0)
                recent.keep(live.id, Kept(items=items, size=size, waiting=waiting, is_chain=request.store))
            if request.conversation_id is not None:
                # First: what has ended is not gone on with, and adding to a conversation again does nothing.
                try:
                    await leave(live, resource["output"], waiting)
                except StorageError:
                    if hold is not None and not request.background:  # in the background it is tried again
                        self._continuing.threads.forget(hold)
                    raise
            if not request.store:
                return
            if not live.is_durable:
                await self._store.save(record, is_alone=self._in_flight() <= 1)
            elif not await self._store.finish(record):
                live.lose()

        return LiveRun(
            start.request,
            start.backend.provider if request.generates else Unasked(start.backend.provider.name),
            start.toolbox,
            writer,
            owner=caller.id,
            keep=keep,
            payloads=told,
        )


def record_of(
    live: Live,
    request: ResponseRequest,
    before: Continued | None = None,
    waiting: Waiting | None = None,
    resource: dict[str, Any] | None = None,
) -> StoredResponse:
    """Everything that is kept of a response, as far as it has come. `resource`: how it shows, if that is known."""
    resource = live.writer.resource() if resource is None else resource
    earlier: tuple[Item, ...] = ()
    if before is not None:  # what nobody stored is in no chain, so it is kept here
        earlier = before.decided.refused if before.is_stored else before.items
    return StoredResponse(
        id=live.id,
        owner=live.owner,
        created_at=float(resource["created_at"]),
        status=str(resource["status"]),
        previous_id=request.previous_response_id if before is None or before.is_stored else None,
        conversation_id=request.conversation_id,
        resource=live.writer.encoded(resource),
        input_items=orjson.dumps(request.input.shown),
        items=encode_items((*earlier, *_added(live, request, before))),
        pending=(waiting or Waiting()).encode(),
        events=b"\n".join(live.payloads),
    )


def _waiting_of(live: Live, resource: Mapping[str, Any], before: Continued, servers: RequestServers) -> Waiting:
    """What a response that has ended leaves to the next one."""
    lists = [item for item in resource["output"] if item["type"] == "mcp_list_tools"]
    seen = {item["server_label"] for item in lists if item.get("error") is None}
    pending = live.result.pending if live.result is not None else ()
    if live.result is None or not pending:
        return Waiting(listed=before.listed | seen)
    answered = {item.call_id for item in live.result.items if isinstance(item, FunctionCallOutput)}
    calls = (item for item in live.result.items if isinstance(item, FunctionCall))
    return Waiting(
        calls=pending,
        asks=live.result.held,  # not as it looks now: after a crash its server may be away, and it waits all the same
        listed=before.listed | seen,
        places=servers.places(pending),
        own=servers.own(pending),
        turn=tuple(call for call in calls if call.call_id not in answered),
    )


def _may_be_repeated(live: Live, before: Continued) -> bool:
    """A run that failed before it called anything. SDKs ask again by themselves, and would be there twice."""
    result = live.result
    if result is None or result.status not in ("failed", "cancelled") or before.decided.run:
        return False
    return not any(isinstance(item, FunctionCall) for item in result.items)


def _added(live: Live, request: ResponseRequest, before: Continued | None) -> tuple[Item, ...]:
    """What a response adds to the conversation: its input, then its output."""
    result = live.result  # none yet: this is what there is of it should the gateway die
    output = settled(
        result.items if result is not None else (),
        resumed=before.decided.run if before is not None else (),
        pending=result.pending if result is not None else (),
        is_client=request.is_client,
        is_cut=result is None or result.status in ("cancelled", "failed"),
    )
    return (*request.input.items, *output)
