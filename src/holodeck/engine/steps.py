"""Steps of a durable run: the model turns and tool calls that the loop delegates, so that they can be checkpointed.

The loop decides which step comes next. Without a `Steps` object it runs the step itself; with one, that carries it out.
`engine.checkpointed_steps.CheckpointedSteps` stores each result, so that another process can continue the run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from holodeck.engine.event_log import EventSink
from holodeck.lib.record import record
from holodeck.models.events import Event
from holodeck.models.items import FunctionCall
from holodeck.models.model_io import ModelAnswer
from holodeck.tools.executor import ResumePoint, ToolResult


class AppendEvent(Protocol):
    """Appends events to the log of a run, in their order."""

    def __call__(self, *events: Event) -> object: ...


@record
class ModelTurn:
    """The answer of one model turn, and the ids of those of its calls that need a person's approval."""

    answer: ModelAnswer
    needs_approval: frozenset[str] = frozenset()
    replayed_tools: int = 0
    """How many tools the model was offered, if an earlier process ran the turn."""


class PreparedCall(Protocol):
    """One tool call that is ready to run: first it is asked for a refusal, then executed."""

    @property
    def call(self) -> FunctionCall: ...

    async def find_refusal(self) -> str | None:
        """Return the reason why the call cannot run, as text for the model; None if it can."""
        ...

    async def ask_permission(self) -> str | None:
        """Ask the person whose permission the call needs, and return the reason if it must not run.

        Optional: a permission that was not asked for here is asked for by `execute`.
        """
        ...

    def may_repeat(self) -> bool:
        """Return whether running the call twice does no harm."""
        ...

    async def execute(self, resume: ResumePoint | None = None) -> ToolResult:
        """Run the call, or go on with it from what an earlier process has stored at `resume`."""
        ...

    async def record_unknown(self, result: ToolResult) -> None:
        """Record the result of a call that an earlier process began, and that is not run again."""
        ...


class Steps(Protocol):
    """Carries out the steps of one durable run."""

    async def run_turn(
        self, number: int, log: EventSink, ask_model: Callable[[AppendEvent], Awaitable[ModelTurn]]
    ) -> ModelTurn:
        """Carry out turn `number` by calling `ask_model` with a function that appends its events to `log`.

        Raises what `ask_model` raises.
        """
        ...

    async def run_call(self, prepared: PreparedCall) -> ToolResult:
        """Run the call, or return a failure that has its refusal."""
        ...
