"""Scripted model: plays prepared turns and records its requests, in process or as an HTTP server in each dialect.

Its HTTP server records requests byte for byte and answers with the steps of each turn. A request that does not stream
gets one document, unless its turn has `Raw` steps, which are sent as they are.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import Any, Literal

import orjson
from aiohttp import web

from holodeck.lib.errors import ModelError
from holodeck.lib.record import record
from holodeck.models.items import FunctionCall, Item, Reasoning, Usage, text_message
from holodeck.models.model_io import (
    CallDelta,
    FinishReason,
    ModelAnswer,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
)
from holodeck.testing.model.dialects import AnthropicWriter, ChatWriter, ResponsesWriter, Writer
from holodeck.testing.model.prompt_cache import PromptCache, RefusedMarksError
from holodeck.testing.model.script import (
    Call,
    Cut,
    ErrorEvent,
    Fail,
    Finish,
    Raw,
    Say,
    Spend,
    Status,
    Step,
    Think,
    Tier,
    Turn,
    Wait,
    split_say,
    split_text,
    status,
    steps_of,
)

Script = Callable[[Any], Turn]
"""Takes the request (over HTTP: a `Received`) and returns the turn."""
DialectName = Literal["chat", "responses", "anthropic"]
Writing = Literal["events", "bytes", "whole"]
"""Size of a write to the stream: an event, a byte, or the whole answer."""
_WRITERS: dict[DialectName, type[ChatWriter] | type[ResponsesWriter] | type[AnthropicWriter]] = {
    "chat": ChatWriter,
    "responses": ResponsesWriter,
    "anthropic": AnthropicWriter,
}
_PATHS: dict[DialectName, str] = {"chat": "/chat/completions", "responses": "/responses", "anthropic": "/messages"}
# Bytes of a request body: a long conversation is larger than the default of aiohttp, 1 MiB.
_MAX_BODY_BYTES = 64 * 1024 * 1024


class ScriptedModel:
    """A `ModelProvider` with one turn per request: `ScriptedModel(say("hi"), [call("add", a=1), say("ok")], chunk=4)`.

    A request after the last turn fails with `ModelError`.
    """

    def __init__(self, *turns: Turn | Script, name: str = "scripted", chunk: int | None = None) -> None:
        """Take the turns, or one function that builds each turn from its request. `chunk`: characters per delta."""
        self.name = name
        self.requests: list[ModelRequest] = []
        """All requests made in process, in order."""
        self.is_closed = False
        self.chunk = chunk
        self._turns = turns
        self._request_count = 0
        self._ids = count(1)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Play the next turn."""
        self.requests.append(request)
        async with aclosing(_TurnPlayer(self, self.next_turn(request)).play()) as events:
            async for event in events:
                yield event

    async def close(self) -> None:
        self.is_closed = True

    @asynccontextmanager
    async def serve(
        self,
        dialect: DialectName = "chat",
        *,
        writing: Writing = "events",
        newline: str = "\n",
        prompt_cache: PromptCache | None = None,
    ) -> AsyncIterator[ScriptedServer]:
        """Serve the script over HTTP on loopback: `server.url` is the endpoint, `server.received` the requests.

        `prompt_cache`: counts the input tokens of requests in the `anthropic` dialect, and refuses wrong marks.
        """
        server = ScriptedServer(self, dialect, writing=writing, newline=newline, prompt_cache=prompt_cache)
        await server.start()
        try:
            yield server
        finally:
            await server.close()

    def next_turn(self, request: Any) -> list[Step]:
        """Return the steps of the next turn. Raises `ModelError` if there is none."""
        self._request_count += 1
        if len(self._turns) == 1 and callable(self._turns[0]):
            return steps_of(self._turns[0](request))
        if self._request_count > len(self._turns):
            raise ModelError(
                f"The script of model '{self.name}' has {len(self._turns)} turns: there is no further one."
            )
        turn = self._turns[self._request_count - 1]
        return steps_of(turn(request) if callable(turn) else turn)

    def next_id(self) -> str:
        """Return an id for a call whose step has none."""
        return f"call_{next(self._ids)}"


