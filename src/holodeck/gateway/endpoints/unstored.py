"""The endpoint of the APIs whose clients send the whole conversation with each request: Chat Completions and Messages.

Nothing is stored but the tool calls that the gateway ran, in a cache in memory: the messages of these APIs cannot carry
them back. After a restart, or an hour, the model is asked without these calls, and may make them again. All that an API
has of its own is an `UnstoredRequest`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from typing import Any, ClassVar, Protocol, TypeVar

import orjson

from holodeck.gateway.audit.entry import Door
from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.continuation.memory import ToolHistoryCache
from holodeck.gateway.continuation.pending_calls import check_answered
from holodeck.gateway.http.errors import APIError, reply_for_failed_run
from holodeck.gateway.http.replies import (
    KEEPALIVE_COMMENT,
    Reply,
    StreamedReply,
    cost_header,
    missing_servers_header,
    retry_header,
)
from holodeck.gateway.http.request import Request
from holodeck.gateway.runs.live_run import LiveRun, RunFinisher, Writer
from holodeck.gateway.runs.run_builder import PreparedRun, RunBuilder
from holodeck.gateway.wire.request.body import ResponseRequest
from holodeck.lib.ids import new_id


class UnstoredWriter(Writer, Protocol):
    """A writer whose wire events are server-sent events as they are sent."""

    def build_resource(self) -> dict[str, Any]:
        """Build the answer as far as it is known."""
        ...


W = TypeVar("W", bound=UnstoredWriter)


class UnstoredRequest(RunFinisher[W]):
    """One request of an API, with what the API has of its own. At the end of its run it remembers the tool calls."""

    door: ClassVar[Door]
    id_prefix: ClassVar[str]
    stream_end: ClassVar[bytes] = b""
    """The last bytes of a stream, after those of its writer."""
    keepalive: ClassVar[bytes] = KEEPALIVE_COMMENT

    def __init__(self, response: ResponseRequest, caller: Caller, tool_history: ToolHistoryCache) -> None:
        """Put the calls that the client could not send back into the input.

        Raises `BadRequestError` for calls of the client without an output.
        """
        self.response = response
        self._tool_history = tool_history
        self._sent_items = tuple(response.input.items)
        check_answered(self._sent_items, pending=(), param="messages")
        response.input.items = tool_history.restore_calls(caller.id, self._sent_items, response.input.shown_calls)

    def build_writer(self, prepared: PreparedRun) -> W:
        """Build the writer of the answer, which is silent if the request does not stream."""
        raise NotImplementedError

    @staticmethod
    def build_failure(reply: Reply, request_id: str) -> Reply:
        """Return the reply for a failed run in the form of the API."""
        return reply

    @staticmethod
    def encode_error(error: APIError) -> bytes:
        """Encode the last event of a stream that an error ends."""
        raise NotImplementedError

    async def finish(self, live: LiveRun[W]) -> bool:
        if live.result is not None and live.result.tool_calls:
            self._tool_history.store(
                live.caller_id,
                self._sent_items,
                live.result.items,
                is_client=self.response.is_client_function,
                shown_calls=self.response.input.shown_calls,
            )
        return True


class UnstoredEndpoint:
    def __init__(self, run_builder: RunBuilder, tool_history: ToolHistoryCache) -> None:
        self._run_builder = run_builder
        self._tool_history = tool_history

    async def _reply(self, request: Request, read: UnstoredRequest[W]) -> Reply | StreamedReply:
        """Run a request that was read. A client that disconnects ends the run."""
        prepared = await self._prepare(read, request.caller)
        await prepared.servers.check_required()
        live = prepared.start(read.build_writer(prepared), read)
        if read.response.stream:
            live.toolbox.update_missing()
            return StreamedReply(
                chunks=_join_frames(live.stream(), read.stream_end),
                headers=missing_servers_header(live.toolbox.missing),
                on_close=live.close,
                encode_error=read.encode_error,
                keepalive=read.keepalive,
            )
        try:
            await live.run_to_end()
        finally:
            await live.close()
        resource = live.writer.build_resource()
        if live.result is not None and live.result.status in ("failed", "cancelled"):
            return read.build_failure(reply_for_failed_run(live.result, resource), request.id)
        headers = missing_servers_header(live.toolbox.missing)
        if live.trace.cost is not None:
            headers |= cost_header(live.trace.cost)
        if live.result is not None and live.result.status == "incomplete":
            headers |= retry_header(live.result)
        return Reply(body=orjson.dumps(resource), headers=headers)

    def _prepare(self, read: UnstoredRequest[W], caller: Caller) -> Awaitable[PreparedRun]:
        # Not `can_wait`: there is no stored response that the next request could continue. Calls of the gateway's tools
        # beside calls of the client's tools run at once, and are put back into the next request from the cache.
        return self._run_builder.build(
            read.response, new_id(read.id_prefix), can_wait=False, caller=caller, door=read.door
        )


async def _join_frames(batches: AsyncGenerator[list[bytes], None], end: bytes) -> AsyncGenerator[bytes, None]:
    async with aclosing(batches) as source:
        async for batch in source:
            yield b"".join(batch)
    if end:
        yield end
