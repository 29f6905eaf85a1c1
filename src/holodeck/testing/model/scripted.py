"""Scripted model: plays prepared turns and records its requests, in process or as an HTTP server in each dialect."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from holodeck.lib.errors import ModelError
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
from holodeck.testing.model.script import (
    Call,
    Fail,
    Finish,
    Raw,
    Say,
    Spend,
    Step,
    Think,
    Tier,
    Turn,
    Wait,
    split_say,
    split_text,
    steps_of,
)

if TYPE_CHECKING:
    from holodeck.testing.model.scripted_server import DialectName, ScriptedServer, Writing

Script = Callable[[Any], Turn]
"""Takes the request (over HTTP: a `Received`) and returns the turn."""


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
        self, dialect: DialectName = "chat", *, writing: Writing = "events", newline: str = "\n"
    ) -> AsyncIterator[ScriptedServer]:
        """Serve the script over HTTP on loopback: `server.url` is the endpoint, `server.received` the requests."""
        from holodeck.testing.model.scripted_server import ScriptedServer

        server = ScriptedServer(self, dialect, writing=writing, newline=newline)
        await server.start()
        try:
            yield server
        finally:
            await server.stop()

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
