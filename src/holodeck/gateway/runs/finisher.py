"""The end of a response's run: `ResponseFinisher`, and the record that is stored.

`end_response` stores the end of one that has no run: its gateway is gone, it never started, or its own end could not be
stored.

A response that is to be stored is stored before its first tool call, as in progress (`reserve`): no tool acts for one
that cannot be. An answer without calls is stored once, at its end.

The steps of `ResponseFinisher.finish` are ordered for a crash or a storage error between any two of them. All of them
may run again for the same run (a background response is retried until it is stored), and none takes effect twice:

1. release the claimed calls that did not reach their tools;
2. store the calls that the response leaves pending, before a client can see and answer them;
3. remember in memory what the client or its WebSocket will not send back;
4. append the response to its conversation, or release the lease of one that added nothing;
5. save the record, which makes the response finished. It is last, because a finished response is not resumed after a
   crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import orjson

from holodeck.gateway.audit.run_recorder import RunRecorder
from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.continuation.memory import ResponseContext, SocketHistory
from holodeck.gateway.continuation.pending_calls import NOTHING_PENDING, CallClaim, PendingCalls, with_missing_outputs
from holodeck.gateway.continuation.resolve import Continuation, ContinuationResolver
from holodeck.gateway.limits import CallerLimits
from holodeck.gateway.mcp.request_servers import RequestServers
from holodeck.gateway.runs.live_run import LiveResponse, RunFinisher
from holodeck.gateway.runs.run_rows import build_run_row, end_run
from holodeck.gateway.wire.request.body import ResponseRequest
from holodeck.gateway.wire.response.replay import replay_events
from holodeck.gateway.wire.response.resource import usage_to_json
from holodeck.gateway.wire.response.sent_events import SentEvents
from holodeck.gateway.wire.response.writer import ResponseWriter
from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.lib.limits import STORE_RETRY_PAUSE
from holodeck.models.events import RunResult
from holodeck.models.items import (
    Compaction,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Usage,
    apply_compaction,
    encode_items,
)
from holodeck.storage.responses import StoredResponse
from holodeck.storage.runs import UNFINISHED_STATUSES
from holodeck.storage.store import ResponseStore


class ResponseFinisher(RunFinisher[ResponseWriter]):
    """Stores one response when its run has ended, and ends its claim and its lease, also if the run never starts."""

    def __init__(
        self,
        store: ResponseStore,
        continuations: ContinuationResolver,
        *,
        request: ResponseRequest,
        caller: Caller,
        continuation: Continuation,
        servers: RequestServers,
        recorder: RunRecorder | None,
        is_rebuilt: bool,
        drops_tool_calls: bool,
        socket_history: SocketHistory | None,
        claim: CallClaim | None,
        caller_limits: CallerLimits,
        fail_later: Callable[[str, str], None],
    ) -> None:
        """`is_rebuilt`: the run is that of an earlier process, whose claim and lease are in storage only.

        `recorder`: records the approvals that the run asks for, if the gateway has an audit log.
        `drops_tool_calls`: the client does not send back the gateway's own tool calls: see `ToolHistoryCache`.
        `caller_limits`: knows how many requests there are now.
        `fail_later` stores a response as failed, by its id and its caller's, as soon as storage allows it.
        """
        self._store = store
        self._continuations = continuations
        self._request = request
        self._caller = caller
        self._continuation = continuation
        self._servers = servers
        self._recorder = recorder
        self._is_rebuilt = is_rebuilt
        self._drops_tool_calls = drops_tool_calls
        self._socket_history = socket_history
        self._claim = claim
        self._caller_limits = caller_limits
        self._fail_later = fail_later
        # A background response is stored before it starts.
        self._reserves = request.store and not request.background
        self.needs_reservation = self._reserves or claim is not None
        self._is_reserved = False
        """True from `reserve` until the end is stored, or left to `fail_later`."""

    async def reserve(self, live: LiveResponse, *, has_calls: bool = False) -> None:
        if self._reserves and not self._is_reserved:
            record = replace(build_stored_response(live, self._request, self._continuation), events=b"")
            # Before the attempt: where its acknowledgement is lost, it is not known whether the row is there.
            self._is_reserved = True
            await self._store.reserve(record)
        if has_calls and self._claim is not None:
            await self._continuations.claims.confirm(self._claim)

    async def finish(self, live: LiveResponse) -> bool:
        resource = live.writer.build_resource()
        pending = _collect_pending_calls(live, resource, self._continuation, self._servers)
        record = build_stored_response(live, self._request, self._continuation, pending, resource)
        try:
            if self._claim is not None:
                await self._continuations.claims.release_unstarted(self._claim)
            if pending.calls:
                await self._store_pending(live, pending)
            if self._drops_tool_calls and live.result is not None and live.result.tool_calls:
                self._remember_calls(live.result)
            if self._socket_history is not None:
                self._remember_context(self._socket_history, live, record, pending)
            if self._request.conversation_id is not None:
                await self._append_to_conversation(self._request.conversation_id, live, resource["output"], pending)
            if live.idempotency_key is not None:
                await self._release_key(live, live.idempotency_key)
            return await self._save(live, record)
        except StorageError:
            # A background response is stored again later, and keeps its lease until then. For others the next request
            # may come as soon as the client is told of the error.
            if not self._request.background:
                self.close(live)
            raise

    async def release(self, live: LiveResponse) -> None:
        if self._claim is not None:
            await self._continuations.claims.release_unstarted(self._claim)
        if self._request.conversation_id is not None and self._continuation.conversation_to_lease is not None:
            await self._continuations.conversations.release(self._request.conversation_id, self._caller, live.id)

    def close(self, live: LiveResponse) -> None:
        if self._continuation.conversation_to_lease is not None:
            self._continuations.conversations.forget_lease(live.id)
        if self._is_reserved:
            self._is_reserved = False
            self._fail_later(live.id, self._caller.id)

    async def _store_pending(self, live: LiveResponse, pending: PendingCalls) -> None:
        """Store pending calls, and cache those of a response that is not stored itself."""
        if self._recorder is not None:
            asked = [call for call in pending.calls if call.call_id in pending.needs_approval]
            await self._recorder.record_approval_requests(asked, pending.targets)
        request, caller_id = self._request, self._caller.id
        is_findable = request.conversation_id is None and (request.store or self._socket_history is not None)
        await self._continuations.claims.store_pending(pending, caller_id, live.id, is_findable=is_findable)
        if is_findable and not request.store:
            self._continuations.pending_call_cache.store(caller_id, live.id, pending)

    def _remember_calls(self, result: RunResult) -> None:
        """Remember in memory the tool calls that the client drops."""
        request, continuation = self._request, self._continuation
        if continuation.client_items:
            self._continuations.tool_history.store(
                self._caller.id,
                continuation.client_items,
                (*continuation.decisions.run, *result.items),
                is_client=request.is_client_function,
            )

    def _remember_context(
        self, history: SocketHistory, live: LiveResponse, record: StoredResponse, pending: PendingCalls
    ) -> None:
        """Remember in memory the context of the response, for its WebSocket."""
        request, continuation, is_compacted = self._request, self._continuation, _is_compacted(live)
        earlier = () if is_compacted else continuation.context
        items = (*earlier, *_new_items_of(live, request, continuation))
        size = len(record.items) + (continuation.size if continuation.is_stored and not is_compacted else 0)
        history.store(live.id, ResponseContext(items=items, size=size, pending=pending, is_stored=request.store))

    async def _append_to_conversation(
        self, conversation_id: str, live: LiveResponse, output: Sequence[dict[str, Any]], pending: PendingCalls
    ) -> None:
        """Append the response to its conversation. One that its client may retry only releases its lease.

        Comes before the record is saved: a finished response is not resumed, and appending again does nothing.
        """
        conversations = self._continuations.conversations
        if not _may_be_retried(live, self._continuation):
            await conversations.append_response(self._request, output, pending, self._caller, live.id)
        elif self._continuation.conversation_to_lease is not None or self._is_rebuilt:
            await conversations.release(conversation_id, self._caller, live.id)

    async def _release_key(self, live: LiveResponse, key: str) -> None:
        """Make the idempotency key free of a response that did nothing: its client may send the request again."""
        if _may_be_retried(live, self._continuation):
            await self._store.idempotency_keys.release_key(self._caller.id, key, live.id)

    async def _save(self, live: LiveResponse, record: StoredResponse) -> bool:
        """Save the record of a response that is to be stored. False: a durable one is another process's by now."""
        if self._request.store and live.is_durable:
            return await self._store.finish(record)
        if self._request.store:
            await self._store.save(record, is_alone=self._caller_limits.in_flight <= 1, is_reserved=self._is_reserved)
            self._is_reserved = False
        return True


