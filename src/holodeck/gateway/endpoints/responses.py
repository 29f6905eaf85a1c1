"""`/v1/responses`: responses are created, streamed, read, cancelled and deleted here.

A response runs in one of three ways. Without `stream` the reply is the finished response. With `stream` it is the
events of the run, and a client that disconnects ends the run. With `background` the response is stored as queued and
runs on without a client. Any gateway with the same storage can read, follow or cancel a background response, whichever
gateway runs it.

A request with an `Idempotency-Key` is stored before it starts, and a second one with the same key has the response of
the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from holodeck.gateway.api import examples
from holodeck.gateway.api.route import route
from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.continuation.resolve import ContinuationResolver
from holodeck.gateway.http.error_codes import INPUT_ERRORS, STORED_ERRORS
from holodeck.gateway.http.errors import (
    APIError,
    encode_response_error,
    not_found_error,
    reply_for_failed_run,
    reply_for_stored_failure,
    shutting_down_error,
)
from holodeck.gateway.http.parameters import (
    IDEMPOTENCY_HEADER,
    IDEMPOTENCY_KEY,
    ITEMS_PAGE,
    REPLAYED_HEADER,
    FlagParameter,
    IntegerParameter,
    check_same_request,
    page_of,
    read_idempotency_key,
)
from holodeck.gateway.http.replies import (
    Reply,
    StreamCutError,
    StreamedReply,
    compaction_header,
    cost_header,
    json_reply,
    missing_servers_header,
    retry_header,
)
from holodeck.gateway.http.request import Request
from holodeck.gateway.limits import CallerLimits, background_limit_error
from holodeck.gateway.runs.active_runs import ActiveRuns
from holodeck.gateway.runs.background import Background
from holodeck.gateway.runs.live_run import RunState
from holodeck.gateway.runs.response_builder import LiveResponse, ResponseBuilder
from holodeck.gateway.wire.client_kind import ClientKind, adapt_events
from holodeck.gateway.wire.request.body import ResponseRequest, read_request
from holodeck.gateway.wire.request.input import resolve_references
from holodeck.gateway.wire.response.output_items import SSE_DONE, encode_sse
from holodeck.gateway.wire.response.replay import replay_events
from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.lib.limits import CANCEL_POLL
from holodeck.lib.tasks import TaskSet
from holodeck.models.items import Compaction
from holodeck.storage.idempotency_keys import IdempotencyKey
from holodeck.storage.responses import StoredResponse
from holodeck.storage.runs import UNFINISHED_STATUSES
from holodeck.storage.store import ResponseStore

# Seconds between two reads of a stream that another gateway writes.
STORED_STREAM_POLL = 0.25
# Seconds that a request waits for another gateway to cancel a response; it is cancelled later nevertheless.
CANCEL_WAIT = 10.0
# The largest integer that every JSON client reads exactly; a larger one may be more than a database can store.
MAX_SEQUENCE_NUMBER = 2**53 - 1

_stored_route = partial(route, tag="Responses", is_counted=False)
_STREAM = FlagParameter(name="stream", about="True: the reply is a stream of events.")
_STARTING_AFTER = IntegerParameter(
    name="starting_after",
    about="With `stream`: only events after this number.",
    default=-1,
    minimum=-1,
    maximum=MAX_SEQUENCE_NUMBER,
)


class Responses:
    """Routes of responses. A caller sees only its own."""

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

    @route(
        "POST",
        "/v1/responses",
        id="createResponse",
        tag="Responses",
        summary="Create a response",
        description=(
            "Asks the model, runs the tool calls that it makes, and returns the answer.\n\n"
            "With `stream` the reply is a stream of events, which ends with `data: [DONE]`. A client that disconnects "
            "ends the run. With `background` the reply is the queued response, and the run needs no client."
        ),
        headers=(IDEMPOTENCY_KEY,),
        body="CreateResponse",
        example_body={"model": "demo", "input": "Hello"},
        reply="Response",
        example=examples.RESPONSE,
        stream="ResponseEvent",
        errors=(*INPUT_ERRORS, "run", "idempotency"),
        is_paid=True,
    )
    async def create(self, request: Request) -> Reply | StreamedReply:
        """Run one request. A client that disconnects ends the run, unless it is a background run."""
        body, caller, client_kind = request.json(), request.caller, request.client_kind
        key = None
        if IDEMPOTENCY_HEADER in request.headers:
            key = read_idempotency_key(request, body)
            if (stored := await self._store.idempotency_keys.find_key(key.caller_id, key.value)) is not None:
                return await self._reply_again(request, key, stored)
        if isinstance(body, dict) and body.get("background") is True:
            await self._check_background_limit(caller)
        find = await self._continuations.build_item_lookup(body, caller)
        sealed = await self._continuations.open_sealed(body, find, caller, request.reservation.acquire)
        response_request = read_request(
            body, sealed=sealed, find_item=find, extra_parameters_of=self._builder.extra_parameters_for(caller)
        )
        if response_request.background:
            body = resolve_references(body, find)
            try:
                return await self._start_background(response_request, body, caller, client_kind=client_kind, key=key)
            except _KeyTakenError as taken:
                return await self._reply_again(request, taken.key, taken.stored)
        live = await self._builder.build(response_request, caller, client_kind=client_kind)
        if key is not None:
            try:
                await self._reserve_with_key(live, key)
            except _KeyTakenError as taken:
                return await self._reply_again(request, taken.key, taken.stored)
        if response_request.stream:
            return await self._stream_run(live)
        try:
            await live.run_to_end()
        finally:
            await live.close()
        if live.failure is not None:
            raise live.failure
        return _reply_of_run(live)

    @_stored_route(
        "GET",
        "/v1/responses/{id}",
        id="getResponse",
        summary="Get a response",
        description=(
            "The current state of a stored response. With `stream`, its events: those of the past, and then those that "
            "follow until its end."
        ),
        query=(_STREAM, _STARTING_AFTER),
        reply="Response",
        example=examples.RESPONSE,
        stream="ResponseEvent",
        errors=(*STORED_ERRORS, "query", "limits"),
    )
    async def get(self, request: Request) -> Reply | StreamedReply:
        """Return the current state of a response, or with `stream` its events after the number `starting_after`."""
        response_id, caller, query = request.path_params["id"], request.caller, request.query
        if _STREAM.read(query):
            after = _STARTING_AFTER.read(query)
            return await self._stream_response(response_id, caller, after, request.client_kind)
        live = self._find_live(response_id, caller)
        if live is not None:
            resource = live.writer.build_resource()
            if resource["status"] in UNFINISHED_STATUSES:
                return json_reply(resource)
            # A request that continues from it would not find it before it is stored.
            await live.finished.wait()
        return Reply(body=(await self._require_response(response_id, caller)).resource)

    @_stored_route(
        "DELETE",
        "/v1/responses/{id}",
        id="deleteResponse",
        summary="Delete a response",
        description="A response that is not finished is cancelled first.",
        reply="DeletedResponse",
        example=examples.DELETED_RESPONSE,
        errors=STORED_ERRORS,
    )
    async def delete(self, request: Request) -> Reply:
        """Delete a response; one that is unfinished is cancelled first."""
        response_id, caller = request.path_params["id"], request.caller
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

    @_stored_route(
        "POST",
        "/v1/responses/{id}/cancel",
        id="cancelResponse",
        summary="Cancel a background response",
        description="Returns the response. A finished one stays as it is. Only background responses can be cancelled.",
        reply="Response",
        example=examples.CANCELLED_RESPONSE,
        errors=(*STORED_ERRORS, "fields"),
    )
    async def cancel(self, request: Request) -> Reply:
        """Cancel a background response. Idempotent; a finished response stays as it is."""
        response_id, caller = request.path_params["id"], request.caller
        live = self._find_live(response_id, caller)
        resource = None if live is None else live.writer.build_resource()
        if resource is None:
            resource = orjson.loads((await self._require_response(response_id, caller)).resource)
        if not resource["background"]:
            message = "Only responses that were made with 'background': true can be cancelled."
            raise APIError(400, message, kind="invalid_request", code="invalid_value", param="response_id")
        if live is not None:
            # Stored for the gateway that takes the run over, should this process die now.
            if live.is_durable:
                await self._store.request_cancel(response_id, caller.id)
            live.cancel()
            await live.finished.wait()
        elif resource["status"] in UNFINISHED_STATUSES:
            await self._cancel_elsewhere(response_id, caller)
        return Reply(body=(await self._require_response(response_id, caller)).resource)

    @_stored_route(
        "GET",
        "/v1/responses/{id}/input_items",
        id="listInputItems",
        summary="List the input items of a response",
        description="A page of the items that the request of the response had.",
        query=ITEMS_PAGE,
        reply="ItemList",
        example=examples.INPUT_ITEMS,
        errors=(*STORED_ERRORS, "query"),
    )
    async def list_input_items(self, request: Request) -> Reply:
        """Return a page of the input items of a response."""
        record = await self._require_response(request.path_params["id"], request.caller)
        return json_reply(page_of(orjson.loads(record.input_items), request.query))

    async def _reserve_with_key(self, live: LiveResponse, key: IdempotencyKey) -> None:
        """Store a new response with its key, before it starts. Where that fails, the run is closed."""
        try:
            await live.reserve()
            await self._claim_key(live, key)
        except BaseException as error:
            if isinstance(error, _KeyTakenError):
                await self._store.delete(live.id, live.caller_id)
            await live.close()
            raise

    async def _claim_key(self, live: LiveResponse, key: IdempotencyKey) -> None:
        """Claim a key for a response that is stored. Raises `_KeyTakenError` when another request was first."""
        stored = await self._store.idempotency_keys.claim_key(replace(key, response_id=live.id))
        if stored.response_id != live.id:
            raise _KeyTakenError(key, stored)
        live.idempotency_key = key.value

    async def _reply_again(
        self, request: Request, key: IdempotencyKey, stored: IdempotencyKey
    ) -> Reply | StreamedReply:
        """Return the reply to a request that was sent before with this key: the same response, once it has ended."""
        check_same_request(key, stored)
        response_id, caller = stored.response_id, request.caller
        log.add_fields(response=response_id)
        # The same body as the first time, so the same choice between the three ways.
        record = await self._require_response(response_id, caller)
        asked = request.json()
        if asked.get("stream") is True:
            reply = await self._stream_response(response_id, caller, -1, request.client_kind)
            return replace(reply, headers={**reply.headers, **REPLAYED_HEADER})
        while record.status in UNFINISHED_STATUSES and asked.get("background") is not True:
            live = self._find_live(response_id, caller)
            if live is not None:
                await live.finished.wait()
            elif self._background.is_draining:
                raise shutting_down_error()
            else:
                await asyncio.sleep(STORED_STREAM_POLL)
            record = await self._require_response(response_id, caller)
        if record.status == "failed" and asked.get("background") is not True:
            return reply_for_stored_failure(orjson.loads(record.resource), **REPLAYED_HEADER)
        return Reply(body=record.resource, headers=REPLAYED_HEADER)

    async def _stream_run(self, live: LiveResponse) -> StreamedReply:
        """Return a reply that owns a run, and runs it as it is read."""
        async with AsyncExitStack() as owner:
            await owner.enter_async_context(live)
            # As far as it is known: the headers are sent before the servers are asked for their tools.
            live.toolbox.update_missing()
            return StreamedReply(
                chunks=_encode_response_sse(live.stream()),
                headers=missing_servers_header(live.toolbox.missing),
                on_close=owner.pop_all().aclose,
                encode_error=lambda error: encode_response_error(error, len(live.wire_events)),
            )

    async def _check_background_limit(self, caller: Caller) -> None:
        """Refuse a request over the limit before its body is parsed. Storing checks again, for concurrent requests."""
        limit = self._caller_limits.background_limit(caller)
        if await self._store.count_unfinished(caller.id) >= limit:
            raise background_limit_error(limit)

    async def _start_background(
        self,
        request: ResponseRequest,
        body: object,
        caller: Caller,
        *,
        client_kind: ClientKind,
        key: IdempotencyKey | None,
    ) -> Reply | StreamedReply:
        live, rebuild_input, record = await self._builder.build_background(
            request, body, caller, client_kind=client_kind
        )
        limit = self._caller_limits.background_limit(caller)
        with self._background.note_start(live.id):
            is_started = await _finish_despite_cancel(self._store_and_submit(live, rebuild_input, record, limit, key))
        if not is_started:
            raise background_limit_error(limit)
        if request.stream:
            await self._background.wait_started(live)
            return await self._stream_response(live.id, caller, -1, client_kind)
        # As it was stored: the run may have started since.
        return Reply(body=record.resource)

    async def _store_and_submit(
        self,
        live: LiveResponse,
        rebuild_input: Mapping[str, Any] | None,
        record: StoredResponse,
        limit: int,
        key: IdempotencyKey | None,
    ) -> bool:
        """Store a background response as queued and submit its run. False: its caller has `limit` of them already.

        Nothing is stored where this returns False or raises.
        """
        is_submitted = False
        try:
            queued = live.writer.write_queued()
            is_durable = rebuild_input is not None and self._background.is_durable
            turn = await self._store.insert_within_quota(record, quota=limit, is_durable=is_durable)
            if turn is not None:
                if key is not None:
                    await self._claim_key(live, key)
                await self._store.append_events(live.id, 0, queued)
                live.publish(queued)
                await self._background.submit(live, rebuild_input, turn)
                is_submitted = True
            return is_submitted
        finally:
            if not is_submitted:
                await self._background.rollback(live, record)

    async def _cancel_elsewhere(self, response_id: str, caller: Caller) -> None:
        """Cancel a response that this gateway does not run, and wait for it for at most `CANCEL_WAIT`."""
        record = await self._require_response(response_id, caller)
        if await self._background.cancel_queued(record) or not await self._store.request_cancel(response_id, caller.id):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_WAIT):
                while (await self._require_response(response_id, caller)).status in UNFINISHED_STATUSES:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(CANCEL_POLL)

    async def _stream_response(
        self, response_id: str, caller: Caller, after: int, client_kind: ClientKind
    ) -> StreamedReply:
        """Return the events of a response after the number `after`, from this gateway or from storage."""
        live = self._find_live(response_id, caller)
        if live is not None:
            return StreamedReply(
                chunks=_encode_response_sse(self._follow_live(live, after), client_kind),
                encode_error=lambda error: encode_response_error(error, len(live.wire_events)),
            )
        record = await self._require_response(response_id, caller)
        return StreamedReply(chunks=_encode_response_sse(self._follow_stored(record, after), client_kind))

    async def _follow_live(self, live: LiveResponse, after: int) -> AsyncGenerator[list[bytes], None]:
        """Yield the events of a run of this gateway. Once it is handed over, those that the other gateway stores."""
        async with aclosing(live.follow(after)) as batches:
            async for batch in batches:
                after += len(batch)
                yield batch
        if live.state is RunState.HANDED_OVER:
            record = await self._store.get(live.id, live.caller_id)
            if record is None:
                raise StreamCutError
            async with aclosing(self._follow_stored(record, after)) as batches:
                async for batch in batches:
                    yield batch

    async def _follow_stored(self, record: StoredResponse, after: int) -> AsyncGenerator[list[bytes], None]:
        """Yield the stored events after a number. An unfinished response, of another gateway, is followed to its end.

        Raises `StreamCutError` when the response is deleted or this gateway drains before that end.
        """
        while record.status in UNFINISHED_STATUSES:
            # The client continues after its last event, at another gateway.
            if self._background.is_draining:
                raise StreamCutError
            fresh = await self._store.read_events(record.id, record.caller_id, after) or []
            if fresh:
                after += len(fresh)
                yield fresh
            else:
                await asyncio.sleep(STORED_STREAM_POLL)
            newer = await self._store.get(record.id, record.caller_id)
            if newer is None:
                raise StreamCutError
            record = newer
        events = record.events.split(b"\n") if record.events else replay_events(orjson.loads(record.resource))
        yield events[after + 1 :]

    def _find_live(self, response_id: str, caller: Caller) -> LiveResponse | None:
        """Find an unfinished response here that will be stored. Others are visible only to their own requests."""
        live = self._runs.find(response_id, caller.id)
        return live if live is not None and live.writer.is_stored else None

    async def _require_response(self, response_id: str, caller: Caller) -> StoredResponse:
        record = await self._store.get(response_id, caller.id)
        if record is None:
            raise not_found_error("Response", response_id)
        return record


class _KeyTakenError(Exception):
    """Another request with the same idempotency key was first."""

    def __init__(self, key: IdempotencyKey, stored: IdempotencyKey) -> None:
        super().__init__()
        self.key = key
        self.stored = stored


async def _finish_despite_cancel(work: Coroutine[None, None, bool]) -> bool:
    """Run `work` to its end even if the request is cancelled: a response stored but not submitted would never run."""
    tasks = TaskSet()
    task = tasks.start(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await tasks.wait()
        raise


def _reply_of_run(live: LiveResponse) -> Reply:
    if live.result is not None and live.result.status == "failed":
        return reply_for_failed_run(live.result, live.writer.build_resource())
    items = () if live.result is None else live.result.items
    headers = missing_servers_header(live.toolbox.missing) if live.toolbox.missing else {}
    if Compaction in map(type, items):
        is_truncated = any(isinstance(item, Compaction) and item.is_truncated for item in items)
        headers |= compaction_header(is_truncated=is_truncated)
    if live.trace.cost is not None:
        headers |= cost_header(live.trace.cost)
    if live.result is not None and live.result.status == "incomplete":
        headers |= retry_header(live.result)
    return Reply(body=live.writer.encode_resource(), headers=headers)


async def _encode_response_sse(
    batches: AsyncGenerator[list[bytes], None], client_kind: ClientKind | None = None
) -> AsyncGenerator[bytes, None]:
    """Encode batches of events as server-sent events, one chunk per batch.

    `client_kind`: of the reader of a stream that was written for another client, to whose form events are adapted.
    """
    try:
        async with aclosing(batches) as source:
            async for batch in source:
                yield encode_sse(batch if client_kind is None else adapt_events(batch, client_kind))
    # The rest of a stored stream cannot be read now.
    except StorageError as error:
        log.warning("gateway.storage_failed", error=error)
        raise StreamCutError from error
    yield SSE_DONE