class _TurnPlayer:
    """Plays one turn in process."""

    def __init__(self, model: ScriptedModel, steps: list[Step]) -> None:
        self._model = model
        self._steps = steps
        self._items: list[Item] = []
        self._finish: FinishReason | None = None
        self._usage = Usage()
        self._tier: str | None = None

    async def play(self) -> AsyncGenerator[ModelEvent, None]:
        is_answered = False
        for step in self._steps:
            if isinstance(step, Wait):
                step.reached.set()
                await step.until.wait()
            for event in self._events_of(step):
                is_answered = is_answered or isinstance(event, ModelAnswer)
                yield event
        if not is_answered:
            yield self._final_answer()

    def _events_of(self, step: Step) -> list[ModelEvent]:
        match step:
            case Say(text=text):
                self._items.append(text_message("assistant", text))
                parts = split_say(step, self._model.chunk)
                return [TextDelta(text=part.text, logprobs=part.logprobs) for part in parts]
            case Think(text=text, opaque=opaque):
                self._items.append(Reasoning(text=text, opaque=opaque))
                return [ReasoningDelta(text=part) for part in split_text(text, self._model.chunk)]
            case Call():
                return self._call_events(step)
            case Raw(events=events):
                return [event for event in events if not isinstance(event, dict | bytes)]
            case Finish(reason=reason):
                self._finish = reason
            case Spend(usage=usage):
                self._usage = usage
            case Tier(name=name):
                self._tier = name
            case Fail(error=error):
                raise error
            case Wait():
                pass
            case _:
                raise TypeError(f"{type(step).__name__} happens over HTTP only: use ScriptedModel.serve()")
        return []

    def _call_events(self, step: Call) -> list[ModelEvent]:
        call_id = step.call_id or self._model.next_id()
        index = sum(isinstance(item, FunctionCall) for item in self._items)
        self._items.append(FunctionCall(call_id=call_id, name=step.name, arguments=step.arguments))
        first, *others = split_text(step.arguments, self._model.chunk)
        head = CallDelta(index=index, call_id=call_id, name=step.name, arguments=first)
        return [head, *(CallDelta(index=index, arguments=part) for part in others)]

    def _final_answer(self) -> ModelAnswer:
        has_calls = any(isinstance(item, FunctionCall) for item in self._items)
        finish: FinishReason = self._finish or ("tool_calls" if has_calls else "stop")
        return ModelAnswer(
            items=tuple(self._items),
            finish=finish,
            usage=self._usage,
            model=self._model.name,
            service_tier=self._tier,
        )


