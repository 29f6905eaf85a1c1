"""Building of a response's run: its continuation, claim and lease, tools, writer, and what is stored at its end.

`ResponseBuilder.build` resolves the continuation of a request, leases its conversation if calls are pending there,
claims the pending calls that it runs, and builds a `LiveRun`. If building fails, claim and lease are released. The run
holds both until it is stored. `rebuild` builds the run of a durable response of another process, whose claim and lease
are in storage.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import orjson

from holodeck.gateway.auth.callers import Caller, Callers
from holodeck.gateway.continuation.call_outputs import with_missing_outputs
from holodeck.gateway.continuation.conversation_lock import ConversationLease, conversation_changing_error
from holodeck.gateway.continuation.memory import ResponseContext, SocketHistory
from holodeck.gateway.continuation.pending_calls import CallClaim, PendingCalls
from holodeck.gateway.continuation.resolve import Continuation, ContinuationResolver
from holodeck.gateway.mcp.request_servers import RequestServers
from holodeck.gateway.runs.live_run import LiveRun
from holodeck.gateway.runs.run_builder import NoModel, RunBuilder
from holodeck.gateway.sealing import SealKeys
from holodeck.gateway.wire.client_kind import ClientKind
from holodeck.gateway.wire.request.body import ResponseRequest, read_request
from holodeck.gateway.wire.request.parsed_input import find_nothing
from holodeck.gateway.wire.request.tool_search import add_found_tools
from holodeck.gateway.wire.response.sent_events import SentEvents
from holodeck.gateway.wire.response.writer import ResponseWriter, client_runs_every_function_call
from holodeck.lib import tracing
from holodeck.lib.errors import ExecutionError, StorageError
from holodeck.lib.ids import new_id
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item
from holodeck.models.items_json import encode_items
from holodeck.storage.base import UNFINISHED_STATUSES, ResponseStore, StoredResponse

# Attempts of one request to lease a conversation that other requests change between its read and its lease. Each
# attempt reads the conversation again.
LEASE_ATTEMPTS = 5

LiveResponse = LiveRun[ResponseWriter]


class ResponseBuilder:
    """Builds the runs of responses: new ones, and those that another process started."""

    def __init__(
        self,
        run_builder: RunBuilder,
        store: ResponseStore,
        seal_keys: SealKeys,
        continuations: ContinuationResolver,
        *,
        callers: Callers,
        is_durable: bool,
        in_flight: Callable[[], int],
    ) -> None:
        """`is_durable`: whether background responses are durable. `in_flight`: how many requests there are now."""
        self._callers = callers
        self._is_durable = is_durable
        self._in_flight = in_flight
        self._run_builder = run_builder
        self._store = store
        self._seal_keys = seal_keys
        self._continuations = continuations

    async def build(
        self,
        request: ResponseRequest,
        caller: Caller,
        socket_history: SocketHistory | None = None,
        *,
        client_kind: ClientKind = "openai",
    ) -> LiveResponse:
        """Build the run of a request that waits. `socket_history`: the responses that its WebSocket remembers."""
        self._run_builder.require_backend(request.model)
        live, _ = await self._lease_and_build(request, caller, socket_history, client_kind=client_kind)
        return live

    async def build_background(
        self, request: ResponseRequest, body: object, caller: Caller, *, client_kind: ClientKind
    ) -> tuple[LiveResponse, Mapping[str, Any] | None, StoredResponse]:
        """Build a background run, with the input for `rebuild` and its first record. `body` is the whole request.

        The input is None for a request with secrets, which are never stored.
        """
        self._run_builder.require_backend(request.model)
        live, continuation = await self._lease_and_build(request, caller, client_kind=client_kind)
        record = build_stored_response(live, request, continuation)
        if request.has_secrets:
            return live, None, record
        rebuild_input: dict[str, Any] = {
            "body": body,
            "owner": caller.id,
            "before": continuation.to_json(),
            "dialect": client_kind,
        }
        if caller.issuer:
            rebuild_input["issuer"] = caller.issuer
        if trace := tracing.carrier():
            rebuild_input["trace"] = dict(trace)
        return live, rebuild_input, record

    async def rebuild(self, response_id: str, rebuild_input: Mapping[str, Any]) -> LiveResponse | None:
        """Rebuild a background run, with the events that were published of it. None: it has finished, or is deleted.

        Raises `ExecutionError` when the gateway does not know its caller any more.
        """
        caller = Caller(id=rebuild_input["owner"])
        record = await self._store.get(response_id, caller.id)
        if record is None or record.status not in UNFINISHED_STATUSES:
            return None
        if not self._callers.is_known(caller.id, rebuild_input.get("issuer", "")):
            raise ExecutionError("the key of its caller was removed from the gateway.")
        # No bytes are reserved: the budget is for requests, and was checked when this one came.
        sealed = await self._continuations.open_sealed(rebuild_input["body"], find_nothing, caller, lambda _size: None)
        request = read_request(rebuild_input["body"], sealed=sealed)
        request.input.wire_items[:] = orjson.loads(record.input_items)
        continuation = Continuation.from_json(rebuild_input["before"])
        continuation.apply_to(request)
        sent = await self._store.read_events(response_id, caller.id) or []
        client_kind = rebuild_input.get("dialect", "openai")
        return await self._build_live_run(
            request, caller, continuation, response_id, client_kind=client_kind, stored=record, sent_events=sent
        )

    async def _lease_and_build(
        self,
        request: ResponseRequest,
        caller: Caller,
        socket_history: SocketHistory | None = None,
        *,
        client_kind: ClientKind,
    ) -> tuple[LiveResponse, Continuation]:
        """Resolve the continuation and build its run, which leases the conversation if calls are pending there."""
        # Checked before a model is paid and tools act for a response that cannot be stored.
        if request.store and (reason := self._store.unavailable_reason):
            raise StorageError(reason)
        response_id, conversations = new_id("resp"), self._continuations.conversations
        for _ in range(LEASE_ATTEMPTS):
            continuation = await self._continuations.resolve(request, caller, socket_history)
            if continuation.conversation_to_lease is None:
                return await self._claim_and_build(
                    request, caller, continuation, response_id, client_kind, socket_history
                ), continuation
            lease = conversations.lease(str(request.conversation_id), response_id)
            try:
                if not await conversations.acquire(lease, continuation.conversation_to_lease, caller):
                    continue
                live = await self._claim_and_build(
                    request, caller, continuation, response_id, client_kind, socket_history, lease
                )
            except BaseException:
                conversations.discard(lease)
                await asyncio.shield(conversations.release(lease, caller))
                raise
            return live, continuation
        raise conversation_changing_error()

    async def _claim_and_build(
        self,
        request: ResponseRequest,
        caller: Caller,
        continuation: Continuation,
        response_id: str,
        client_kind: ClientKind,
        socket_history: SocketHistory | None,
        lease: ConversationLease | None = None,
    ) -> LiveResponse:
        """Build a run that has claimed the pending calls with which it starts."""
        claim, claims = None, self._continuations.claims
        if continuation.calls_to_claim:
            claim = await claims.claim(
                continuation.calls_to_claim, response_id, caller.id, approved=continuation.decisions.approved
            )
        try:
            return await self._build_live_run(
                request,
                caller,
                continuation,
                response_id,
                client_kind=client_kind,
                socket_history=socket_history,
                lease=lease,
                claim=claim,
            )
        except BaseException:
            if claim is not None:
                await asyncio.shield(claims.release_unstarted(claim))
            raise

    async def _build_live_run(
        self,
        request: ResponseRequest,
        caller: Caller,
        continuation: Continuation,
        response_id: str,
        *,
        client_kind: ClientKind,
        socket_history: SocketHistory | None = None,
        stored: StoredResponse | None = None,
        sent_events: Sequence[bytes] = (),
        lease: ConversationLease | None = None,
        claim: CallClaim | None = None,
    ) -> LiveResponse:
        """`stored`: the record of a response that is rebuilt; `sent_events` is its stream so far.

        `lease` and `claim` are referenced by the run, and live as long as it.
        """
        request = add_found_tools(request, chain(continuation.context, request.input.items))
        start = await self._run_builder.build(
            request,
            response_id,
            context=continuation.context,
            pending=continuation.decisions.run,
            can_wait=request.store or socket_history is not None or request.conversation_id is not None,
            caller_id=caller.id,
            approved=continuation.decisions.approved,
            targets=continuation.targets,
            calls_with_caller_credentials=continuation.calls_with_caller_credentials,
            calls_with_unknown_outcome=continuation.calls_with_unknown_outcome,
            can_request_approval=True,
        )
        if stored is None:
            await start.servers.check_required()
        if claim is not None:
            start.servers.started = claim.started
        output = self._run_builder.config.mcp_output
        mode = None if output == "auto" else output
        forgets = client_runs_every_function_call(mode, client_kind)
        writer = ResponseWriter(
            request,
            response_id=start.request.run_id,
            created_at=time.time() if stored is None else stored.created_at,
            model=start.backend.name,
            mode=mode,
            servers=start.servers,
            pending=start.request.pending,
            approved=continuation.decisions.approved,
            listed_servers=continuation.listed_servers,
            client_kind=client_kind,
            seal=self._seal_keys.for_caller(caller.id),
            is_silent=not (request.stream or request.background),
            is_durable=self._is_durable and request.background and not request.has_secrets,
            sent_events=SentEvents(sent_events) if stored is not None else None,
        )

        async def append_to_conversation(
            live: LiveResponse, output: Sequence[dict[str, Any]], pending: PendingCalls
        ) -> None:
            threads = self._continuations.conversations
            if not _may_be_retried(live, continuation):
                await threads.append_response(request, output, pending, caller, live.id)
            elif continuation.conversation_to_lease is not None or stored is not None:
                await threads.release(threads.lease(str(request.conversation_id), live.id), caller)

        async def store_result(
            live: LiveResponse, lease: ConversationLease | None = lease, claim: CallClaim | None = claim
        ) -> None:
            resource = live.writer.build_resource()
            waiting = _collect_pending_calls(live, resource, continuation, start.servers)
            record = build_stored_response(live, request, continuation, waiting, resource)
            if claim is not None:
                await self._continuations.claims.release_unstarted(claim)
            if waiting.calls:
                is_found = request.conversation_id is None and (request.store or socket_history is not None)
                await self._continuations.claims.store_pending(waiting, caller.id, live.id, is_findable=is_found)
                if is_found and not request.store:
                    self._continuations.pending_call_cache.store(caller.id, live.id, waiting)
            if forgets and continuation.client_items and live.result is not None and live.result.tool_calls:
                made = (*continuation.decisions.run, *live.result.items)
                self._continuations.tool_history.store(
                    caller.id, continuation.client_items, made, is_client=request.is_client_function
                )
            if socket_history is not None:
                items = (*continuation.context, *_new_items_of(live, request, continuation))
                size = len(record.items) + (continuation.size if continuation.is_stored else 0)
                socket_history.store(
                    live.id, ResponseContext(items=items, size=size, pending=waiting, is_stored=request.store)
                )
            if request.conversation_id is not None:
                # First: what has ended is not gone on with, and adding to a conversation again does nothing.
                try:
                    await append_to_conversation(live, resource["output"], waiting)
                except StorageError:
                    if lease is not None and not request.background:  # in the background it is tried again
                        self._continuations.conversations.discard(lease)
                    raise
            if not request.store:
                return
            if not live.is_durable:
                await self._store.save(record, is_alone=self._in_flight() <= 1)
            elif not await self._store.finish(record):
                live.abandon()

        return LiveRun(
            start.request,
            start.backend.provider if request.needs_model else NoModel(start.backend.provider.name),
            start.toolbox,
            writer,
            caller_id=caller.id,
            store=store_result,
            wire_events=sent_events,
        )


def build_stored_response(
    live: LiveResponse,
    request: ResponseRequest,
    continuation: Continuation | None = None,
    pending: PendingCalls | None = None,
    resource: dict[str, Any] | None = None,
) -> StoredResponse:
    """The record of a response as far as it has come. `resource`: its JSON, if it is built already."""
    resource = live.writer.build_resource() if resource is None else resource
    earlier: tuple[Item, ...] = ()
    if continuation is not None:
        # A context that is in no stored chain becomes part of this record.
        earlier = continuation.decisions.refused if continuation.is_stored else continuation.context
    return StoredResponse(
        id=live.id,
        owner=live.caller_id,
        created_at=float(resource["created_at"]),
        status=str(resource["status"]),
        previous_id=request.previous_response_id if continuation is None or continuation.is_stored else None,
        conversation_id=request.conversation_id,
        resource=live.writer.encode_resource(resource),
        input_items=orjson.dumps(request.input.wire_items),
        items=encode_items((*earlier, *_new_items_of(live, request, continuation))),
        pending=(pending or PendingCalls()).encode(),
        events=b"\n".join(live.wire_events),
    )


def _collect_pending_calls(
    live: LiveResponse, resource: Mapping[str, Any], continuation: Continuation, servers: RequestServers
) -> PendingCalls:
    """The pending calls of a response that has ended, and the servers whose tools its client has seen."""
    lists = [item for item in resource["output"] if item["type"] == "mcp_list_tools"]
    listed = {item["server_label"] for item in lists if item.get("error") is None}
    pending = live.result.pending if live.result is not None else ()
    if live.result is None or not pending:
        return PendingCalls(listed_servers=continuation.listed_servers | listed)
    answered = {item.call_id for item in live.result.items if isinstance(item, FunctionCallOutput)}
    calls = (item for item in live.result.items if isinstance(item, FunctionCall))
    return PendingCalls(
        calls=pending,
        # As the run found it, not derived from the servers of now: after a crash one may be away.
        needs_approval=live.result.held,
        listed_servers=continuation.listed_servers | listed,
        targets=servers.call_targets(pending),
        calls_with_caller_credentials=servers.calls_with_caller_credentials(pending),
        paused_calls=tuple(call for call in calls if call.call_id not in answered),
    )


def _may_be_retried(live: LiveResponse, continuation: Continuation) -> bool:
    """Whether a run failed before any call. SDKs retry such a request, so its input is not added to a conversation."""
    result = live.result
    if result is None or result.status not in ("failed", "cancelled") or continuation.decisions.run:
        return False
    return not any(isinstance(item, FunctionCall) for item in result.items)


def _new_items_of(live: LiveResponse, request: ResponseRequest, continuation: Continuation | None) -> tuple[Item, ...]:
    """What a response adds to the context: its input, then its output, with an output for each call."""
    # None before the end of the run: the record is then what remains if the gateway dies.
    result = live.result
    output = with_missing_outputs(
        result.items if result is not None else (),
        resumed_calls=continuation.decisions.run if continuation is not None else (),
        pending=result.pending if result is not None else (),
        is_client_function=request.is_client_function,
        is_cut=result is None or result.status in ("cancelled", "failed"),
    )
    return (*request.input.items, *output)
