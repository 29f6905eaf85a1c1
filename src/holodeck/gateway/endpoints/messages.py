"""`/v1/messages`: the same engine and tools, for clients of Anthropic's Messages API.

Beside the tool calls of the gateway, a cache in memory has what the provider of the model sent with its reasoning. A
client that asks for a thread sends only what is new; see `continuation/message_threads.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

from holodeck.engine.tokens import count_tokens
from holodeck.gateway.api import examples
from holodeck.gateway.api.route import route
from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.continuation.memory import ReasoningCache, ToolHistoryCache
from holodeck.gateway.continuation.message_threads import MessageThreads
from holodeck.gateway.endpoints.unstored import UnstoredEndpoint, UnstoredRequest
from holodeck.gateway.http.error_codes import ErrorGroup
from holodeck.gateway.http.errors import encode_message_error, messages_error_reply
from holodeck.gateway.http.replies import Reply, StreamedReply, json_reply
from holodeck.gateway.http.request import Request
from holodeck.gateway.runs.live_run import LiveRun
from holodeck.gateway.runs.run_builder import PreparedRun, RunBuilder
from holodeck.gateway.wire.messages.request import MessagesRequest, read_messages_request
from holodeck.gateway.wire.messages.response import PING, MessageWriter

_ERRORS: tuple[ErrorGroup, ...] = ("fields", "continuation", "thread", "servers", "model", "run")


class Messages(UnstoredEndpoint):
    def __init__(self, run_builder: RunBuilder, tool_history: ToolHistoryCache) -> None:
        super().__init__(run_builder, tool_history)
        self._reasoning = ReasoningCache()
        self._threads = MessageThreads()

    def forget_caller(self, caller_id: str) -> None:
        """Delete what is in memory of a caller."""
        self._reasoning.forget_caller(caller_id)
        self._threads.forget_caller(caller_id)

    @route(
        "POST",
        "/v1/messages",
        id="createMessage",
        tag="Messages",
        summary="Create a message",
        description=(
            "Asks the model, runs the calls of the gateway's own tools, and returns the answer. Calls of the tools in "
            "`tools` come back as `tool_use` blocks, for you to run.\n\n"
            "With `stream` the reply is a stream of events, which ends with `message_stop` or `error`. A client that "
            "disconnects ends the run."
        ),
        body="CreateMessage",
        example_body={"model": "demo", "max_tokens": 1024, "messages": [{"role": "user", "content": "Hello"}]},
        reply="CreatedMessage",
        example=examples.MESSAGE,
        stream="MessageEvent",
        error="MessagesError",
        errors=_ERRORS,
        is_paid=True,
    )
    def create(self, request: Request) -> Awaitable[Reply | StreamedReply]:
        """Run one request. A client that disconnects ends the run."""
        return self._reply(request, self._read(request))

    @route(
        "POST",
        "/v1/messages/count_tokens",
        id="countMessageTokens",
        tag="Messages",
        summary="Count the tokens of a message",
        description="Estimates the input tokens of a request, with the tools that the model would be offered.",
        body="CountMessageTokens",
        example_body={"model": "demo", "messages": [{"role": "user", "content": "Hello"}]},
        reply="MessageTokens",
        example=examples.MESSAGE_TOKENS,
        error="MessagesError",
        errors=_ERRORS,
    )
    async def count_tokens(self, request: Request) -> Reply:
        """Estimate the input tokens of a request, with the tools that the model would be offered."""
        prepared = await self._prepare(self._read(request, needs_max_tokens=False), request.caller)
        tools = tuple(await prepared.toolbox.collect_specs())
        return json_reply({"input_tokens": count_tokens(replace(prepared.request.model, tools=tools))})

    def _read(self, request: Request, *, needs_max_tokens: bool = True) -> _UnstoredMessages:
        body = self._threads.join_body(request.caller.id, request.json(), request.reservation)
        messages = read_messages_request(
            body,
            needs_max_tokens=needs_max_tokens,
            extra_parameters_of=self._run_builder.extra_parameters_for(request.caller),
        )
        thread_body = body if messages.is_in_thread else None
        return _UnstoredMessages(
            messages, request.caller, thread_body, self._tool_history, self._reasoning, self._threads
        )


class _UnstoredMessages(UnstoredRequest[MessageWriter]):
    """Also remembers the reasoning, and the thread that the message ends."""

    door = "messages"
    id_prefix = "msg"
    keepalive = PING
    build_failure = staticmethod(messages_error_reply)
    encode_error = staticmethod(encode_message_error)

    def __init__(
        self,
        messages: MessagesRequest,
        caller: Caller,
        thread_body: dict[str, Any] | None,
        tool_history: ToolHistoryCache,
        reasoning: ReasoningCache,
        threads: MessageThreads,
    ) -> None:
        """`thread_body`: the body that its message answers, to be held. None: it is in no thread."""
        super().__init__(messages.response, caller, tool_history)
        self.response.input.items = reasoning.restore(caller.id, self.response.input.items)
        self._messages = messages
        self._thread_body = thread_body
        self._reasoning = reasoning
        self._threads = threads

    def build_writer(self, prepared: PreparedRun) -> MessageWriter:
        return MessageWriter(
            self._messages,
            message_id=prepared.request.run_id,
            model=prepared.backend.name,
            is_silent=not self.response.stream,
            servers=prepared.servers if self.response.has_mcp_declarations else None,
        )

    async def finish(self, live: LiveRun[MessageWriter]) -> bool:
        if live.result is not None:
            self._reasoning.store(live.caller_id, live.result.items)
            if self._thread_body is not None and live.result.status not in ("failed", "cancelled"):
                self._threads.store(live.caller_id, self._thread_body, live.writer.build_resource())
        return await super().finish(live)
