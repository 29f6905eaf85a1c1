"""A response in the making: a request, what came before it, the tools it may use, and how it is written and kept."""

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

# Of a request to take what waits in a conversation that others change at the same moment.
LEASE_ATTEMPTS = 5


LiveResponse = LiveRun[ResponseWriter]


class ResponseBuilder:
    """Makes runs that are ready to go: new ones, and those that another process had begun."""

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
        """`is_durable`: whether background runs are kept step by step. `in_flight`: how many runs there are now."""
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
        """A run with the context of what came before. `socket_history`: what its connection remembers."""
        self._run_builder.require_backend(request.model)
        live, _ = await self._lease_and_build(request, caller, socket_history, client_kind=client_kind)
        return live

    async def build_background(
        self, request: ResponseRequest, body: object, caller: Caller, *, client_kind: ClientKind
    ) -> tuple[LiveResponse, Mapping[str, Any] | None, StoredResponse]:
        """The same, and its record, with all that `rebuild` needs; `body` is the whole request.

        None: it has secrets, and nobody may.
        """
        self._run_builder.require_backend(request.model)
        live, before = await self._lease_and_build(request, caller, client_kind=client_kind)
        record = build_stored_response(live, request, before)
        if request.has_secrets:
            return live, None, record
        given: dict[str, Any] = {"body": body, "owner": caller.id, "before": before.to_json(), "dialect": client_kind}
        if caller.issuer:
            given["issuer"] = caller.issuer
        if carried := tracing.carrier():
            given["trace"] = dict(carried)
        return live, given, record

    async def rebuild(self, response_id: str, rebuild_input: Mapping[str, Any]) -> LiveResponse | None:
        """A background run as it was given, with what clients have heard of it. None: it has ended, or is deleted.

        Raises `ExecutionError` when the gateway does not know its caller any more.
        """
        caller = Caller(id=rebuild_input["owner"])
        record = await self._store.get(response_id, caller.id)
        if record is None or record.status not in UNFINISHED_STATUSES:
            return None
        if not self._callers.is_known(caller.id, rebuild_input.get("issuer", "")):
            raise ExecutionError("the key of its caller was removed from the gateway.")
        # It was within the budget when it came, and is a run now, not a request.
        sealed = await self._continuations.open_sealed(rebuild_input["body"], find_nothing, caller, lambda _size: None)
        request = read_request(rebuild_input["body"], sealed=sealed)
        request.input.wire_items[:] = orjson.loads(record.input_items)
        before = Continuation.from_json(rebuild_input["before"])
        before.apply_to(request)
        told = await self._store.read_events(response_id, caller.id) or []
        dialect = rebuild_input.get("dialect", "openai")
        return await self._build_live_run(
            request, caller, before, response_id, client_kind=dialect, stored=record, sent_events=told
        )

    async def _lease_and_build(
        self,
        request: ResponseRequest,
        caller: Caller,
        socket_history: SocketHistory | None = None,
        *,
        client_kind: ClientKind,
    ) -> tuple[LiveResponse, Continuation]:
        """A new response that has taken what waits in its conversation, if something does."""
        if request.store and (
            why := self._store.unavailable_reason
        ):  # before a model is paid and tools act for nothing
            raise StorageError(why)
        response_id, threads = new_id("resp"), self._continuations.conversations
        for _ in range(LEASE_ATTEMPTS):
            before = await self._continuations.resolve(request, caller, socket_history)
            if before.conversation_to_lease is None:
                return await self._claim_and_build(
                    request, caller, before, response_id, client_kind, socket_history
                ), before
            hold = threads.lease(str(request.conversation_id), response_id)
            try:
                if not await threads.acquire(hold, before.conversation_to_lease, caller):
                    continue
                live = await self._claim_and_build(
                    request, caller, before, response_id, client_kind, socket_history, hold
                )
            except BaseException:
                threads.discard(hold)
                await asyncio.shield(threads.release(hold, caller))
                raise
            return live, before
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
        """A run that has taken the calls with which it begins, if there are any."""
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
        """`stored`: the response whose run this is, if there is one already; `sent_events` is its stream so far.

        `lease` and `claim` are kept for as long as the run is.
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
    """Everything that is kept of a response, as far as it has come. `resource`: how it shows, if that is known."""
    resource = live.writer.build_resource() if resource is None else resource
    earlier: tuple[Item, ...] = ()
    if continuation is not None:  # what nobody stored is in no chain, so it is kept here
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
    """What a response that has ended leaves to the next one."""
    lists = [item for item in resource["output"] if item["type"] == "mcp_list_tools"]
    seen = {item["server_label"] for item in lists if item.get("error") is None}
    pending = live.result.pending if live.result is not None else ()
    if live.result is None or not pending:
        return PendingCalls(listed_servers=continuation.listed_servers | seen)
    answered = {item.call_id for item in live.result.items if isinstance(item, FunctionCallOutput)}
    calls = (item for item in live.result.items if isinstance(item, FunctionCall))
    return PendingCalls(
        calls=pending,
        # Not as it looks now: after a crash its server may be away, and the call waits all the same.
        needs_approval=live.result.held,
        listed_servers=continuation.listed_servers | seen,
        targets=servers.call_targets(pending),
        calls_with_caller_credentials=servers.calls_with_caller_credentials(pending),
        paused_calls=tuple(call for call in calls if call.call_id not in answered),
    )


def _may_be_retried(live: LiveResponse, continuation: Continuation) -> bool:
    """A run that failed before it called anything. SDKs ask again by themselves, and would be there twice."""
    result = live.result
    if result is None or result.status not in ("failed", "cancelled") or continuation.decisions.run:
        return False
    return not any(isinstance(item, FunctionCall) for item in result.items)


def _new_items_of(live: LiveResponse, request: ResponseRequest, continuation: Continuation | None) -> tuple[Item, ...]:
    """What a response adds to the conversation: its input, then its output."""
    result = live.result  # none yet: this is what there is of it should the gateway die
    output = with_missing_outputs(
        result.items if result is not None else (),
        resumed_calls=continuation.decisions.run if continuation is not None else (),
        pending=result.pending if result is not None else (),
        is_client_function=request.is_client_function,
        is_cut=result is None or result.status in ("cancelled", "failed"),
    )
    return (*request.input.items, *output)
