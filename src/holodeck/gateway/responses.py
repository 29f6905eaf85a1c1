"""`/v1/responses`: made, streamed, kept, looked up, listed, cancelled and deleted. Framework-free; the app calls it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

import orjson

from holodeck.gateway.background import Background
from holodeck.gateway.callers import Caller
from holodeck.gateway.continuing import Continued, Continuing, Recent, Waiting
from holodeck.gateway.mcp_view import RequestServers
from holodeck.gateway.problems import WireError, not_found, reply_for_failed_run
from holodeck.gateway.replies import Reply, Streamed, json_reply
from holodeck.gateway.runs import LiveRun, Runs
from holodeck.gateway.starting import Starter
from holodeck.gateway.wire.context import settled
from holodeck.gateway.wire.encoder import DONE, sse
from holodeck.gateway.wire.input import whole
from holodeck.gateway.wire.past import Past
from holodeck.gateway.wire.replay import replay
from holodeck.gateway.wire.request import ResponseRequest, read_request
from holodeck.gateway.wire.seal import Seal
from holodeck.gateway.wire.writer import ResponseWriter
from holodeck.lib.errors import StorageError
from holodeck.lib.ids import new_id
from holodeck.lib.limits import CANCEL_POLL, CANCEL_WAIT, STORED_STREAM_POLL
from holodeck.models.items import Item
from holodeck.models.items_codec import encode_items
from holodeck.storage.store import UNFINISHED, ResponseStore, StoredResponse

_LIST_LIMIT = 20
_MAX_LIST_LIMIT = 100

Live = LiveRun[ResponseWriter]


class Responses:
    """The responses of all callers; each sees only its own."""

    def __init__(
        self,
        starter: Starter,
        store: ResponseStore,
        runs: Runs,
        seal: Seal,
        continuing: Continuing,
        background: Background,
    ) -> None:
        self._background = background
        self._starter = starter
        self._store = store
        self._runs = runs
        self._seal = seal
        self._continuing = continuing

    async def create(self, body: object, caller: Caller) -> Reply | Streamed:
        """Answer one request. A stream ends the run when nobody reads it any more; a background run goes on."""
        find = await self._continuing.found(body, caller)
        request = read_request(body, seal=self._seal, find=find)
        if request.background:
            return await self._begin_background(request, whole(body, find), caller)
        live = await self.prepare(request, caller)
        if request.stream:
            return Streamed(pieces=_framed(self._runs.advance(live)))
        await self._runs.finish(live)
        if live.failure is not None:
            raise live.failure
        return _answer(live)

    async def prepare(self, request: ResponseRequest, caller: Caller, recent: Recent | None = None) -> Live:
        """A run that is ready to go, with the context of what came before. `recent`: what its connection remembers."""
        self._starter.backend(request.model)
        before = await self._continuing.before(request, caller, recent)
        return await self._assemble(request, caller, before, recent=recent)

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
        return await self._assemble(request, caller, before, again=record, told=told)

    async def _assemble(
        self,
        request: ResponseRequest,
        caller: Caller,
        before: Continued,
        *,
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
            seal=self._seal,
            is_silent=not (request.stream or request.background),
            past=Past(told) if again is not None else None,
        )

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
            await self._store.save(record)
            if request.conversation_id is not None:
                await self._continuing.extend(request, live.writer.resource()["output"], caller)

        return LiveRun(
            start.request,
            start.backend.provider,
            start.toolbox,
            writer,
            owner=caller.id,
            keep=keep,
            payloads=told,
        )

    async def get(self, response_id: str, caller: Caller, query: Mapping[str, str]) -> Reply | Streamed:
        """A response as it is now, or its events from a number on."""
        live = self._runs.get(response_id, caller.id)
        if query.get("stream") == "true":
            after = _integer(query, "starting_after", -1)
            if live is not None:
                return Streamed(pieces=_framed(live.follow(after)))
            record = await self._record(response_id, caller)
            return Streamed(pieces=_framed(self._stored_events(record, after)))
        if live is not None:
            return json_reply(live.writer.resource())
        return Reply(body=(await self._record(response_id, caller)).resource)

    async def delete(self, response_id: str, caller: Caller) -> Reply:
        live = self._runs.get(response_id, caller.id)
        if live is not None:
            live.cancel()
            await live.is_done.wait()
        if not await self._store.delete(response_id, caller.id):
            raise not_found("Response", response_id)
        if live is None:
            await self._background.drop(response_id)
        return json_reply({"id": response_id, "object": "response", "deleted": True})

    async def cancel(self, response_id: str, caller: Caller) -> Reply:
        """Stop a background response. Doing it twice is the same as doing it once."""
        live = self._runs.get(response_id, caller.id)
        resource = None if live is None else live.writer.resource()
        if resource is None:
            resource = orjson.loads((await self._record(response_id, caller)).resource)
        if not resource["background"]:
            message = "Only responses that were made with 'background': true can be cancelled."
            raise WireError(400, message, kind="invalid_request", code="invalid_value", param="response_id")
        if live is not None:
            live.cancel()
            await live.is_done.wait()
        elif resource["status"] in UNFINISHED:
            await self._cancel_elsewhere(response_id, caller)
        return Reply(body=(await self._record(response_id, caller)).resource)

    async def _cancel_elsewhere(self, response_id: str, caller: Caller) -> None:
        """Ask whichever gateway makes the response to stop, and wait until it has; it may have to be found first."""
        record = await self._record(response_id, caller)
        if await self._background.withdraw(record) or not await self._store.ask_cancel(response_id, caller.id):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_WAIT):
                while (await self._record(response_id, caller)).status in UNFINISHED:  # noqa: ASYNC110 - elsewhere
                    await asyncio.sleep(CANCEL_POLL)

    async def input_items(self, response_id: str, caller: Caller, query: Mapping[str, str]) -> Reply:
        """The input of a response, a page at a time."""
        record = await self._record(response_id, caller)
        return json_reply(page_of(orjson.loads(record.input_items), query))

    async def _stored_events(self, record: StoredResponse, after: int) -> AsyncGenerator[list[bytes], None]:
        """A stored stream after a number; that of a response which another gateway makes is followed to its end."""
        while record.status in UNFINISHED:
            fresh = await self._store.grown(record.id, record.owner, after) or []
            if fresh:
                after += len(fresh)
                yield fresh
            else:
                await asyncio.sleep(STORED_STREAM_POLL)
            newer = await self._store.get(record.id, record.owner)
            if newer is None:
                return
            record = newer
        events = record.events.split(b"\n") if record.events else replay(orjson.loads(record.resource))
        yield events[after + 1 :]

    async def _record(self, response_id: str, caller: Caller) -> StoredResponse:
        record = await self._store.get(response_id, caller.id)
        if record is None:
            raise not_found("Response", response_id)
        return record

    async def _begin_background(self, request: ResponseRequest, body: object, caller: Caller) -> Reply | Streamed:
        self._starter.backend(request.model)
        before = await self._continuing.before(request, caller)
        live = await self._assemble(request, caller, before)
        queued = live.writer.queue()
        await self._store.save(record_of(live, request))
        await self._store.grow(live.id, 0, queued)
        live.payloads += queued
        given = None
        if self._background.is_durable and not request.has_secrets:
            given = {"body": body, "owner": caller.id, "before": before.plain()}
        try:
            await self._background.begin(live, given)
        except StorageError:
            await self._store.delete(live.id, caller.id)
            raise
        if request.stream:
            return await self.get(live.id, caller, {"stream": "true"})
        return json_reply(live.writer.resource())


def page_of(entries: Sequence[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """A page of a list, as the API pages everything: after, limit, order."""
    order = query.get("order", "desc")
    listed = list(entries) if order == "asc" else list(reversed(entries))
    after = query.get("after")
    if after is not None:
        place = next((index for index, entry in enumerate(listed) if entry.get("id") == after), None)
        listed = listed[place + 1 :] if place is not None else []
    limit = min(max(_integer(query, "limit", _LIST_LIMIT), 1), _MAX_LIST_LIMIT)
    chosen = listed[:limit]
    return {
        "object": "list",
        "data": chosen,
        "first_id": chosen[0]["id"] if chosen else None,
        "last_id": chosen[-1]["id"] if chosen else None,
        "has_more": len(listed) > limit,
    }


def _integer(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        message = f"Invalid type for '{name}': expected an integer."
        raise WireError(400, message, kind="invalid_request", code="invalid_type", param=name) from None


def record_of(
    live: Live, request: ResponseRequest, before: Continued | None = None, servers: RequestServers | None = None
) -> StoredResponse:
    """Everything that is kept of a response, as far as it has come."""
    resource = live.writer.resource()
    pending = live.result.pending if live.result is not None else ()
    asks = frozenset(call.call_id for call in pending if servers is not None and servers.holds(call))
    places = servers.places(pending) if servers is not None else {}
    earlier: tuple[Item, ...] = ()
    if before is not None:  # what nobody stored is in no chain, so it is kept here
        earlier = before.decided.refused if before.is_stored else before.items
    seen = {item["server_label"] for item in resource["output"] if item["type"] == "mcp_list_tools"}
    listed = (before.listed if before is not None else frozenset()) | seen
    return StoredResponse(
        id=live.id,
        owner=live.owner,
        created_at=float(resource["created_at"]),
        status=str(resource["status"]),
        previous_id=request.previous_response_id if before is None or before.is_stored else None,
        conversation_id=request.conversation_id,
        resource=orjson.dumps(resource),
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


def _answer(live: Live) -> Reply:
    resource = live.writer.resource()
    if live.result is not None and live.result.status == "failed":
        return reply_for_failed_run(live.result, resource)
    return json_reply(resource)


async def _framed(batches: AsyncGenerator[list[bytes], None]) -> AsyncGenerator[bytes, None]:
    """Batches of events as they stand in a stream; each event is in one piece."""
    async with aclosing(batches) as source:
        async for batch in source:
            yield b"".join(map(sse, batch))
    yield DONE
