"""`/v1/chat/completions`: the same engine and tools, for clients of the older API.

Clients send the whole conversation with each request, so nothing is stored but the tool calls that the gateway ran,
in a cache in memory: the messages of this API cannot carry them back. After a restart, or an hour, the model is asked
without these calls, and may make them again.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.continuation.call_outputs import check_answered
from holodeck.gateway.continuation.memory import ToolHistoryCache
from holodeck.gateway.http.errors import reply_for_failed_run
from holodeck.gateway.http.replies import Reply, StreamedReply, json_reply, missing_servers_header, retry_header
from holodeck.gateway.http.request import Request
from holodeck.gateway.http.stream_errors import encode_chat_error
from holodeck.gateway.runs.active_runs import ActiveRuns
from holodeck.gateway.runs.live_run import LiveRun, RunFinisher
from holodeck.gateway.runs.run_builder import RunBuilder
from holodeck.gateway.wire.chat.request import ChatRequest, read_chat_request
from holodeck.gateway.wire.chat.response import ChatWriter, encode_chat_sse
from holodeck.gateway.wire.response.event_encoder import SSE_DONE
from holodeck.lib.ids import new_id
from holodeck.models.items import Item


class ChatCompletions:
    def __init__(self, run_builder: RunBuilder, runs: ActiveRuns, tool_history: ToolHistoryCache) -> None:
        self._run_builder = run_builder
        self._runs = runs
        self._tool_history = tool_history

    async def create(self, request: Request) -> Reply | StreamedReply:
        """Run one request. A client that disconnects ends the run."""
        chat = read_chat_request(
            request.json(), extra_parameters_of=self._run_builder.extra_parameters_for(request.caller)
        )
        live = await self._build_run(chat, request.caller)
        self._runs.register(live)
        if chat.response.stream:
            live.toolbox.update_missing()
            return StreamedReply(
                chunks=_encode_chat_sse(live.stream()),
                headers=missing_servers_header(live.toolbox.missing),
                on_close=live.close,
                encode_error=encode_chat_error,
            )
        async with live:
            await live.run_to_end()
        completion = live.writer.build_completion()
        if live.result is not None and live.result.status in ("failed", "cancelled"):
            return reply_for_failed_run(live.result, completion)
        headers = missing_servers_header(live.toolbox.missing) | retry_header(live.result)
        return replace(json_reply(completion), headers=headers)

    async def _build_run(self, chat: ChatRequest, caller: Caller) -> LiveRun[ChatWriter]:
        sent_items = tuple(chat.response.input.items)
        check_answered(sent_items, pending=(), param="messages")
        chat.response.input.items = self._tool_history.restore_calls(caller.id, sent_items)
        # Not `can_wait`: there is no stored response that the next request could continue. Calls of the gateway's tools
        # beside calls of the client's functions run at once, and are put back into the next request from the cache.
        prepared = await self._run_builder.build(
            chat.response, new_id("chatcmpl"), can_wait=False, caller=caller, door="chat_completions"
        )
        await prepared.servers.check_required()
        writer = ChatWriter(
            chat,
            completion_id=prepared.request.run_id,
            created_at=time.time(),
            model=prepared.backend.name,
            is_silent=not chat.response.stream,
        )
        return LiveRun(
            prepared.request,
            prepared.model,
            prepared.toolbox,
            writer,
            caller_id=caller.id,
            finisher=_ChatFinisher(self._tool_history, chat, sent_items),
            uses=prepared.configuration.uses,
            trace=self._run_builder.build_trace(prepared, caller),
        )


class _ChatFinisher(RunFinisher[ChatWriter]):
    """Remembers the tool calls of a completion."""

    def __init__(self, tool_history: ToolHistoryCache, chat: ChatRequest, sent_items: tuple[Item, ...]) -> None:
        self._tool_history = tool_history
        self._chat = chat
        self._sent_items = sent_items

    async def finish(self, live: LiveRun[ChatWriter]) -> bool:
        if live.result is not None and live.result.tool_calls:
            is_client = self._chat.response.is_client_function
            self._tool_history.store(live.caller_id, self._sent_items, live.result.items, is_client=is_client)
        return True


async def _encode_chat_sse(batches: AsyncGenerator[list[bytes], None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(batches) as source:
        async for batch in source:
            yield b"".join(map(encode_chat_sse, batch))
    yield SSE_DONE
