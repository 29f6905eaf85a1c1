"""`/v1/responses`: made, streamed, kept, looked up, listed, cancelled and deleted. Framework-free; the app calls it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing, suppress
from typing import Any

import orjson

from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.continuation.resolve import ContinuationResolver
from holodeck.gateway.http.errors import APIError, not_found_error, reply_for_failed_run
from holodeck.gateway.http.query import flag_of, integer_of, page_of
from holodeck.gateway.http.replies import Reply, StreamCutError, StreamedReply, json_reply, missing_servers_header
from holodeck.gateway.http.request_body import RequestReservation
from holodeck.gateway.limits import CallerLimits, background_limit_error
from holodeck.gateway.runs.active_runs import ActiveRuns
from holodeck.gateway.runs.background import Background
from holodeck.gateway.runs.response_builder import LiveResponse, ResponseBuilder
from holodeck.gateway.wire.client_kind import ClientKind, adapt_events
from holodeck.gateway.wire.request.body import ResponseRequest, read_request
from holodeck.gateway.wire.request.input import resolve_references
from holodeck.gateway.wire.response.event_encoder import SSE_DONE, encode_sse
from holodeck.gateway.wire.response.replay import replay_events
from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.lib.limits import CANCEL_POLL
from holodeck.storage.base import UNFINISHED_STATUSES, ResponseStore, StoredResponse

# Seconds between two looks at a stream that another gateway writes.
STORED_STREAM_POLL = 0.25
# Seconds that a client waits for another gateway to stop; it is stopped later all the same.
CANCEL_WAIT = 10.0


# The largest integer that every JSON client reads exactly; a larger one may be more than a database takes.
MAX_SEQUENCE_NUMBER = 2**53 - 1


class Responses:
    """The responses of all callers; each sees only its own."""

    def __init__(
        self,
        builder: ResponseBuilder,
        store: ResponseStore,
        runs: ActiveRuns,
        continuations: ContinuationResolver,
        background: Background,
        caller_limits: CallerLimits,
    ) -> None:
        self._builder = builder
        self._store = store
        self._runs = runs
        self._continuations = continuations
        self._background = background
        self._caller_limits = caller_limits

    async def create(
        self, body: object, caller: Caller, reservation: RequestReservation, *, client_kind: ClientKind = "openai"
    ) -> Reply | StreamedReply:
        """Answer one request. A stream ends the run when nobody reads it any more; a background run goes on."""
        if isinstance(body, dict) and body.get("background") is True:
            await self._check_background_limit(caller)
        find = await self._continuations.build_item_lookup(body, caller)
        sealed = await self._continuations.open_sealed(body, find, caller, reservation.acquire)
        request = read_request(body, sealed=sealed, find_item=find)
        if request.background:
            return await self._start_background(
                request, resolve_references(body, find), caller, client_kind=client_kind
            )
        live = await self._builder.build(request, caller, client_kind=client_kind)
        if request.stream:
            live.toolbox.update_missing()  # as far as it is known: the headers go before the tools are asked for
            return StreamedReply(
                chunks=_encode_response_sse(self._runs.stream(live)),
                headers=missing_servers_header(live.toolbox.missing),
            )
        await self._runs.run_to_end(live)
        if live.failure is not None:
            raise live.failure
        return _reply_of_run(live)

    async def _check_background_limit(self, caller: Caller) -> None:
        """Refuse one too many before anything is read for it. Whoever comes at the same moment is refused later."""
        most = self._caller_limits.background_limit(caller)
        if await self._store.count_unfinished(caller.id) >= most:
            raise background_limit_error(most)

    async def get(
        self, response_id: str, caller: Caller, query: Mapping[str, str], *, client_kind: ClientKind = "openai"
    ) -> Reply | StreamedReply:
        """A response as it is now, or its events from a number on."""
        live = self._find_live(response_id, caller)
        if flag_of(query, "stream"):
            after = integer_of(query, "starting_after", -1, minimum=-1, maximum=MAX_SEQUENCE_NUMBER)
            if live is not None:
                return StreamedReply(chunks=_encode_response_sse(self._follow_live(live, after), client_kind))
            record = await self._require_response(response_id, caller)
            return StreamedReply(chunks=_encode_response_sse(self._follow_stored(record, after), client_kind))
        if live is not None:
            return json_reply(live.writer.build_resource())
        return Reply(body=(await self._require_response(response_id, caller)).resource)

    async def delete(self, response_id: str, caller: Caller) -> Reply:
        live = self._find_live(response_id, caller)
        if live is not None:
            live.cancel()
            await live.finished.wait()
        elif (await self._require_response(response_id, caller)).status in UNFINISHED_STATUSES:
            await self._cancel_elsewhere(response_id, caller)
        if not await self._store.delete(response_id, caller.id):
            raise not_found_error("Response", response_id)
        if live is None:
            await self._background.delete_run(response_id)
        return json_reply({"id": response_id, "object": "response", "deleted": True})

    async def cancel(self, response_id: str, caller: Caller) -> Reply:
        """Stop a background response. Doing it twice is the same as doing it once."""
        live = self._find_live(response_id, caller)
        resource = None if live is None else live.writer.build_resource()
        if resource is None:
            resource = orjson.loads((await self._require_response(response_id, caller)).resource)
        if not resource["background"]:
            message = "Only responses that were made with 'background': true can be cancelled."
            raise APIError(400, message, kind="invalid_request", code="invalid_value", param="response_id")
        if live is not None:
            if live.is_durable:  # whoever goes on with it, should this process die now, must know
                await self._store.request_cancel(response_id, caller.id)
            live.cancel()
            await live.finished.wait()
        elif resource["status"] in UNFINISHED_STATUSES:
            await self._cancel_elsewhere(response_id, caller)
        return Reply(body=(await self._require_response(response_id, caller)).resource)

    async def _cancel_elsewhere(self, response_id: str, caller: Caller) -> None:
        """Ask whichever gateway makes the response to stop, and wait until it has; it may have to be found first."""
        record = await self._require_response(response_id, caller)
        if await self._background.cancel_queued(record) or not await self._store.request_cancel(response_id, caller.id):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_WAIT):
                while (await self._require_response(response_id, caller)).status in UNFINISHED_STATUSES:  # noqa: ASYNC110 - elsewhere
                    await asyncio.sleep(CANCEL_POLL)

    async def list_input_items(self, response_id: str, caller: Caller, query: Mapping[str, str]) -> Reply:
        """The input of a response, a page at a time."""
        record = await self._require_response(response_id, caller)
        return json_reply(page_of(orjson.loads(record.input_items), query))

    async def _follow_live(self, live: LiveResponse, after: int) -> AsyncGenerator[list[bytes], None]:
        """The stream of a response in the making; what another gateway has gone on with is followed there."""
        async with aclosing(live.follow(after)) as batches:
            async for batch in batches:
                after += len(batch)
                yield batch
        if live.is_handed_over:
            record = await self._store.get(live.id, live.caller_id)
            if record is None:
                raise StreamCutError
            async with aclosing(self._follow_stored(record, after)) as batches:
                async for batch in batches:
                    yield batch

    async def _follow_stored(self, record: StoredResponse, after: int) -> AsyncGenerator[list[bytes], None]:
        """A stored stream after a number; that of a response which another gateway makes is followed to its end.

        Raises `StreamCutError` where this gateway cannot tell that end.
        """
        while record.status in UNFINISHED_STATUSES:
            if self._background.is_draining:  # the reader goes on where it was, at another gateway
                raise StreamCutError
            fresh = await self._store.read_events(record.id, record.owner, after) or []
            if fresh:
                after += len(fresh)
                yield fresh
            else:
                await asyncio.sleep(STORED_STREAM_POLL)
            newer = await self._store.get(record.id, record.owner)
            if newer is None:
                raise StreamCutError
            record = newer
        events = record.events.split(b"\n") if record.events else replay_events(orjson.loads(record.resource))
        yield events[after + 1 :]

    def _find_live(self, response_id: str, caller: Caller) -> LiveResponse | None:
        """A response in the making that will be there when it is made. The others are only their makers'."""
        live = self._runs.find(response_id, caller.id)
        return live if live is not None and live.writer.is_stored else None

    async def _require_response(self, response_id: str, caller: Caller) -> StoredResponse:
        record = await self._store.get(response_id, caller.id)
        if record is None:
            raise not_found_error("Response", response_id)
        return record

    async def _store_and_submit(
        self, live: LiveResponse, rebuild_input: Mapping[str, Any] | None, record: StoredResponse, limit: int
    ) -> bool:
        """False, and nothing is kept: its owner has `limit` of them."""
        queued = live.writer.write_queued()
        is_durable = rebuild_input is not None and self._background.is_durable
        try:
            turn = await self._store.insert_within_quota(record, quota=limit, is_durable=is_durable)
            if turn is not None:
                await self._store.append_events(live.id, 0, queued)
                live.wire_events += queued
                await self._background.submit(live, rebuild_input, turn)
                return True
        except StorageError:
            await self._background.rollback(live, record)
            raise
        await self._background.rollback(live, record)
        return False

    async def _start_background(
        self, request: ResponseRequest, body: object, caller: Caller, *, client_kind: ClientKind
    ) -> Reply | StreamedReply:
        live, given, record = await self._builder.build_background(request, body, caller, client_kind=client_kind)
        most = self._caller_limits.background_limit(caller)
        if not await _finish_despite_cancel(self._store_and_submit(live, given, record, most)):
            raise background_limit_error(most)
        if request.stream:
            await self._background.wait_started(live)
            return await self.get(live.id, caller, {"stream": "true"}, client_kind=client_kind)
        return json_reply(live.writer.build_resource())


async def _finish_despite_cancel(work: Coroutine[None, None, bool]) -> bool:
    """Do all of it, also for a client that leaves meanwhile: what is kept and never begun would wait for ever."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def _reply_of_run(live: LiveResponse) -> Reply:
    if live.result is not None and live.result.status == "failed":
        return reply_for_failed_run(live.result, live.writer.build_resource())
    return Reply(body=live.writer.encode_resource(), headers=missing_servers_header(live.toolbox.missing))


async def _encode_response_sse(
    batches: AsyncGenerator[list[bytes], None], client_kind: ClientKind | None = None
) -> AsyncGenerator[bytes, None]:
    """Batches of events as they stand in a stream; each event is in one piece. `client_kind`: of a later reader."""
    try:
        async with aclosing(batches) as source:
            async for batch in source:
                yield b"".join(map(encode_sse, batch if client_kind is None else adapt_events(batch, client_kind)))
    except StorageError as error:  # a stored stream, of which the rest cannot be read now
        log.warning("gateway.storage_failed", error=error)
        raise StreamCutError from error
    yield SSE_DONE
