"""Sends a request to a model behind HTTP, and returns both sides: what the server received, and the events."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from patience import patience

from holodeck.lib.errors import ModelError
from holodeck.lib.secret import Secret
from holodeck.models.items import FunctionCall, Item, Message, Reasoning, text_message
from holodeck.models.model_io import CallDelta, ModelAnswer, ModelEvent, ModelRequest, ReasoningDelta, TextDelta
from holodeck.providers.anthropic import Anthropic
from holodeck.providers.base import ModelProvider
from holodeck.providers.openai_chat import ChatCompletions
from holodeck.providers.openai_responses import Responses
from holodeck.testing.model.script import Turn
from holodeck.testing.model.scripted import DialectName, Received, Script, ScriptedModel, Writing

T = TypeVar("T")
TIMEOUT = 20.0
KEY = "sk-test-1234567890abcdef"


def run_with_timeout(test: Coroutine[Any, Any, T]) -> T:
    """Run to the end, or fail when it hangs."""

    async def within() -> T:
        async with asyncio.timeout(patience(TIMEOUT)):
            return await test

    return asyncio.run(within())


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """The events of one exchange, and what the server received."""

    events: Sequence[ModelEvent]
    received: Sequence[Received]

    @property
    def answer(self) -> ModelAnswer:
        last = self.events[-1]
        assert isinstance(last, ModelAnswer)
        assert sum(isinstance(event, ModelAnswer) for event in self.events) == 1
        return last

    @property
    def body(self) -> dict[str, Any]:
        body = self.received[-1].json
        assert isinstance(body, dict)
        return body

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def thoughts(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, ReasoningDelta))

    @property
    def deltas(self) -> list[CallDelta]:
        return [event for event in self.events if isinstance(event, CallDelta)]

    @property
    def calls(self) -> list[FunctionCall]:
        """The calls of the whole answer, which must be the sum of their deltas."""
        calls = [item for item in self.answer.items if isinstance(item, FunctionCall)]
        for index, call in enumerate(calls):
            own = [delta for delta in self.deltas if delta.index == index]
            assert (own[0].call_id, own[0].name) == (call.call_id, call.name)
            assert all((delta.call_id, delta.name) == ("", "") for delta in own[1:])
            assert ("".join(delta.arguments for delta in own) or "{}") == call.arguments
        return calls

    @property
    def message(self) -> str:
        """The text of the whole answer, which must be the sum of its deltas."""
        text = "".join(item.text for item in self.answer.items if isinstance(item, Message))
        assert text == self.text
        return text

    @property
    def reasoning(self) -> list[Reasoning]:
        return [item for item in self.answer.items if isinstance(item, Reasoning)]


def model_request(*items: Item | str, **fields: Any) -> ModelRequest:
    """A request with these items; a string is a user message."""
    return ModelRequest(
        items=tuple(text_message("user", item) if isinstance(item, str) else item for item in items or ("hello",)),
        **fields,
    )


def model_at(url: str, dialect: DialectName = "chat") -> ModelProvider:
    """A model that speaks this dialect at this address."""
    if dialect == "anthropic":
        return Anthropic(base_url=url, model="m", api_key=Secret(KEY))
    if dialect == "responses":
        return Responses(base_url=url, model="m", api_key=Secret(KEY), key_source="OPENAI_API_KEY")
    return ChatCompletions(base_url=url, model="m", api_key=Secret(KEY))


async def collect_events(model: ModelProvider, request: ModelRequest) -> list[ModelEvent]:
    """All events of one exchange."""
    return [event async for event in model.stream(request)]


def run_exchange(
    turn: Turn | Script,
    request: ModelRequest | None = None,
    *,
    dialect: DialectName = "chat",
    writing: Writing = "events",
    newline: str = "\n",
    chunk: int | None = None,
) -> Exchange:
    """One exchange over HTTP."""

    async def exchange() -> Exchange:
        async with ScriptedModel(turn, name="answering", chunk=chunk).serve(
            dialect, writing=writing, newline=newline
        ) as server:
            model = model_at(server.url, dialect)
            try:
                events = await collect_events(model, request or model_request())
            finally:
                await model.close()
            return Exchange(events=events, received=server.received)

    return run_with_timeout(exchange())


def exchange_error(
    turn: Turn | Script, request: ModelRequest | None = None, *, dialect: DialectName = "chat"
) -> ModelError:
    """The error of one exchange over HTTP."""
    try:
        outcome = run_exchange(turn, request, dialect=dialect)
    except ModelError as error:
        return error
    raise AssertionError(f"there was no error, but {outcome.events}")
