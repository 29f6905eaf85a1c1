"""The steps of a run, a model's turn and a tool's call: done as they come, unless somebody keeps them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from holodeck.engine.eventlog import EventLog
from holodeck.lib.record import record
from holodeck.models.events import Event
from holodeck.models.exchange import Answered
from holodeck.models.items import FunctionCall
from holodeck.tools.executor import ToolResult

Append = Callable[[Event], object]


@record
class Turn:
    """What the model said, and which of its calls wait for a person."""

    answered: Answered
    held: frozenset[str] = frozenset()


@record
class Errand:
    """One call, ready to be run."""

    call: FunctionCall
    refusal: Callable[[], Awaitable[str | None]]
    """Why it cannot be run, in words for the model."""
    permission: Callable[[], Awaitable[str | None]]
    """Asks the person whom the call needs, and says why it must not run. Who does not ask leaves it to `execute`."""
    may_repeat: Callable[[], bool]
    """Whether running it twice does no harm."""
    execute: Callable[[], Awaitable[ToolResult]]


class Steps(Protocol):
    """Carries out the steps of one run."""

    async def turn(self, number: int, log: EventLog, take: Callable[[Append], Awaitable[Turn]]) -> Turn:
        """Have the model asked by `take`, which tells the log what happens through what it is given."""
        ...

    async def call(self, errand: Errand) -> ToolResult: ...


class AtOnce:
    """Nothing is kept."""

    async def turn(self, number: int, log: EventLog, take: Callable[[Append], Awaitable[Turn]]) -> Turn:
        return await take(log.append)

    async def call(self, errand: Errand) -> ToolResult:
        refusal = await errand.refusal()
        return await errand.execute() if refusal is None else ToolResult.failed(errand.call.call_id, refusal)
