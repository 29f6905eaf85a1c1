"""Budgets of callers: an amount that a caller may spend in an hour, a day, a week or a month (UTC).

`Budgets.check` refuses a caller that has spent its budget. It is called for each request that uses a model. Then
`BudgetedModel` reserves an estimated cost before each turn, charges the real one after it, and stores that before the
answer is used, so that a process that is killed has stored the cost of each turn that it went on with. A turn that ends
before the provider has told its tokens, as when the client leaves, is charged by an estimate of them.

Reservations are in memory. A turn waits while those of the caller's other turns in this process may use up the rest of
its budget: they end soon, and then it is known whether something is left. Other gateways with the same storage see
what is stored, once a second. So a caller overshoots by what its turns at one moment cost beyond their estimates.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta

from holodeck.gateway.context.tokens import CHARS_PER_TOKEN, count_items, count_tokens
from holodeck.gateway.limits import CallerLimits, TooManyError
from holodeck.gateway.usage.meter import FLUSH_INTERVAL, UsageMeter
from holodeck.lib.errors import BUDGET_EXCEEDED, ModelError, StorageError
from holodeck.lib.record import record
from holodeck.models.callers import Budget
from holodeck.models.gateway import GatewayFile
from holodeck.models.items import Usage
from holodeck.models.model_io import CallDelta, ModelAnswer, ModelEvent, ModelRequest, ReasoningDelta, TextDelta
from holodeck.models.price import Price
from holodeck.providers.base import Batches, ModelProvider, ModelWrapper, stream_in_batches
from holodeck.storage.usage import UsageStore

# Callers whose spending is remembered. More than are active at once; the spending of others is read again.
_MAX_ACCOUNTS = 10_000
# Output tokens that are reserved for a turn whose request has no limit: more than most answers have.
_RESERVED_OUTPUT_TOKENS = 4_096
# Share of a budget that a turn reserves at least while no turn of its caller has ended here: four start at once then.
_FIRST_TURN_SHARE = 0.25
# How much of the expected cost of a caller's turns is left after a cheaper one: twenty of them forget an outlier.
_EXPECTATION_LEFT = 0.9


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
    """What a caller had spent in a period beside what is in the memory of the meter, when it was read."""

    start: int
    stored: float
    spent_since: int
    """As the meter had it."""
    read_at: float

    def is_current(self, period: BudgetPeriod, spent_since: int, now: float) -> bool:
        """Whether it need not be read again: other gateways store theirs each second."""
        return (self.start, self.spent_since) == (period.start, spent_since) and now - self.read_at < FLUSH_INTERVAL


class _OpenTurns:
    """What the turns of one caller that run now have reserved, and what its turns cost lately."""

    def __init__(self) -> None:
        self.reserved: list[float] = []
        self.expected: float | None = None
        """Cost of the dearest turn, which fades with each cheaper one. None: no turn has ended yet."""
        self._settled = asyncio.Event()

    def settle(self, reserved: float, cost: float | None) -> None:
        """End a turn, and wake those that wait for it. `cost`: None if the turn has failed."""
        self.reserved.remove(reserved)
        if cost is not None:
            self.expected = max(cost, (self.expected or 0.0) * _EXPECTATION_LEFT)
        self._settled.set()
        self._settled = asyncio.Event()

    async def wait_settled(self) -> None:
        """Wait until one of the turns has ended. Each is bounded by the timeouts of its model."""
        await self._settled.wait()


@record
class Reservation:
    """What a turn of a caller has reserved. `settle` is called once, when the turn has ended and is charged."""

    settle: Callable[[float | None], None]
    """Takes the cost of the turn; None if it has failed."""


_NO_RESERVATION = Reservation(settle=lambda cost: None)


class Budgets:
    """Checks the budgets of all callers of a gateway."""

    def __init__(
        self,
        store: UsageStore,
        meter: UsageMeter,
        gateway: GatewayFile,
        caller_limits: CallerLimits,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`caller_limits`: counts the estimated tokens of turns whose tokens the provider does not tell."""
        self._store = store
        self._meter = meter
        self._caller_limits = caller_limits
        self._clock = clock
        self._accounts: dict[str, _Account] = {}
        self._open_turns: dict[str, _OpenTurns] = {}
        self._reading = asyncio.Lock()
        """Held while an account is read: requests at the same time share it."""
        self.replace_budgets(gateway)

    def replace_budgets(self, gateway: GatewayFile) -> None:
        """Hold the budgets of these settings from now on. What was spent stays spent."""
        self._default = gateway.limits.key_budget
        self._budgets = {key.caller_id: key.budget for key in gateway.keys if key.budget is not None}

    def find_budget(self, caller_id: str) -> Budget | None:
        return self._budgets.get(caller_id, self._default)

    async def check(self, caller_id: str) -> None:
        """Raise `BudgetExceededError` if the caller has spent its budget, and `StorageError` if that is not known."""
        budget = self.find_budget(caller_id)
        if budget is not None:
            await self._require_left(caller_id, budget)

    async def reserve(self, caller_id: str, cost: float) -> Reservation:
        """Reserve an estimated cost for a turn of a caller, once its other turns leave something of its budget.

        Raises `ModelError` if nothing is left, and `StorageError`. Nothing is reserved without a budget.
        """
        budget = self.find_budget(caller_id)
        if budget is None:
            return _NO_RESERVATION
        while True:
            try:
                spent = await self._require_left(caller_id, budget)
            except BudgetExceededError as error:
                text, after = str(error), error.retry_after
                raise ModelError(
                    text, code=BUDGET_EXCEEDED, public_text=text, is_retryable=False, retry_after=after
                ) from None
            turns = self._open_turns.get(caller_id) or self._add_open_turns(caller_id)
            if not turns.reserved or spent + sum(turns.reserved) < budget.amount:
                break
            await turns.wait_settled()
        expected = budget.amount * _FIRST_TURN_SHARE if turns.expected is None else turns.expected
        reserved = max(cost, expected)
        turns.reserved.append(reserved)
        return Reservation(settle=lambda cost: turns.settle(reserved, cost))

    def has_limit(self, caller_id: str) -> bool:
        """Whether a caller has a budget or a limit of tokens, so that each of its turns is charged."""
        return self.find_budget(caller_id) is not None or self._caller_limits.has_token_limit(caller_id)

    def wrap_model(self, model: ModelProvider, caller_id: str, price: Price | None) -> ModelProvider:
        """The model, which charges each turn itself if the caller has a limit.

        `price`: of the model. The cost of turns of other callers is counted with their runs.
        """
        # `has_limit`, written out: every request comes here, and most callers have no limit.
        if self._budgets.get(caller_id, self._default) is None and not self._caller_limits.has_token_limit(caller_id):
            return model
        return BudgetedModel(model, self, caller_id, price)

    def charge(self, caller_id: str, usage: Usage, price: Price | None) -> float:
        """Count what the tokens of a turn cost its caller, and return it."""
        cost = 0.0 if price is None else price.cost_of(usage)
        self._meter.spend(caller_id, cost)
        return cost

    def charge_estimate(self, caller_id: str, usage: Usage, price: Price | None) -> float:
        """Charge tokens that the provider has not told, and count them for the caller's limit of tokens."""
        self._caller_limits.add_tokens(caller_id, usage.total_tokens)
        return self.charge(caller_id, usage, price)

    async def store_spending(self, caller_id: str) -> None:
        """Store what a caller with a budget has spent. If that fails, the meter tries again each second."""
        if self.find_budget(caller_id) is not None:
            with suppress(StorageError):
                await self._meter.store_spending()

    async def _require_left(self, caller_id: str, budget: Budget) -> float:
        """What the caller has spent in this period. Raises `BudgetExceededError` if that is its budget."""
        period = find_period(budget, self._clock())
        spent = await self._read_spent(caller_id, period)
        if spent >= budget.amount:
            raise BudgetExceededError(_describe(budget, period), max(1.0, period.end - self._clock()))
        return spent

    async def _read_spent(self, caller_id: str, period: BudgetPeriod) -> float:
        meter = self._meter
        async with self._reading:
            account = self._accounts.get(caller_id)
            if account is None or not account.is_current(period, meter.spent_since, time.monotonic()):
                account = await self._read_account(caller_id, period)
            return account.stored + meter.sum_spent(caller_id, period.start)

    async def _read_account(self, caller_id: str, period: BudgetPeriod) -> _Account:
        since: int | None = None
        # Again, if the meter has dropped an hour in the meantime.
        while since != self._meter.spent_since:
            since, now = self._meter.spent_since, time.monotonic()
            source = self._meter.source
            stored = await self._store.read_spending(caller_id, period.start, source=source, before=since)
        if len(self._accounts) >= _MAX_ACCOUNTS:
            self._accounts.clear()
        account = _Account(start=period.start, stored=stored, spent_since=since, read_at=now)
        self._accounts[caller_id] = account
        return account

    def _add_open_turns(self, caller_id: str) -> _OpenTurns:
        if len(self._open_turns) >= _MAX_ACCOUNTS:
            self._open_turns = {name: turns for name, turns in self._open_turns.items() if turns.reserved}
        turns = self._open_turns[caller_id] = _OpenTurns()
        return turns