def build_stored_response(
    live: LiveResponse,
    request: ResponseRequest,
    continuation: Continuation | None = None,
    pending: PendingCalls | None = None,
    resource: dict[str, Any] | None = None,
) -> StoredResponse:
    """Return the record of a response as far as it has come. `resource`: its JSON, if it is built already."""
    resource = live.writer.build_resource() if resource is None else resource
    earlier: tuple[Item, ...] = ()
    is_compacted = _is_compacted(live)
    if continuation is not None and not is_compacted:
        # A context that is in no stored chain becomes part of this record.
        earlier = continuation.decisions.refused if continuation.is_stored else continuation.context
    is_in_chain = continuation is None or continuation.is_stored
    items = (*earlier, *_new_items_of(live, request, continuation))
    live.trace.set_stored_items(
        before=len(earlier) + len(request.input.items),
        context=len(continuation.context) if continuation is not None and continuation.is_stored else 0,
    )
    return StoredResponse(
        id=live.id,
        caller_id=live.caller_id,
        created_at=live.trace.created_at,
        status=str(resource["status"]),
        previous_id=None if is_compacted or not is_in_chain else request.previous_response_id,
        conversation_id=request.conversation_id,
        resource=live.writer.encode_resource(resource),
        input_items=orjson.dumps(request.input.wire_items),
        items=encode_items(items),
        pending=(pending or NOTHING_PENDING).encode(),
        events=live.wire_events.join(),
        trace=live.trace.encode(),
        run=build_run_row(live, resource),
    )


