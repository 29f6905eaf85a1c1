"""`/v1/chat/completions`: the same loop with the same tools, for clients that know only the older API."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from holodeck.gateway.callers import Caller
from holodeck.gateway.live_run import LiveRun
from holodeck.gateway.problems import reply_for_failed_run
from holodeck.gateway.replies import Reply, Streamed, json_reply, missing_header
from holodeck.gateway.runs import Runs
from holodeck.gateway.starting import Starter
from holodeck.gateway.untold import Untold
from holodeck.gateway.wire.chat import ChatWriter, chat_sse
from holodeck.gateway.wire.chat_request import ChatRequest, read_chat
from holodeck.gateway.wire.context import check_answered
from holodeck.gateway.wire.encoder import DONE
from holodeck.lib.ids import new_id


class ChatCompletions:
    """Nothing is kept but what its clients cannot send back: they send the whole conversation each time."""

    def __init__(self, starter: Starter, runs: Runs, untold: Untold) -> None:
        self._starter = starter
        self._runs = runs
        self._untold = untold

    async def create(self, body: object, caller: Caller) -> Reply | Streamed:
        """Answer one request. A stream ends the run when nobody reads it any more."""
        request = read_chat(body)
        live = await self._prepare(request, caller)
        if request.response.stream:
            live.toolbox.update_missing()
            return Streamed(pieces=_framed(self._runs.advance(live)), headers=missing_header(live.toolbox.missing))
        await self._runs.finish(live)
        completion = live.writer.completion()
        if live.result is not None and live.result.status in ("failed", "cancelled"):
            return reply_for_failed_run(live.result, completion)
        return replace(json_reply(completion), headers=missing_header(live.toolbox.missing))

    async def _prepare(self, chat: ChatRequest, caller: Caller) -> LiveRun[ChatWriter]:
        given = tuple(chat.response.input.items)
        check_answered(given, pending=(), param="messages")
        chat.response.input.items = self._untold.recall(caller.id, given)
        # A call of ours beside the client's would leave no trace in the messages that come back: the model would ask
        # for it again. So it waits, and is forgotten; once it knows what the client's functions gave, it asks anew.
        start = await self._starter.start(chat.response, new_id("chatcmpl"), can_wait=True, caller=caller.id)
        await start.servers.check_required()
        writer = ChatWriter(
            chat,
            completion_id=start.request.run_id,
            created_at=time.time(),
            model=start.backend.name,
            is_silent=not chat.response.stream,
        )

        async def keep(live: LiveRun[ChatWriter]) -> None:
            if live.result is not None and live.result.tool_calls:
                self._untold.keep(caller.id, given, live.result.items, is_client=chat.response.is_client)

        return LiveRun(start.request, start.backend.provider, start.toolbox, writer, owner=caller.id, keep=keep)


async def _framed(batches: AsyncGenerator[list[bytes], None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(batches) as source:
        async for batch in source:
            yield b"".join(map(chat_sse, batch))
    yield DONE
