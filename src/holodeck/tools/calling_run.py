"""`CallingRun`: the run that makes a call, as a tool sees it that is a run itself: what is spent, and what may be.

What an agent spends that another one has asked counts for both, up to the run that a program or a person started. After
each turn of any of them, the limits of all that wait for it hold. The engine makes one for each run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holodeck.lib.record import record
from holodeck.models.events import Cause, Event
from holodeck.models.items import Usage

if TYPE_CHECKING:
    from holodeck.tools.calls import CallPipeline


_NO_USAGE = Usage()


@record
class Spending:
    """Tokens, cost and calls of an agent that was asked by a call."""

    usage: Usage
    cost: float | None
    """None: one of its models has no price."""
    calls: int
    """How many tools were called."""


class CallingRun:
    """The account of one run with the agents that it asks, and the way to its events and its rules of calls."""

    __slots__ = (
        "_max_calls",
        "_max_cost",
        "_max_tokens",
        "agent",
        "append",
        "caller",
        "calls",
        "cost",
        "has_asked",
        "is_streamed",
        "pipeline",
        "usage",
    )

    def __init__(
        self,
        agent: str,
        pipeline: CallPipeline,
        append: Callable[..., object],
        *,
        is_streamed: bool,
        max_tokens: int | None,
        max_cost: float | None,
        max_calls: int | None,
        caller: CallingRun | None,
    ) -> None:
        """`append`: appends events to those of the run. `caller`: the run that waits for this one."""
        self.agent = agent
        self.pipeline = pipeline
        self.append: Callable[[Event], object] = append
        self.is_streamed = is_streamed
        """Whether something reads the deltas of the run."""
        self.caller = caller
        self.usage = _NO_USAGE
        """Tokens of all turns that have ended, those of agents that were asked included."""
        self.cost: float | None = 0.0
        """Their cost. None: one of the models has no price."""
        self.calls = 0
        """How many tools were called, or are being called."""
        self.has_asked = False
        """Whether an agent that it has asked has spent something."""
        self._max_tokens = max_tokens
        self._max_cost = max_cost
        self._max_calls = max_calls

    def spend(self, usage: Usage, cost: float | None) -> None:
        """Count a turn for this run, and for those that wait for it. `cost`: None if the model has no price."""
        run: CallingRun | None = self
        while run is not None:
            run.usage = usage if run.usage is _NO_USAGE else run.usage + usage
            run.cost = None if run.cost is None or cost is None else run.cost + cost
            run.has_asked = run.has_asked or run is not self
            run = run.caller

    def count_calls(self, calls: int) -> None:
        """Count calls that are about to be made, for this run and for those that wait for it."""
        run: CallingRun | None = self
        while run is not None:
            run.calls += calls
            run = run.caller

    def repay(self, spending: Spending) -> None:
        """Count what an agent has spent for a call whose result an earlier process has stored."""
        self.spend(spending.usage, spending.cost)
        self.count_calls(spending.calls)
        self.has_asked = True

    def find_spent_limit(self) -> tuple[Cause, str] | None:
        """Return the limit of tokens or cost that was reached, with a text of it: of this run, or of one that waits."""
        run: CallingRun | None = self
        while run is not None:
            whose = "" if run is self else f" of the agent '{run.agent}' that asked"
            if run._max_tokens is not None and run.usage.total_tokens >= run._max_tokens:
                return "max_tokens", f"{run._max_tokens} tokens{whose}"
            if run._max_cost is not None and run.cost is not None and run.cost >= run._max_cost:
                return "max_cost", f"{run._max_cost:g} for the cost{whose}"
            run = run.caller
        return None

    def count_calls_left(self) -> int | None:
        """Return how many tools may be called still, by this run and by those that wait for it. None: any number."""
        left: int | None = None
        run: CallingRun | None = self
        while run is not None:
            if run._max_calls is not None:
                own = max(run._max_calls - run.calls, 0)
                left = own if left is None else min(left, own)
            run = run.caller
        return left
