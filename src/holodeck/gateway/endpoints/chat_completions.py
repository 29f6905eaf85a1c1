"""`/v1/chat/completions`: the same engine and tools, for clients of the older API."""

from __future__ import annotations

import time
from collections.abc import Awaitable

from holodeck.gateway.api import examples
from holodeck.gateway.api.route import route
from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.continuation.memory import ToolHistoryCache
from holodeck.gateway.endpoints.unstored import UnstoredEndpoint, UnstoredRequest
from holodeck.gateway.http.errors import encode_chat_error
from holodeck.gateway.http.replies import Reply, StreamedReply
from holodeck.gateway.http.request import Request
from holodeck.gateway.runs.run_builder import PreparedRun
from holodeck.gateway.wire.chat.request import ChatRequest, read_chat_request
from holodeck.gateway.wire.chat.response import ChatWriter
from holodeck.gateway.wire.response.output_items import SSE_DONE


class ChatCompletions(UnstoredEndpoint):
    @route(
        "POST",
        "/v1/chat/completions",
        id="createChatCompletion",
        tag="Chat completions",
        summary="Create a chat completion",
        description=(
            "Asks the model, runs the calls of MCP tools that it makes, and returns one message. With `stream` the "
            "reply is a stream of chunks, which ends with `data: [DONE]`."
        ),
        body="CreateChatCompletion",
        example_body={"model": "demo", "messages": [{"role": "user", "content": "Hello"}]},
        reply="ChatCompletion",
        example=examples.CHAT_COMPLETION,
        stream="ChatEvent",
        errors=("fields", "continuation", "servers", "model", "run"),
        is_paid=True,
    )
    def create(self, request: Request) -> Awaitable[Reply | StreamedReply]:
        """Run one request. A client that disconnects ends the run."""
        chat = read_chat_request(
            request.json(), extra_parameters_of=self._run_builder.extra_parameters_for(request.caller)
        )
        return self._reply(request, _UnstoredChat(chat, request.caller, self._tool_history))


class _UnstoredChat(UnstoredRequest[ChatWriter]):
    door = "chat_completions"
    id_prefix = "chatcmpl"
    stream_end = SSE_DONE
    encode_error = staticmethod(encode_chat_error)

    def __init__(self, chat: ChatRequest, caller: Caller, tool_history: ToolHistoryCache) -> None:
        super().__init__(chat.response, caller, tool_history)
        self._chat = chat

    def build_writer(self, prepared: PreparedRun) -> ChatWriter:
        return ChatWriter(
            self._chat,
            completion_id=prepared.request.run_id,
            created_at=time.time(),
            model=prepared.backend.name,
            is_silent=not self.response.stream,
        )
