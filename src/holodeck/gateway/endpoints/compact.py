"""Routes that compact a conversation into one sealed item, and that count its tokens."""

from __future__ import annotations

import time
from dataclasses import replace

from holodeck.engine.tokens import count_tokens
from holodeck.gateway.api import examples
from holodeck.gateway.api.models.compact_conversation import COMPACT_PATH
from holodeck.gateway.api.route import route
from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.backends import Backend
from holodeck.gateway.context.compaction import CompactedContext
from holodeck.gateway.continuation.approvals import insert_outputs
from holodeck.gateway.continuation.conversation_lock import check_context_size
from holodeck.gateway.continuation.pending_calls import PendingCalls, pending_calls_of
from holodeck.gateway.continuation.resolve import Continuation, ContinuationResolver
from holodeck.gateway.http.error_codes import INPUT_ERRORS
from holodeck.gateway.http.replies import Reply, compaction_header, json_reply
from holodeck.gateway.http.request import Request
from holodeck.gateway.runs.run_builder import RunBuilder
from holodeck.gateway.sealing import SealKeys, plain_size
from holodeck.gateway.usage.accounts import Accounts
from holodeck.gateway.usage.budgets import Budgets
from holodeck.gateway.wire.compaction_item import CompactionContent
from holodeck.gateway.wire.item_ids import approval_id
from holodeck.gateway.wire.request.body import read_request
from holodeck.gateway.wire.request.compact import build_compaction, read_compact_request
from holodeck.lib.off_loop import run_off_loop
from holodeck.models.events import RunResult
from holodeck.models.items import FunctionCallOutput, Item, place_outputs_after_calls
from holodeck.models.model_io import ModelRequest


