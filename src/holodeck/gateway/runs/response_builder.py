"""Building of a response's run: its continuation, claim and lease, tools, writer, and what is stored at its end.

`ResponseBuilder.build` resolves the continuation of a request, leases its conversation if calls are pending there,
claims the pending calls that it runs, and builds a `LiveRun`. If building fails, claim and lease are released. The run
has both until it is stored, or closed without a start: the caller of `build` owns it, and closes it in any case.
`rebuild` builds the run of a durable response of another process, whose claim and lease are in storage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import orjson

from holodeck.gateway.audit.run_recorder import RunRecorder
from holodeck.gateway.auth.callers import Caller, Callers
from holodeck.gateway.continuation.conversation_lock import conversation_changing_error
from holodeck.gateway.continuation.memory import SocketHistory
from holodeck.gateway.continuation.pending_calls import CallClaim
from holodeck.gateway.continuation.resolve import Continuation, ContinuationResolver
from holodeck.gateway.runs.finisher import ResponseFinisher, build_stored_response
from holodeck.gateway.runs.live_run import LiveResponse, LiveRun
from holodeck.gateway.runs.run_builder import PreparedRun, RunBuilder
from holodeck.gateway.sealing import SealKeys
from holodeck.gateway.wire.client_kind import ClientKind
from holodeck.gateway.wire.request.body import ResponseRequest, read_request
from holodeck.gateway.wire.request.parsed_input import find_nothing
from holodeck.gateway.wire.request.tool_search import add_found_tools
from holodeck.gateway.wire.response.sent_events import SentEvents
from holodeck.gateway.wire.response.writer import ResponseWriter
from holodeck.lib import tracing
from holodeck.lib.errors import ExecutionError
from holodeck.lib.ids import new_id
from holodeck.storage.base import UNFINISHED_STATUSES, ResponseStore, StoredResponse

# Attempts of one request to lease a conversation that other requests change between its read and its lease. Each
# attempt reads the conversation again.
LEASE_ATTEMPTS = 5

__all__ = ["LEASE_ATTEMPTS", "LiveResponse", "ResponseBuilder"]


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
        fail_later: Callable[[str, str], None],
    ) -> None:
        """`is_durable`: whether background responses are durable. `in_flight`: how many requests there are now.

        `fail_later`: see `ResponseFinisher`.
        """
        self._fail_later = fail_later
        self._callers = callers
        self._is_durable = is_durable
        self._in_flight = in_flight
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
        live, _ = await self._lease_and_build(request, caller, socket_history, client_kind=client_kind)
        return live

    async def build_background(
        self, request: ResponseRequest, body: object, caller: Caller, *, client_kind: ClientKind
    ) -> tuple[LiveResponse, Mapping[str, Any] | None, StoredResponse]:
        """Build a background run, with the input for `rebuild` and its first record. `body` is the whole request.

        The input is None for a request with secrets, which are never stored.
        """
        self._run_builder.require_backend(request.model, caller)
        live, continuation = await self._lease_and_build(request, caller, client_kind=client_kind)
        live.trace.record_queued()
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
        record = await self._store.get(response_id, rebuild_input["owner"])
        if record is None or record.status not in UNFINISHED_STATUSES:
            return None
        caller = self._callers.find_caller(
            rebuild_input["owner"], rebuild_input.get("issuer", ""), rebuild_input.get("claim_values", {})
        )
        if caller is None:
            raise ExecutionError("the key of its caller was removed from the gateway.")
        # No bytes are reserved: the budget is for requests, and was checked when this one came.
        sealed = await self._continuations.open_sealed(rebuild_input["body"], find_nothing, caller, lambda _size: None)
        request = read_request(
            rebuild_input["body"], sealed=sealed, extra_parameters_of=self._run_builder.extra_parameters_for(caller)
        )
        request.input.wire_items[:] = orjson.loads(record.input_items)
        continuation = Continuation.from_json(rebuild_input["before"])
        continuation.apply_to(request)
        sent = await self._store.read_events(response_id, caller.id) or []
        client_kind: ClientKind = "open_responses" if rebuild_input.get("dialect") == "open_responses" else "openai"
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
        if request.store and self._store.unavailable_reason:
            # Raises, unless storage works again.
            await self._store.check_health()
        response_id, conversations = new_id("resp"), self._continuations.conversations
        for _ in range(LEASE_ATTEMPTS):
            continuation = await self._continuations.resolve(request, caller, socket_history)
            if continuation.conversation_to_lease is None:
                return await self._claim_and_build(
                    request, caller, continuation, response_id, client_kind, socket_history
                ), continuation
            conversation_id = str(request.conversation_id)
            try:
                if not await conversations.lease(
                    conversation_id, continuation.conversation_to_lease, caller, response_id
                ):
                    continue
                live = await self._claim_and_build(
                    request, caller, continuation, response_id, client_kind, socket_history
                )
            except BaseException:
                try:
                    await asyncio.shield(conversations.release(conversation_id, caller, response_id))
                finally:
                    conversations.forget_lease(response_id)
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
        claim: CallClaim | None = None,
    ) -> LiveResponse:
        """`stored`: the record of a response that is rebuilt; `sent_events` is its stream so far."""
        request = add_found_tools(request, chain(continuation.context, request.input.items))
        can_wait = request.store or socket_history is not None or request.conversation_id is not None
        prepared = await self._run_builder.build_continued(
            request, response_id, continuation, can_wait=can_wait, caller=caller, door="responses"
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
            in_flight=self._in_flight,
            fail_later=self._fail_later,
        )
        trace = self._run_builder.build_trace(prepared, caller, stored)
        # The response and its run were created at one time, not at two of which the seconds may differ.
        created_at = trace.created_at if stored is None else stored.created_at
        sent = None if stored is None else SentEvents(sent_events)
        return LiveRun(
            prepared.request,
            self._run_builder.build_model(request, prepared, self._seal_keys.for_caller(caller.id), caller),
            prepared.toolbox,
            self._build_writer(request, caller, continuation, prepared, client_kind, created_at, sent),
            caller_id=caller.id,
            finisher=finisher,
            wire_events=sent_events,
            uses=prepared.configuration.uses,
            trace=trace,
        )

    def _build_writer(
        self,
        request: ResponseRequest,
        caller: Caller,
        continuation: Continuation,
        prepared: PreparedRun,
        client_kind: ClientKind,
        created_at: float,
        sent_events: SentEvents | None,
    ) -> ResponseWriter:
        return ResponseWriter(
            request,
            response_id=prepared.request.run_id,
            created_at=created_at,
            model=prepared.backend.name,
            mode=prepared.configuration.gateway.mcp_output,
            servers=prepared.servers,
            pending=prepared.request.pending,
            approved=continuation.decisions.approved,
            listed_servers=continuation.listed_servers,
            client_kind=client_kind,
            seal=self._seal_keys.for_caller(caller.id),
            is_silent=not (request.stream or request.background),
            is_durable=self._is_durable and request.background and not request.has_secrets,
            sent_events=sent_events,
        )


async def _record_start(recorder: RunRecorder, continuation: Continuation, *, is_rebuilt: bool) -> None:
    """Record what precedes a run: the decisions of its request, or that it is continued here."""
    if is_rebuilt:
        await recorder.record_takeover()
        return
    decisions = continuation.decisions
    approved = [call for call in decisions.run if call.call_id in decisions.approved]
    await recorder.record_decisions(approved, decisions.denied, continuation.targets)