class BudgetedModel(ModelWrapper):
    """A model that a caller can ask while it has a budget left, and that charges each turn.

    It does not own the model inside.
    """

    def __init__(self, inner: ModelProvider, budgets: Budgets, caller_id: str, price: Price | None) -> None:
        super().__init__(inner)
        self._budgets = budgets
        self._caller_id = caller_id
        self._price = price

    async def stream_batches(self, request: ModelRequest) -> Batches:
        reservation = await self._reserve(request)
        characters, is_settled = 0, False
        try:
            async with aclosing(stream_in_batches(self._inner, request)) as batches:
                async for batch in batches:
                    characters += _count_characters(batch)
                    answer = batch[-1]
                    if isinstance(answer, ModelAnswer):
                        is_settled = True
                        reservation.settle(self._charge(request, answer, characters))
                        await self._budgets.store_spending(self._caller_id)
                    yield batch
        except ModelError:
            if not characters and not is_settled:
                is_settled = True
                reservation.settle(None)
            raise
        finally:
            # The turn was left, or broke off. The provider may bill its input even before the first word.
            if not is_settled:
                reservation.settle(self._charge_estimate(request, characters))

    async def close(self) -> None:
        """Does nothing: the model is that of all callers."""

    async def _reserve(self, request: ModelRequest) -> Reservation:
        """Reserve the estimated cost of a turn. Raises `ModelError` if the budget is spent."""
        cost = 0.0
        if self._price is not None and self._budgets.find_budget(self._caller_id) is not None:
            output_tokens = request.max_tokens or _RESERVED_OUTPUT_TOKENS
            cost = self._price.cost_of(Usage(input_tokens=count_tokens(request), output_tokens=output_tokens))
        return await self._budgets.reserve(self._caller_id, cost)

    def _charge(self, request: ModelRequest, answer: ModelAnswer, characters: int) -> float:
        # An answer without items is that of no model.
        if answer.usage.total_tokens or not answer.items:
            return self._budgets.charge(self._caller_id, answer.usage, self._price)
        return self._charge_estimate(request, characters, 0 if characters else count_items(answer.items))

    def _charge_estimate(self, request: ModelRequest, characters: int, output_tokens: int = 0) -> float:
        """Charge a turn by the text that was received: `characters`, or `output_tokens` of an answer as a whole."""
        output_tokens += -(-characters // CHARS_PER_TOKEN)
        usage = Usage(input_tokens=count_tokens(request), output_tokens=output_tokens)
        return self._budgets.charge_estimate(self._caller_id, usage, self._price)


def _count_characters(batch: Iterable[ModelEvent]) -> int:
    """The characters of the deltas of an answer."""
    count = 0
    for event in batch:
        if isinstance(event, TextDelta | ReasoningDelta):
            count += len(event.text)
        elif isinstance(event, CallDelta):
            count += len(event.name) + len(event.arguments)
    return count


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