@record
class Received:
    """One request, unchanged."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


class ScriptedServer:
    """HTTP server on a free loopback port. Created by `ScriptedModel.serve()`."""

    def __init__(
        self,
        model: ScriptedModel,
        dialect: DialectName,
        *,
        writing: Writing,
        newline: str,
        prompt_cache: PromptCache | None = None,
    ) -> None:
        self.received: list[Received] = []
        self.connections: set[Any] = set()
        """Peer addresses of the requests: one entry for each connection."""
        self.left = asyncio.Event()
        """Set when a client has disconnected before its answer was complete."""
        self._model = model
        self._dialect = dialect
        self._writing = writing
        self._newline = newline
        self._prompt_cache = prompt_cache
        self._runner: web.AppRunner | None = None
        self._port = 0
        self._reserved: socket.socket | None = None

    @property
    def url(self) -> str:
        """The `endpoint` for an agent file."""
        return f"http://127.0.0.1:{self._port}" + ("" if self._dialect == "anthropic" else "/v1")

    async def start(self) -> None:
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Refuse connections from now on. The port stays reserved until `close`, so that no other program answers."""
        await self.close()
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind(("127.0.0.1", self._port))

    async def close(self) -> None:
        """Stop the server, and release its port. Idempotent."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        received = Received(path=request.path, query=dict(request.query), headers=headers, body=await request.read())
        self.received.append(received)
        self.connections.add(request.transport.get_extra_info("peername") if request.transport else None)
        steps = self._steps(request, received)
        if steps and isinstance(steps[0], Status):
            first = steps[0]
            return web.Response(
                status=first.code, body=first.body, headers={"content-type": "application/json", **first.headers}
            )
        try:
            is_streamed = received.json.get("stream") or any(isinstance(step, Raw) for step in steps)
            answer = _AnswerStream if is_streamed else _AnswerDocument
            return await answer(self._writer(), request, self._writing, self._newline).play(steps)
        except asyncio.CancelledError:
            self.left.set()
            raise

    def _steps(self, request: web.Request, received: Received) -> list[Step]:
        if request.method != "POST" or not request.path.endswith(_PATHS[self._dialect]):
            return [status(404, {"error": {"message": f"there is no {request.method} {request.path}"}})]
        try:
            steps = self._model.next_turn(received)
        except ModelError as error:
            return [status(400, {"error": {"message": str(error)}})]
        if steps and isinstance(steps[0], Fail):
            failure = steps[0].error
            wait = None if failure.retry_after is None else str(failure.retry_after)
            return [status(failure.status or 500, {"error": {"message": str(failure)}}, retry_after=wait)]
        return self._bill(received, [_with_id(step, self._model) for step in steps])

    def _bill(self, received: Received, steps: list[Step]) -> list[Step]:
        """Return the steps with the input tokens that the prompt cache counts, if there is one."""
        if self._prompt_cache is None or (steps and isinstance(steps[0], Status)):
            return steps
        try:
            billed = self._prompt_cache.bill(received.json)
        except RefusedMarksError as error:
            return [status(400, {"type": "error", "error": {"type": "invalid_request_error", "message": str(error)}})]
        output = _find_usage(steps) or Usage(output_tokens=1)
        usage = replace(billed, output_tokens=output.output_tokens, reasoning_tokens=output.reasoning_tokens)
        return [Spend(usage=usage), *(step for step in steps if not isinstance(step, Spend))]

    def _writer(self) -> Writer:
        return _WRITERS[self._dialect](self._model.name, self._model.chunk)


class _AnswerStream:
    """Streams one answer."""

    content_type = "text/event-stream"

    def __init__(self, writer: Writer, request: web.Request, writing: Writing, newline: str) -> None:
        self._writer = writer
        self._request = request
        self._writing = writing
        self._newline = newline
        self._deferred: list[bytes] = []
        self._response = web.StreamResponse(headers={"content-type": self.content_type, "cache-control": "no-cache"})
        self._finish: FinishReason | None = None
        self._usage: Usage | None = None

    async def play(self, steps: list[Step]) -> web.StreamResponse:
        # The client has disconnected.
        with suppress(ConnectionResetError):
            await self._play_steps(steps)
        return self._response

    async def _play_steps(self, steps: list[Step]) -> None:
        await self._response.prepare(self._request)
        is_raw = bool(steps) and all(isinstance(step, Raw | Wait | Cut) for step in steps)
        if not is_raw:
            await self._send(self._writer.start(_find_usage(steps)))
        for step in steps:
            if isinstance(step, Cut):
                await self._cut(step)
                return
            await self._play_step(step)
        if not is_raw:
            await self._send(self._writer.end(self._finish, self._usage))
            await self._write(self._writer.end_of_stream().encode())
        await self._flush()

    async def _cut(self, step: Cut) -> None:
        await self._flush()
        if not step.clean and self._request.transport:
            self._request.transport.close()

    async def _play_step(self, step: Step) -> None:
        match step:
            case Say():
                await self._send(self._writer.say(step))
            case Think():
                await self._send(self._writer.think(step))
            case Call():
                await self._send(self._writer.call(step))
            case ErrorEvent():
                await self._send(self._writer.error(step))
            case Raw(events=events):
                for event in events:
                    if isinstance(event, bytes):
                        await self._write(event)
                    elif isinstance(event, dict):
                        await self._send([event])
            case Finish() | Spend() | Tier():
                self._set_report(step)
            case Wait():
                await self._flush()
                step.reached.set()
                await step.until.wait()
            case _:
                raise TypeError(f"{type(step).__name__} must be the first step of a turn")

    def _set_report(self, step: Finish | Spend | Tier) -> None:
        """Set what the end of the answer reports."""
        match step:
            case Finish(reason=reason):
                self._finish = reason
            case Spend(usage=usage):
                self._usage = usage
            case Tier(name=name):
                self._writer.tier = name

    async def _send(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            await self._write(self._writer.encode_event(event).encode())

    async def _write(self, data: bytes) -> None:
        data = data.replace(b"\n", self._newline.encode())
        if self._writing == "whole":
            self._deferred.append(data)
        elif self._writing == "bytes":
            for byte in data:
                await self._response.write(bytes([byte]))
        elif data:
            await self._response.write(data)

    async def _flush(self) -> None:
        data, self._deferred = b"".join(self._deferred), []
        if data:
            await self._response.write(data)


class _AnswerDocument(_AnswerStream):
    """Sends one answer as one document, once its steps are done. One that is cut has the first half of it."""

    content_type = "application/json"

    async def _play_steps(self, steps: list[Step]) -> None:
        self._events = self._writer.start(_find_usage(steps))
        for step in steps:
            if isinstance(step, Cut):
                document = self._encode_document()
                await self._response.prepare(self._request)
                await self._write(document[: len(document) // 2])
                await self._cut(step)
                return
            await self._play_step(step)
            if isinstance(step, ErrorEvent):
                break
        else:
            self._events += self._writer.end(self._finish, self._usage)
        document = self._encode_document()
        self._response.content_length = len(document)
        await self._response.prepare(self._request)
        await self._write(document)
        await self._flush()

    async def _send(self, events: list[dict[str, Any]]) -> None:
        self._events += events

    def _encode_document(self) -> bytes:
        return orjson.dumps(self._writer.join_events(self._events))


def _find_usage(steps: list[Step]) -> Usage | None:
    return next((step.usage for step in steps if isinstance(step, Spend)), None)


def _with_id(step: Step, model: ScriptedModel) -> Step:
    if isinstance(step, Call) and not step.call_id:
        return Call(name=step.name, arguments=step.arguments, call_id=model.next_id())
    return step
