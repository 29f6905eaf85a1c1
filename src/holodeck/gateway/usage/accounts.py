"""The one place where a gateway records what its callers use: for metrics, usage, budgets and limits of tokens.

A turn is charged once: by its model if the caller has a limit (`BudgetedModel`, which reserves it first), and here
otherwise. Runs, tool calls and requests to a model that are no runs are counted when they have ended.
"""

from __future__ import annotations

from holodeck.gateway.metrics.counters import Metrics
from holodeck.gateway.usage.budgets import Budgets
from holodeck.gateway.usage.meter import UsageMeter
from holodeck.models.events import RunResult
from holodeck.models.items import Usage


class Accounts:
    """Records what the callers of one gateway use. Nothing waits here."""

    def __init__(self, metrics: Metrics, meter: UsageMeter | None = None, budgets: Budgets | None = None) -> None:
        """`meter` and `budgets`: None where only metrics are counted."""
        self._metrics = metrics
        self._meter = meter
        self._budgets = budgets
        if budgets is not None:
            budgets.add_alert_listener(metrics.count_budget_alert)

    def record_turn(
        self,
        caller_id: str,
        model: str,
        *,
        is_charged: bool,
        seconds: float | None,
        first_token_seconds: float | None,
        usage: Usage,
        cost: float | None,
    ) -> None:
        """Record a turn. `is_charged`: its model has done that.

        `seconds`: None for one without an answer, as when the client has left. `first_token_seconds`: None for an
        answer without any content. `cost`: None if the model has no price.
        """
        if seconds is not None:
            self._metrics.count_turn(model, seconds, first_token_seconds)
        if self._budgets is not None and not is_charged:
            self._budgets.charge(caller_id, usage, cost or 0.0)

    def record_run(
        self,
        caller_id: str,
        model: str,
        result: RunResult,
        *,
        seconds: float,
        cost: float | None,
        first_token_seconds: float | None = None,
    ) -> None:
        """Record a run, however it ended; its turns are charged already. Times are from the creation of the run on."""
        self._metrics.count_run(model, result, caller_id, cost=cost)
        if self._meter is not None:
            self._meter.count_run(caller_id, model, result, seconds=seconds, cost=cost, first_token=first_token_seconds)

    def record_request(self, caller_id: str, model: str, result: RunResult, *, is_charged: bool) -> None:
        """Record a request to a model that is no run."""
        self.record_run(caller_id, model, result, seconds=result.seconds, cost=result.cost)
        if self._budgets is not None and not is_charged:
            self._budgets.charge(caller_id, result.usage, result.cost or 0.0)

    def record_call(
        self,
        caller_id: str,
        model: str,
        server: str,
        tool: str,
        seconds: float,
        *,
        is_error: bool,
        is_direct: bool = False,
    ) -> None:
        """Record a tool call that has ended. `is_direct`: an MCP client made it, so it is no part of a run."""
        self._metrics.count_tool_call(server, tool, seconds, is_error=is_error)
        if self._meter is not None:
            self._meter.count_call(caller_id, model, server, tool, seconds, is_error=is_error, is_direct=is_direct)
