"""A run that is left in the middle of a call keeps nothing that happened only because it was left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aio import aio

from holodeck.durable.engine import Plain, WorkTakenError
from holodeck.engine.eventlog import EventLog
from holodeck.engine.kept_steps import OUTCOME_UNKNOWN, KeptSteps
from holodeck.engine.steps import Append, Errand, Turn
from holodeck.models.items import FunctionCall
from holodeck.tools.executor import ToolResult

CALL = FunctionCall(call_id="call_1", name="pay", arguments="{}", id="fc_1")


class Book:
    """What is kept of a run, in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, Plain] = {}

    async def step(self, name: str, work: Callable[[], Awaitable[Plain]]) -> Plain:
        if name not in self.kept:
            self.kept[name] = await work()
        return self.kept[name]


class Server:
    """Carries out a call until it is closed."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()
        self.is_closed = asyncio.Event()
        self.calls = 0

    def errand(self) -> Errand:
        return Errand(
            call=CALL, refusal=self._yes, permission=self._yes, may_repeat=lambda: False, execute=self._execute
        )

    async def _yes(self) -> None:
        """Nobody minds."""

    async def _execute(self) -> ToolResult:
        self.calls += 1
        self.is_asked.set()
        await self.is_closed.wait()
        return ToolResult.failed(CALL.call_id, "The server was closed.")


@aio
async def test_a_call_whose_server_was_closed_by_us_has_an_unknown_outcome() -> None:
    book, server = Book(), Server()
    steps = KeptSteps(book)
    calling = asyncio.create_task(steps.call(server.errand()))
    await server.is_asked.wait()
    steps.give_up()
    server.is_closed.set()
    with pytest.raises(WorkTakenError):
        await calling
    again = await KeptSteps(book).call(server.errand())
    assert OUTCOME_UNKNOWN in str(again.content)
    assert server.calls == 1


@aio
async def test_who_leaves_does_not_ask_the_model_again() -> None:
    asked: list[Append] = []

    async def take(append: Append) -> Turn:
        asked.append(append)
        raise AssertionError

    steps = KeptSteps(Book())
    await steps.leave()
    with pytest.raises(WorkTakenError):
        await steps.turn(1, EventLog(), take)
    assert asked == []
