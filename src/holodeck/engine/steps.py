"""The steps of a run, a model's turn and a tool's call: done as they come, unless somebody keeps them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from holodeck.engine.event_log import EventLog
from holodeck.lib.types import record
from holodeck.models.events import Event
from holodeck.models.items import FunctionCall
from holodeck.models.model_io import ModelAnswer
from holodeck.tools.executor import ToolResult

AppendEvent = Callable[[Event], object]


@record
class ModelTurn:
    """What the model said, and which of its calls wait for a person."""

    answer: ModelAnswer
    needs_approval: frozenset[str] = frozenset()


@record
class PreparedCall:
    """One call, ready to be run."""

    call: FunctionCall
    find_refusal: Callable[[], Awaitable[str | None]]
    """Why it cannot be run, in words for the model."""
    ask_permission: Callable[[], Awaitable[str | None]]
    """Asks the person whom the call needs, and says why it must not run. Who does not ask leaves it to `execute`."""
    may_repeat: Callable[[], bool]
    """Whether running it twice does no harm."""
    execute: Callable[[], Awaitable[ToolResult]]


class Steps(Protocol):
    """Carries out the steps of one run."""

    async def run_turn(
        self, number: int, log: EventLog, ask_model: Callable[[AppendEvent], Awaitable[ModelTurn]]
    ) -> ModelTurn:
        """Have the model asked by `ask_model`, which tells the log what happens through what it is given."""
        ...

    async def run_call(self, prepared: PreparedCall) -> ToolResult: ...


class DirectSteps:
    """Nothing is kept."""

    async def run_turn(
        self, number: int, log: EventLog, ask_model: Callable[[AppendEvent], Awaitable[ModelTurn]]
    ) -> ModelTurn:
        return await ask_model(log.append)

    async def run_call(self, prepared: PreparedCall) -> ToolResult:
        refusal = await prepared.find_refusal()
        return await prepared.execute() if refusal is None else ToolResult.failure(prepared.call.call_id, refusal)
