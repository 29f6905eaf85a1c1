"""A response in the making: a request, what came before it, the tools it may use, and how it is written and kept."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from holodeck.gateway.callers import Caller
from holodeck.gateway.continuing import Continued, Continuing, Recent, Waiting
from holodeck.gateway.live_run import LiveRun
from holodeck.gateway.mcp_view import RequestServers
from holodeck.gateway.starting import Starter
from holodeck.gateway.wire.context import settled
from holodeck.gateway.wire.dialects import Dialect
from holodeck.gateway.wire.past import Past
from holodeck.gateway.wire.request import ResponseRequest, read_request
from holodeck.gateway.wire.seal import Seal
from holodeck.gateway.wire.writer import ResponseWriter
from holodeck.lib.ids import new_id
from holodeck.models.items import Item
from holodeck.models.items_codec import encode_items
from holodeck.storage.store import UNFINISHED, ResponseStore, StoredResponse

Live = LiveRun[ResponseWriter]


class ResponseMaker:
    """Makes runs that are ready to go: new ones, and those that another process had begun."""

    def __init__(
        self, starter: Starter, store: ResponseStore, seal: Seal, continuing: Continuing, *, is_durable: bool
    ) -> None:
        """`is_durable`: whether background runs are kept step by step."""
        self._is_durable = is_durable
        self._starter = starter
        self._store = store
        self._seal = seal
        self._continuing = continuing

    async def prepare(
        self, request: ResponseRequest, caller: Caller, recent: Recent | None = None, *, dialect: Dialect = "openai"
    ) -> Live:
        """A run with the context of what came before. `recent`: what its connection remembers."""
        self._starter.backend(request.model)
        before = await self._continuing.before(request, caller, recent)
        return await self._assemble(request, caller, before, dialect=dialect, recent=recent)

    async def prepare_for_long(
        self, request: ResponseRequest, body: object, caller: Caller, *, dialect: Dialect
    ) -> tuple[Live, Mapping[str, Any] | None]:
        """The same, with all that `revive` needs; `body` is the whole request. None: it has secrets, and nobody may."""
        self._starter.backend(request.model)
        before = await self._continuing.before(request, caller)
        live = await self._assemble(request, caller, before, dialect=dialect)
        if request.has_secrets:
            return live, None
        return live, {"body": body, "owner": caller.id, "before": before.plain(), "dialect": dialect}

    async def revive(self, response_id: str, given: Mapping[str, Any]) -> Live | None:
        """A background run as it was given, with what clients have heard of it. None: it has ended, or is deleted."""
        caller = Caller(id=given["owner"])
        record = await self._store.get(response_id, caller.id)
        if record is None or record.status not in UNFINISHED:
            return None
        request = read_request(given["body"], seal=self._seal)
        request.input.shown[:] = orjson.loads(record.input_items)
        before = Continued.of_plain(given["before"])
        before.complete(request)
        told = await self._store.grown(response_id, caller.id) or []
        dialect = given.get("dialect", "openai")
        return await self._assemble(request, caller, before, dialect=dialect, again=record, told=told)

    async def _assemble(
        self,
        request: ResponseRequest,
        caller: Caller,
        before: Continued,
        *,
        dialect: Dialect,
        recent: Recent | None = None,
        again: StoredResponse | None = None,
        told: Sequence[bytes] = (),
    ) -> Live:
        """`again`: the response whose run this is, if there is one already; `told` is its stream so far."""
        start = await self._starter.start(
            request,
            new_id("resp") if again is None else again.id,
            items=before.items,
            pending=before.decided.run,
            can_wait=request.store or recent is not None,
            caller=caller.id,
            approved=before.decided.approved,
            places=before.places,
            can_ask=True,
        )
        output = self._starter.config.mcp_output
        writer = ResponseWriter(
            request,
            response_id=start.request.run_id,
            created_at=time.time() if again is None else again.created_at,
            model=start.backend.name,
            mode=None if output == "auto" else output,
            routes=start.servers,
            pending=start.request.pending,
            approved=before.decided.approved,
            listed=before.listed,
            dialect=dialect,
            seal=self._seal,
            is_silent=not (request.stream or request.background),
            is_kept=self._is_durable and request.background and not request.has_secrets,
            past=Past(told) if again is not None else None,
        )

        async def extend(live: Live, record: StoredResponse) -> None:
            if request.conversation_id is not None:
                await self._continuing.extend(request, live.writer.resource()["output"], record, caller)

        async def keep(live: Live) -> None:
            record = record_of(live, request, before, start.servers)
            if recent is not None:
                recent.keep(
                    live.id,
                    (*before.items, *_added(live, request)),
                    Waiting.decode(record.pending),
                    is_stored=request.store,
                )
            if not request.store:
                return
            if live.is_durable:
                # The conversation first: what has ended is not gone on with, and adding to it again does nothing.
                await extend(live, record)
                if not await self._store.finish(record):
                    live.lose()
                return
            await self._store.save(record)
            await extend(live, record)

        return LiveRun(
            start.request,
            start.backend.provider,
            start.toolbox,
            writer,
            owner=caller.id,
            keep=keep,
            payloads=told,
        )


def record_of(
    live: Live, request: ResponseRequest, before: Continued | None = None, servers: RequestServers | None = None
) -> StoredResponse:
    """Everything that is kept of a response, as far as it has come."""
    resource = live.writer.resource()
    pending = live.result.pending if live.result is not None else ()
    asks: frozenset[str] = frozenset()
    places: Mapping[str, tuple[str, str]] = {}
    if pending and servers is not None:
        asks, places = frozenset(call.call_id for call in pending if servers.holds(call)), servers.places(pending)
    earlier: tuple[Item, ...] = ()
    if before is not None:  # what nobody stored is in no chain, so it is kept here
        earlier = before.decided.refused if before.is_stored else before.items
    lists = [item for item in resource["output"] if item["type"] == "mcp_list_tools"]
    seen = {item["server_label"] for item in lists if item.get("error") is None}
    listed = (before.listed if before is not None else frozenset()) | seen
    return StoredResponse(
        id=live.id,
        owner=live.owner,
        created_at=float(resource["created_at"]),
        status=str(resource["status"]),
        previous_id=request.previous_response_id if before is None or before.is_stored else None,
        conversation_id=request.conversation_id,
        resource=live.writer.encoded(resource),
        input_items=orjson.dumps(request.input.shown),
        items=encode_items((*earlier, *_added(live, request))),
        pending=Waiting(calls=pending, asks=asks, listed=listed, places=places).encode(),
        events=b"\n".join(live.payloads),
    )


def _added(live: Live, request: ResponseRequest) -> tuple[Item, ...]:
    """What a response adds to the conversation: its input, then its output."""
    if live.result is None:
        return tuple(request.input.items)
    output = settled(live.result.items, pending=live.result.pending, is_client=request.is_client)
    return (*request.input.items, *output)
