"""`/v1/messages`: the same engine and tools, for clients of Anthropic's Messages API.

Clients send the whole conversation with each request, so nothing is stored but what the messages of this API cannot
carry back: the tool calls that the gateway ran, and what the provider of the model sent with its reasoning. Both are in
caches in memory. After a restart, or an hour, the model is asked without them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.context.tokens import count_tokens
from holodeck.gateway.continuation.call_outputs import check_answered
from holodeck.gateway.continuation.memory import ReasoningCache, ToolHistoryCache
from holodeck.gateway.http.errors import reply_for_failed_run
from holodeck.gateway.http.messages_errors import messages_error_reply
from holodeck.gateway.http.replies import Reply, StreamedReply, json_reply, missing_servers_header, retry_header
from holodeck.gateway.http.request import Request
from holodeck.gateway.http.stream_errors import encode_message_error
from holodeck.gateway.runs.active_runs import ActiveRuns
from holodeck.gateway.runs.live_run import LiveRun, RunFinisher
from holodeck.gateway.runs.run_builder import PreparedRun, RunBuilder
from holodeck.gateway.wire.messages.request import MessagesRequest, read_messages_request
from holodeck.gateway.wire.messages.response import PING, MessageWriter
from holodeck.lib.ids import new_id
from holodeck.models.items import Item


class Messages:
    def __init__(self, run_builder: RunBuilder, runs: ActiveRuns, tool_history: ToolHistoryCache) -> None:
        self._run_builder = run_builder
        self._runs = runs
        self._tool_history = tool_history
        self._reasoning = ReasoningCache()

    async def create(self, request: Request) -> Reply | StreamedReply:
        """Run one request. A client that disconnects ends the run."""
        messages = read_messages_request(
            request.json(), extra_parameters_of=self._run_builder.extra_parameters_for(request.caller)
        )
        live = await self._build_run(messages, request.caller)
        self._runs.register(live)
        if messages.response.stream:
            live.toolbox.update_missing()
            return StreamedReply(
                chunks=_join_frames(live.stream()),
                headers=missing_servers_header(live.toolbox.missing),
                on_close=live.close,
                encode_error=encode_message_error,
                keepalive=PING,
            )
        async with live:
            await live.run_to_end()
        message = live.writer.build_message()
        if live.result is not None and live.result.status in ("failed", "cancelled"):
            return messages_error_reply(reply_for_failed_run(live.result, message), request.id)
        headers = missing_servers_header(live.toolbox.missing) | retry_header(live.result)
        return replace(json_reply(message), headers=headers)

    async def count_tokens(self, request: Request) -> Reply:
        """Estimate the input tokens of a request, with the tools that the model would be offered."""
        messages = read_messages_request(
            request.json(),
            needs_max_tokens=False,
            extra_parameters_of=self._run_builder.extra_parameters_for(request.caller),
        )
        prepared = await self._prepare(messages, tuple(messages.response.input.items), request.caller)
        tools = tuple(await prepared.toolbox.collect_specs())
        return json_reply({"input_tokens": count_tokens(replace(prepared.request.model, tools=tools))})

    async def _prepare(self, messages: MessagesRequest, sent_items: tuple[Item, ...], caller: Caller) -> PreparedRun:
        check_answered(sent_items, pending=(), param="messages")
        restored = self._tool_history.restore_calls(caller.id, sent_items)
        messages.response.input.items = self._reasoning.restore(caller.id, restored)
        # Not `can_wait`: as for chat completions, calls of the gateway's tools beside calls of the client's tools run
        # at once, and are put back into the next request from the cache.
        return await self._run_builder.build(
            messages.response, new_id("msg"), can_wait=False, caller=caller, door="messages"
        )

    async def _build_run(self, messages: MessagesRequest, caller: Caller) -> LiveRun[MessageWriter]:
        sent_items = tuple(messages.response.input.items)
        prepared = await self._prepare(messages, sent_items, caller)
        await prepared.servers.check_required()
        writer = MessageWriter(
            messages,
            message_id=prepared.request.run_id,
            model=prepared.backend.name,
            is_silent=not messages.response.stream,
        )
        return LiveRun(
            prepared.request,
            prepared.model,
            prepared.toolbox,
            writer,
            caller_id=caller.id,
            finisher=_MessageFinisher(self._tool_history, self._reasoning, messages, sent_items),
            uses=prepared.configuration.uses,
            trace=self._run_builder.build_trace(prepared, caller),
        )


class _MessageFinisher(RunFinisher[MessageWriter]):
    """Remembers the tool calls and the reasoning of a message."""

    def __init__(
        self,
        tool_history: ToolHistoryCache,
        reasoning: ReasoningCache,
        messages: MessagesRequest,
        sent_items: tuple[Item, ...],
    ) -> None:
        self._tool_history = tool_history
        self._reasoning = reasoning
        self._messages = messages
        self._sent_items = sent_items

    async def finish(self, live: LiveRun[MessageWriter]) -> bool:
        if live.result is None:
            return True
        self._reasoning.store(live.caller_id, live.result.items)
        if live.result.tool_calls:
            is_client = self._messages.response.is_client_function
            self._tool_history.store(live.caller_id, self._sent_items, live.result.items, is_client=is_client)
        return True


async def _join_frames(batches: AsyncGenerator[list[bytes], None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(batches) as source:
        async for batch in source:
            yield b"".join(batch)
