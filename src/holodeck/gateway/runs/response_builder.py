"""Building of a response's run: its continuation, claim and lease, tools, writer, and what is stored at its end.

`ResponseBuilder.build` resolves the continuation of a request, leases its conversation if calls are pending there,
claims the pending calls that it runs, and builds a `LiveRun`. If building fails, claim and lease are released. The run
has both until it is stored, or closed without a start: the caller of `build` owns it, and closes it in any case.
`rebuild` builds the run of a durable response of another process, whose claim and lease are in storage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import chain
from typing import Any

import orjson

from holodeck.gateway.audit.run_recorder import RunRecorder
from holodeck.gateway.auth.callers import Caller, Callers
from holodeck.gateway.continuation.conversation_lock import conversation_changing_error
from holodeck.gateway.continuation.memory import SocketHistory
from holodeck.gateway.continuation.pending_calls import CallClaim
from holodeck.gateway.continuation.resolve import Continuation, ContinuationResolver
from holodeck.gateway.limits import CallerLimits
from holodeck.gateway.runs.finisher import ResponseFinisher, build_stored_response
from holodeck.gateway.runs.live_run import LiveResponse
from holodeck.gateway.runs.run_builder import RunBuilder
from holodeck.gateway.runs.run_trace import RunTrace, TraceSettings, read_trace
from holodeck.gateway.sealing import SealKeys
from holodeck.gateway.wire.client_kind import ClientKind
from holodeck.gateway.wire.request.body import ResponseRequest, add_found_tools, read_request
from holodeck.gateway.wire.request.parsed_input import find_nothing
from holodeck.gateway.wire.response.sent_events import SentEvents
from holodeck.gateway.wire.response.writer import ResponseWriter
from holodeck.lib import tracing
from holodeck.lib.errors import ExecutionError
from holodeck.lib.ids import new_id
from holodeck.lib.record import record
from holodeck.storage.responses import StoredResponse
from holodeck.storage.runs import UNFINISHED_STATUSES
from holodeck.storage.store import ResponseStore

# Attempts of one request to lease a conversation that other requests change between its read and its lease. Each
# attempt reads the conversation again.
LEASE_ATTEMPTS = 5

__all__ = ["LEASE_ATTEMPTS", "LiveResponse", "ResponseBuilder"]


@record
class _ResponseOrder:
    """The facts about a response before its run is built."""

    id: str = field(default_factory=partial(new_id, "resp"))
    request: ResponseRequest
    caller: Caller
    client_kind: ClientKind
    socket_history: SocketHistory | None = None
    """The responses that its WebSocket remembers."""
    stored: StoredResponse | None = None
    """The record of a response that is rebuilt; `sent_events` is its stream so far."""
    sent_events: Sequence[bytes] = ()


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
        caller_limits: CallerLimits,
        fail_later: Callable[[str, str], None],
    ) -> None:
        """`is_durable`: whether background responses are durable. `caller_limits`: how many requests there are now.

        `fail_later`: see `ResponseFinisher`.
        """
        self._fail_later = fail_later
        self._callers = callers
        self._is_durable = is_durable
        self._caller_limits = caller_limits
        self._run_builder = run_builder
        self._store = store
        self._seal_keys = seal_keys
        self._continuations = continuations
        self.extra_parameters_for = run_builder.extra_parameters_for
        self.configurations = run_builder.configurations

    async def build(
        self,
        request: ResponseRequest,
        caller: Caller,
        socket_history: SocketHistory | None = None,
        *,
        client_kind: ClientKind = "openai",
    ) -> LiveResponse:
        """Build the run of a request that waits. `socket_history`: the responses that its WebSocket remembers."""
        self._run_builder.require_backend(request.model, caller)
        order = _ResponseOrder(request=request, caller=caller, client_kind=client_kind, socket_history=socket_history)
        return (await self._lease_and_build(order))[0]

    async def build_background(
        self, request: ResponseRequest, body: object, caller: Caller, *, client_kind: ClientKind
    ) -> tuple[LiveResponse, Mapping[str, Any] | None, StoredResponse]:
        """Build a background run, with the input for `rebuild` and its first record. `body` is the whole request.

        The input is None for a request with secrets, which are never stored.
        """
        self._run_builder.require_backend(request.model, caller)
        order = _ResponseOrder(request=request, caller=caller, client_kind=client_kind)
        live, continuation = await self._lease_and_build(order)
        live.trace.record_queued()
        record = build_stored_response(live, request, continuation)
        if request.has_secrets:
            return live, None, record
        rebuild_input: dict[str, Any] = {
            "body": body,
            "caller_id": caller.id,
            "continuation": continuation.to_json(),
            "client_kind": client_kind,
        }
        if caller.issuer:
            rebuild_input["issuer"] = caller.issuer
        if caller.claim_values:
            rebuild_input["claim_values"] = {claim: list(values) for claim, values in caller.claim_values.items()}
        if trace := tracing.carrier():
            rebuild_input["trace"] = dict(trace)
        return live, rebuild_input, record

    async def rebuild(self, response_id: str, rebuild_input: Mapping[str, Any]) -> LiveResponse | None:
        """Rebuild a background run, with the events that were published of it. None: it has finished, or is deleted.

        It goes on with the scope that its caller has now. Raises `ExecutionError` when the gateway does not know its
        caller any more, and `APIError` or `BadRequestError` for what is out of scope now.
        """
        # No request counts the configuration before the run does.
        with self.configurations.current.uses:
            return await self._rebuild(response_id, rebuild_input)

    async def _rebuild(self, response_id: str, rebuild_input: Mapping[str, Any]) -> LiveResponse | None:
        record = await self._store.get(response_id, rebuild_input["caller_id"])
        if record is None or record.status not in UNFINISHED_STATUSES:
            return None
        caller = self._callers.find_caller(
            rebuild_input["caller_id"], rebuild_input.get("issuer", ""), rebuild_input.get("claim_values", {})
        )
        if caller is None:
            raise ExecutionError("the key of its caller was removed from the gateway.")
        # No bytes are reserved: the budget is for requests, and was checked when this one came.
        sealed = await self._continuations.open_sealed(rebuild_input["body"], find_nothing, caller, lambda _size: None)
        request = read_request(
            rebuild_input["body"], sealed=sealed, extra_parameters_of=self._run_builder.extra_parameters_for(caller)
        )
        request.input.wire_items[:] = orjson.loads(record.input_items)
        continuation = Continuation.from_json(rebuild_input["continuation"])
        continuation.apply_to(request)
        sent = await self._store.read_events(response_id, caller.id) or []
        client_kind: ClientKind = rebuild_input["client_kind"]
        order = _ResponseOrder(
            id=response_id, request=request, caller=caller, client_kind=client_kind, stored=record, sent_events=sent
        )
        return await self._build_live_run(order, continuation)

    async def _lease_and_build(self, order: _ResponseOrder) -> tuple[LiveResponse, Continuation]:
        """Resolve the continuation and build its run, which leases the conversation if calls are pending there."""
        request, caller = order.request, order.caller
        # Checked before a model is paid and tools act for a response that cannot be stored.
        if request.store and self._store.unavailable_reason:
            # Raises, unless storage works again.
            await self._store.check_health()
        conversations = self._continuations.conversations
        for _ in range(LEASE_ATTEMPTS):
            continuation = await self._continuations.resolve(request, caller, order.socket_history)
            if continuation.conversation_to_lease is None:
                build = self._claim_and_build if continuation.decisions.run else self._build_live_run
                return await build(order, continuation), continuation
            conversation_id = str(request.conversation_id)
            try:
                if not await conversations.lease(conversation_id, continuation.conversation_to_lease, caller, order.id):
                    continue
                return await self._claim_and_build(order, continuation), continuation
            except BaseException:
                try:
                    await asyncio.shield(conversations.release(conversation_id, caller, order.id))
                finally:
                    conversations.forget_lease(order.id)
                raise
        raise conversation_changing_error()

    async def _claim_and_build(self, order: _ResponseOrder, continuation: Continuation) -> LiveResponse:
        """Build a run that has claimed the pending calls with which it starts."""
        if not continuation.calls_to_claim:
            return await self._build_live_run(order, continuation)
        claims = self._continuations.claims
        claim = await claims.claim(
            continuation.calls_to_claim, order.id, order.caller.id, approved=continuation.decisions.approved
        )
        try:
            return await self._build_live_run(order, continuation, claim)
        except BaseException:
            await asyncio.shield(claims.release_unstarted(claim))
            raise

    async def _build_live_run(
        self, order: _ResponseOrder, continuation: Continuation, claim: CallClaim | None = None
    ) -> LiveResponse:
        caller, stored, socket_history = order.caller, order.stored, order.socket_history
        request = add_found_tools(order.request, chain(continuation.context, order.request.input.items))
        prepared = await self._run_builder.build(
            request,
            order.id,
            caller=caller,
            door="responses",
            can_wait=request.store or socket_history is not None or request.conversation_id is not None,
            continuation=continuation,
        )
        if stored is None:
            await prepared.servers.check_required()
        if prepared.recorder is not None:
            await _record_start(prepared.recorder, continuation, is_rebuilt=stored is not None)
        if claim is not None:
            prepared.servers.started = claim.started
        finisher = ResponseFinisher(
            self._store,
            self._continuations,
            request=request,
            caller=caller,
            continuation=continuation,
            servers=prepared.servers,
            recorder=prepared.recorder,
            is_rebuilt=stored is not None,
            drops_tool_calls=prepared.configuration.gateway.mcp_output == "openai",
            socket_history=socket_history,
            claim=claim,
            caller_limits=self._caller_limits,
            fail_later=self._fail_later,
        )
        seal = self._seal_keys.for_caller(caller.id)
        settings = prepared.trace_settings
        trace = RunTrace(settings) if stored is None else _continue_trace(settings, stored)
        writer = ResponseWriter(
            request,
            response_id=order.id,
            # The response and its run were created at one time, not at two of which the seconds may differ.
            created_at=trace.created_at if stored is None else stored.created_at,
            model=prepared.backend.name,
            mode=prepared.configuration.gateway.mcp_output,
            servers=prepared.servers,
            pending=prepared.request.pending,
            approved=continuation.decisions.approved,
            listed_servers=continuation.listed_servers,
            client_kind=order.client_kind,
            seal=seal,
            is_silent=not (request.stream or request.background),
            is_durable=self._is_durable and request.background and not request.has_secrets,
            sent_events=None if stored is None else SentEvents(order.sent_events),
        )
        model = self._run_builder.build_model(request, prepared, seal, caller)
        return prepared.start(writer, finisher, model=model, trace=trace, sent_events=order.sent_events)


def _continue_trace(settings: TraceSettings, stored: StoredResponse) -> RunTrace:
    """Build the recorder of the rest of a run that an earlier process has begun."""
    trace = read_trace(stored.trace)
    return RunTrace(settings, created_at=stored.created_at) if trace is None else RunTrace.restore(trace, settings)


async def _record_start(recorder: RunRecorder, continuation: Continuation, *, is_rebuilt: bool) -> None:
    """Record what precedes a run: the decisions of its request, or that it is continued here."""
    if is_rebuilt:
        await recorder.record_takeover()
        return
    decisions = continuation.decisions
    approved = [call for call in decisions.run if call.call_id in decisions.approved]
    await recorder.record_decisions(approved, decisions.denied, continuation.targets)
