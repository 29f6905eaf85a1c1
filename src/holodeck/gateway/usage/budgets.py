"""Budgets of callers: an amount that a caller may spend in an hour, a day, a week or a month (UTC).

`Budgets.check` refuses a caller that has spent its budget. It is called for each request that uses a model, and by
`BudgetedModel` before each turn, so that a run overshoots by one turn at most. What a caller has spent is stored, so it
survives a restart and is the same for all gateways with the same storage, each of which sees the turns of the others
once they are stored: see `UsageMeter`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

from holodeck.gateway.auth.callers import KEY_CALLER_PREFIX
from holodeck.gateway.limits import TooManyError
from holodeck.gateway.usage.meter import FLUSH_INTERVAL, UsageMeter
from holodeck.lib.errors import BUDGET_EXCEEDED, ModelError
from holodeck.lib.record import record
from holodeck.models.callers import Budget
from holodeck.models.gateway import GatewayFile
from holodeck.models.model_io import ModelRequest
from holodeck.providers.base import Batches, ModelProvider, ModelWrapper, stream_in_batches
from holodeck.storage.usage import UsageStore

# Callers whose spending is remembered. More than are active at once; the spending of others is read again.
_MAX_ACCOUNTS = 10_000


class BudgetExceededError(TooManyError):
    """The caller has spent its budget."""

    code = BUDGET_EXCEEDED
    should_retry = False


@record
class BudgetPeriod:
    """One period of a budget, in seconds since 1970."""

    start: int
    end: int


@record
class _Account:
    """What a caller had spent in a period, of what was stored when it was read."""

    start: int
    stored: float
    batches: int
    """How many batches this gateway had stored."""
    read_at: float

    def is_current(self, period: BudgetPeriod, batches: int, now: float) -> bool:
        """Whether it need not be read again: other gateways may store a batch each second."""
        return (self.start, self.batches) == (period.start, batches) and now - self.read_at < FLUSH_INTERVAL


class Budgets:
    """Checks the budgets of all callers of a gateway."""

    def __init__(
        self, store: UsageStore, meter: UsageMeter, gateway: GatewayFile, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._meter = meter
        self._clock = clock
        self._accounts: dict[str, _Account] = {}
        self.replace_budgets(gateway)

    def replace_budgets(self, gateway: GatewayFile) -> None:
        """Hold the budgets of these settings from now on. What was spent stays spent."""
        self._default = gateway.limits.key_budget
        self._budgets = {f"{KEY_CALLER_PREFIX}{key.name}": key.budget for key in gateway.keys if key.budget is not None}

    def find_budget(self, caller_id: str) -> Budget | None:
        return self._budgets.get(caller_id, self._default)

    async def check(self, caller_id: str) -> None:
        """Raise `BudgetExceededError` if the caller has spent its budget, and `StorageError` if that is not known."""
        budget = self.find_budget(caller_id)
        if budget is None:
            return
        period = find_period(budget, self._clock())
        if await self._read_spent(caller_id, period) >= budget.amount:
            raise BudgetExceededError(_describe(budget, period), max(1.0, period.end - self._clock()))

    def wrap_model(self, model: ModelProvider, caller_id: str) -> ModelProvider:
        """The model, which checks the budget before each turn if the caller has one."""
        return model if self.find_budget(caller_id) is None else BudgetedModel(model, self, caller_id)

    async def _read_spent(self, caller_id: str, period: BudgetPeriod) -> float:
        now, meter = time.monotonic(), self._meter
        # Storing a batch moves amounts from one side of this sum to the other.
        async with meter.lock:
            account = self._accounts.get(caller_id)
            if account is None or not account.is_current(period, meter.stored_batches, now):
                stored = await self._store.read_spending(caller_id, period.start)
                if len(self._accounts) >= _MAX_ACCOUNTS:
                    self._accounts.clear()
                account = _Account(start=period.start, stored=stored, batches=meter.stored_batches, read_at=now)
                self._accounts[caller_id] = account
            return account.stored + meter.sum_unstored(caller_id, period.start)


class BudgetedModel(ModelWrapper):
    """A model that a caller can ask while it has a budget left. It does not own the model inside."""

    def __init__(self, inner: ModelProvider, budgets: Budgets, caller_id: str) -> None:
        super().__init__(inner)
        self._budgets = budgets
        self._caller_id = caller_id

    async def stream_batches(self, request: ModelRequest) -> Batches:
        try:
            await self._budgets.check(self._caller_id)
        except BudgetExceededError as error:
            text = str(error)
            raise ModelError(
                text, code=BUDGET_EXCEEDED, public_text=text, is_retryable=False, retry_after=error.retry_after
            ) from None
        async with aclosing(stream_in_batches(self._inner, request)) as batches:
            async for batch in batches:
                yield batch

    async def close(self) -> None:
        """Does nothing: the model is that of all callers."""


def find_period(budget: Budget, now: float) -> BudgetPeriod:
    """The period of a budget that a time is in. Weeks begin on Monday."""
    moment = datetime.fromtimestamp(now, UTC).replace(minute=0, second=0, microsecond=0)
    midnight = moment.replace(hour=0)
    match budget.period:
        case "hour":
            start, end = moment, moment + timedelta(hours=1)
        case "day":
            start, end = midnight, midnight + timedelta(days=1)
        case "week":
            start = midnight - timedelta(days=midnight.weekday())
            end = start + timedelta(days=7)
        case "month":
            start = midnight.replace(day=1)
            end = (start + timedelta(days=32)).replace(day=1)
    return BudgetPeriod(start=int(start.timestamp()), end=int(end.timestamp()))


def _describe(budget: Budget, period: BudgetPeriod) -> str:
    reset = datetime.fromtimestamp(period.end, UTC)
    return (
        f"This key has spent its budget of {budget.amount:g} for this {budget.period}. "
        f"It is reset at {reset:%Y-%m-%d %H:%M} UTC."
    )