class ContextEndpoints:
    """Routes about the context of a request."""

    def __init__(
        self,
        run_builder: RunBuilder,
        continuations: ContinuationResolver,
        seal_keys: SealKeys,
        *,
        accounts: Accounts,
        budgets: Budgets,
        max_bytes: int,
    ) -> None:
        """`accounts`, `budgets`: count the tokens of summaries. `max_bytes`: of a compacted conversation."""
        self._accounts = accounts
        self._budgets = budgets
        self._max_bytes = max_bytes
        self._run_builder = run_builder
        self._continuations = continuations
        self._seal_keys = seal_keys

    @route(
        "POST",
        COMPACT_PATH,
        id="compactConversation",
        tag="Responses",
        summary="Compact a conversation",
        description=(
            "Returns one encrypted item, which holds the conversation in fewer tokens, after those of your messages "
            "that it keeps, which you can read. Send all of it at the beginning of your next input, instead of the "
            "items before.\n\n"
            "Recent items, your messages and open calls are kept as they are. A model writes a summary of the rest. "
            "If it cannot, old outputs are cut and the oldest items left out; the reply then has the header "
            "`x-holodeck-compaction: truncated`. A short conversation is kept whole."
        ),
        body="CompactConversation",
        example_body={"model": "demo", "input": "Hello"},
        reply="CompactedConversation",
        example=examples.COMPACTED,
        errors=INPUT_ERRORS,
        is_paid=True,
    )
    async def compact(self, request: Request) -> Reply:
        """Compact a conversation, and build one sealed item of it, after the messages of users that it keeps."""
        body, caller = request.json(), request.caller
        find = await self._continuations.build_item_lookup(body, caller)
        sealed = await self._continuations.open_sealed(body, find, caller, request.reservation.acquire)
        compaction = read_compact_request(body, sealed=sealed, find_item=find)
        backend = self._run_builder.require_backend(compaction.model, caller)
        context: tuple[Item, ...] = ()
        targets: dict[str, tuple[str, str]] = {}
        if compaction.previous_response_id is not None:
            before = await self._continuations.require_response_context(compaction.previous_response_id, caller, sealed)
            outputs, waiting = await self._settle_calls(before.pending, caller)
            # Calls that the client has not seen are restored when it sends the others again.
            context = (*(item for item in before.items if item not in waiting.unseen_calls), *outputs)
            targets |= _approval_targets_of(waiting)
        outputs, waiting = await self._settle_calls(pending_calls_of(compaction.input), caller)
        insert_outputs(compaction.input, outputs)
        targets |= _approval_targets_of(waiting)
        items = place_outputs_after_calls((*context, *compaction.input.items))
        self._run_builder.configurations.current.file_fetcher.check_images(items)
        started_at, is_charged = time.monotonic(), self._budgets.has_limit(caller)
        compactor = self._run_builder.build_compactor(backend, caller)
        found = await compactor.compact(items, max_tokens=compaction.max_tokens)
        self._count_tokens(found, caller, backend, time.monotonic() - started_at, is_charged=is_charged)
        seal = self._seal_keys.for_caller(caller.id)
        content = CompactionContent(items=found.items, approval_targets=targets)
        resource = await run_off_loop(
            lambda: build_compaction(content, seal=seal, created_at=time.time(), usage=found.usage)
        )
        # No request may open more, so a larger item could never be sent back.
        check_context_size(plain_size(resource["output"][-1]["encrypted_content"]) or 0, self._max_bytes, "input")
        return replace(json_reply(resource), headers=compaction_header(is_truncated=found.is_truncated))

    async def _settle_calls(
        self, pending: PendingCalls, caller: Caller
    ) -> tuple[tuple[FunctionCallOutput, ...], PendingCalls]:
        """Return the outputs of pending calls that another response has claimed, and the calls that go on waiting."""
        stored = await self._continuations.claims.read_stored_calls(pending, caller.id)
        claimed = {key for key, call in stored.items() if call.claimed_by is not None}
        taken = tuple(call for call in pending.calls if approval_id(call) in claimed)
        outputs = await self._continuations.build_abandoned_outputs(replace(pending, calls=taken), caller)
        return outputs, replace(pending, calls=tuple(call for call in pending.calls if call not in taken))

    def _count_tokens(
        self, found: CompactedContext, caller: Caller, backend: Backend, seconds: float, *, is_charged: bool
    ) -> None:
        """Count a summary as a run of one turn. `is_charged`: its cost is counted already."""
        if found.is_changed and not found.is_truncated:
            result = RunResult(
                status="completed", text="", turns=1, usage=found.usage, seconds=seconds, cost=found.cost
            )
            self._accounts.record_request(caller.id, backend.name, result, is_charged=is_charged)

    @route(
        "POST",
        "/v1/responses/input_tokens",
        id="countInputTokens",
        tag="Responses",
        summary="Count the tokens of a request",
        description="Estimates the input tokens of a request, with the tools that the model would be offered.",
        body="CreateResponse",
        example_body={"model": "demo", "input": "Hello"},
        reply="InputTokens",
        example=examples.INPUT_TOKENS,
        errors=INPUT_ERRORS,
    )
    async def count_input_tokens(self, request: Request) -> Reply:
        """Estimate the tokens of a request; see `count_tokens`. Models of many providers have no common count."""
        body, caller = request.json(), request.caller
        find = await self._continuations.build_item_lookup(body, caller)
        sealed = await self._continuations.open_sealed(body, find, caller, request.reservation.acquire)
        response_request = read_request(body, sealed=sealed, find_item=find)
        before = await self._continuations.resolve(response_request, caller)
        prepared = await self._run_builder.build(
            response_request,
            "",
            continuation=Continuation(context=before.context),
            can_wait=response_request.store,
            caller=caller,
            door="responses",
        )
        tools = await prepared.toolbox.collect_specs()
        first = prepared.request.model
        model_request = ModelRequest(items=first.items, instructions=first.instructions, tools=tuple(tools))
        return json_reply({"object": "response.input_tokens", "input_tokens": count_tokens(model_request)})


def _approval_targets_of(waiting: PendingCalls) -> dict[str, tuple[str, str]]:
    ids = [call.call_id for call in waiting.calls if call.call_id in waiting.needs_approval]
    return {call_id: waiting.targets[call_id] for call_id in ids if call_id in waiting.targets}