def _collect_pending_calls(
    live: LiveResponse, resource: Mapping[str, Any], continuation: Continuation, servers: RequestServers
) -> PendingCalls:
    """Return the pending calls of a response that has ended, and the servers whose tools its client has seen."""
    lists = [item for item in resource["output"] if item["type"] == "mcp_list_tools"]
    listed = {item["server_label"] for item in lists if item.get("error") is None}
    pending = live.result.pending if live.result is not None else ()
    if live.result is None or not pending:
        seen = continuation.listed_servers | listed
        return PendingCalls(listed_servers=seen) if seen else NOTHING_PENDING
    answered = {item.call_id for item in live.result.items if isinstance(item, FunctionCallOutput)}
    calls = (item for item in live.result.items if isinstance(item, FunctionCall))
    return PendingCalls(
        calls=pending,
        # As the run found it, not derived from the servers of now: after a crash one may be away.
        needs_approval=live.result.held,
        listed_servers=continuation.listed_servers | listed,
        targets=servers.call_targets(pending),
        definitions=servers.call_definitions(pending),
        calls_with_caller_credentials=servers.calls_with_caller_credentials(pending),
        paused_calls=tuple(call for call in calls if call.call_id not in answered),
    )


def _may_be_retried(live: LiveResponse, continuation: Continuation) -> bool:
    """Return whether a run failed before any call. SDKs retry such a request: no conversation gets its input."""
    result = live.result
    if result is None or result.status not in ("failed", "cancelled") or continuation.decisions.run:
        return False
    return not any(isinstance(item, FunctionCall) for item in result.items)


def _new_items_of(live: LiveResponse, request: ResponseRequest, continuation: Continuation | None) -> tuple[Item, ...]:
    """Return what a response adds to the context: its input, then its output, with an output for each call.

    After a compaction, it is the whole context instead: what was compacted, then the output that followed.
    """
    # None before the end of the run: the record is then what remains if the gateway dies.
    result = live.result
    output = with_missing_outputs(
        result.items if result is not None else (),
        resumed_calls=continuation.decisions.run if continuation is not None else (),
        pending=result.pending if result is not None else (),
        is_client_call=request.is_client_call,
        is_cut=result is None or result.status in ("cancelled", "failed"),
    )
    return apply_compaction((*request.input.items, *output))


def _is_compacted(live: LiveResponse) -> bool:
    """Return whether the context was compacted in the run. The chain of responses then begins anew with this one."""
    return live.result is not None and Compaction in map(type, live.result.items)


NOT_STORED_TEXT = "The gateway could not store the end of this response."
STOPPED_TEXT = "The gateway stopped while this response was being made."
OTHER_VERSION_TEXT = (
    "The gateway stopped while this response was being made, and this version of HoloDeck cannot go on with what "
    "another one began."
)
ENDED_TEXT = "An error in the gateway ended this response."
DAMAGED_TEXT = "What the gateway kept of this response is damaged, and it cannot be gone on with."


async def end_response(
    store: ResponseStore, record: StoredResponse, status: Literal["failed", "cancelled"], reason: str = ""
) -> None:
    """Store the end of a response that has no run, and complete its stored stream."""
    sent = await store.read_events(record.id, record.caller_id) or []
    resource = orjson.loads(record.resource) | {"status": status}
    # The real usage was lost with the process of the run.
    resource["usage"] = resource["usage"] or usage_to_json(Usage())
    if status == "failed":
        resource["error"] = {"code": "server_error", "message": reason}
    else:
        resource["incomplete_details"] = {"reason": "cancelled"}
    events = b"\n".join([*sent, *replay_events(resource, sent_events=SentEvents(sent))]) if sent else b""
    run = await store.runs.get_run(record.id, record.caller_id)
    await store.save(
        replace(
            record,
            status=status,
            resource=orjson.dumps(resource),
            events=events,
            run=None if run is None else end_run(run, status, resource["error"]),
        )
    )


async def fail_unstored_response(store: ResponseStore, response_id: str, caller_id: str) -> None:
    """Store a response as failed whose own end could not be stored, and wait until storage takes that."""
    while True:
        try:
            record = await store.get(response_id, caller_id)
            if record is not None and record.status in UNFINISHED_STATUSES:
                await end_response(store, record, "failed", NOT_STORED_TEXT)
        except StorageError as error:
            log.debug("gateway.storage_failed", response=response_id, error=error)
            await asyncio.sleep(STORE_RETRY_PAUSE)
        else:
            return
