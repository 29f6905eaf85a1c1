"""A run that is left in the middle of a call keeps nothing that happened only because it was left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from async_tests import async_test

from holodeck.durable.base import JSONObject, WorkTakenOverError
from holodeck.engine.checkpointed_steps import CheckpointedSteps
from holodeck.engine.event_log import EventLog
from holodeck.engine.steps import AppendEvent, ModelTurn, PreparedCall
from holodeck.lib.call_errors import PROCESS_ENDED
from holodeck.models.items import FunctionCall
from holodeck.tools.executor import ResumePoint, ToolResult

CALL = FunctionCall(call_id="call_1", name="pay", arguments="{}", id="fc_1")


class Book:
    """The checkpoints of a run, in memory."""

    def __init__(self) -> None:
        self.stored: dict[str, JSONObject] = {}
        self.notes: dict[str, JSONObject] = {}

    async def step(self, name: str, work: Callable[[], Awaitable[JSONObject]]) -> JSONObject:
        if name not in self.stored:
            self.stored[name] = await work()
        return self.stored[name]

    async def store_note(self, name: str, value: JSONObject) -> None:
        self.notes[name] = value

    async def find_note(self, name: str) -> JSONObject | None:
        return self.notes.get(name)


class Server:
    """Carries out a call until it is closed."""

    def __init__(self) -> None:
        self.is_called = asyncio.Event()
        self.is_closed = asyncio.Event()
        self.calls = 0

    def prepare_call(self) -> PreparedCall:
        return ServerCall(self)


class ServerCall:
    """A call at the server that nothing refuses and that may not be repeated."""

    def __init__(self, server: Server) -> None:
        self.call = CALL
        self._server = server

    async def find_refusal(self) -> None:
        return None

    async def ask_permission(self) -> None:
        return None

    def may_repeat(self) -> bool:
        return False

    async def record_unknown(self, result: ToolResult) -> None: ...

    async def execute(self, resume: ResumePoint | None = None) -> ToolResult:
        self._server.calls += 1
        self._server.is_called.set()
        await self._server.is_closed.wait()
        return ToolResult.failure(CALL.call_id, "The server was closed.")


@async_test
async def test_a_call_whose_server_we_closed_has_an_unknown_outcome() -> None:
    book, server = Book(), Server()
    steps = CheckpointedSteps(book)
    calling = asyncio.create_task(steps.run_call(server.prepare_call()))
    await server.is_called.wait()
    steps.abandon()
    server.is_closed.set()
    with pytest.raises(WorkTakenOverError):
        await calling
    again = await CheckpointedSteps(book).run_call(server.prepare_call())
    assert PROCESS_ENDED in str(again.content)
    assert server.calls == 1


@async_test
async def test_an_interrupted_run_does_not_ask_the_model_again() -> None:
    events: list[AppendEvent] = []

    async def take(append: AppendEvent) -> ModelTurn:
        events.append(append)
        raise AssertionError

    steps = CheckpointedSteps(Book())
    await steps.hand_over()
    with pytest.raises(WorkTakenOverError):
        await steps.run_turn(1, EventLog(), take)
    assert events == []
