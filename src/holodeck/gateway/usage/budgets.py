"""Budgets of callers: an amount that a caller may spend in an hour, a day, a week or a month (UTC).

`Budgets.check` refuses a caller that has spent its budget. It is called for each request that uses a model. Then
`BudgetedModel` reserves an estimated cost before each turn, charges the real one after it, and stores that before the
answer is used, so that a process that is killed has stored the cost of each turn that it went on with. A turn that ends
before the provider has told its tokens, as when the client leaves, is charged by an estimate of them.

A caller in a group is also charged to the group, and a key that a person has made for itself to that person: each of
these accounts must have something left.

The tokens of a turn are reserved in the same way for a caller with a limit of tokens a minute. That limit decides
whether a run starts; one that has had a turn goes on.

Reservations are in memory. A turn waits while those of the caller's other turns in this process may use up the rest of
its limit: they end soon, and then it is known whether something is left. Other gateways with the same storage see
what is stored, once a second. So a caller overshoots by what its turns at one moment cost beyond their estimates.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal

from holodeck.engine.tokens import CHARS_PER_TOKEN, count_items, count_tokens, estimate_usage, find_cut_usage
from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.auth.groups import SharedAccount
from holodeck.gateway.limits import CallerLimits, TooManyError
from holodeck.gateway.usage.meter import FLUSH_INTERVAL, UsageMeter
from holodeck.lib import log
from holodeck.lib.errors import BUDGET_EXCEEDED, ModelError, StorageError
from holodeck.lib.record import record
from holodeck.models.callers import Budget
from holodeck.models.gateway import GatewayFile
from holodeck.models.items import Usage
from holodeck.models.model_io import (
    CallDelta,
    ModelAnswer,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    StandInChosen,
    TextDelta,
)
from holodeck.models.price import ModelPrices
from holodeck.providers.base import Batches, ModelProvider, ModelWrapper, stream_in_batches
from holodeck.storage.usage import UsageStore

ALERT_SHARE = 0.8
"""The share of a budget after which there is an alert."""
# Decimal places of amounts that are shown.
COST_DIGITS = 6
_THIS_KEY = "This key"
# Callers whose spending is remembered. More than are active at once; the spending of others is read again.
_MAX_ACCOUNTS = 10_000
# Output tokens that are reserved for a turn whose request has no limit: more than most answers have.
_RESERVED_OUTPUT_TOKENS = 4_096
# Share of a limit that a turn reserves at least while no turn of its caller has ended here: four start at once then.
_FIRST_TURN_SHARE = 0.25
# How much of the expected use of a caller's turns is left after a cheaper one: twenty of them forget an outlier.
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
class BudgetState:
    """A budget, and how much of it is spent."""

    budget: Budget
    spent: float
    resets_at: int

    def to_resource(self) -> dict[str, Any]:
        """Return what callers and operators are shown."""
        return {
            "spent": round(self.spent, COST_DIGITS),
            "left": round(max(0.0, self.budget.amount - self.spent), COST_DIGITS),
            "resets_at": self.resets_at,
        }


@record
class _Account:
    """The amount that a caller had spent in a period beside that in the memory of the meter, when it was read."""

    start: int
    stored: float
    spent_since: int
    """As the meter had it."""
    read_at: float

    def is_current(self, period: BudgetPeriod, spent_since: int, now: float) -> bool:
        """Return whether it need not be read again: other gateways store theirs each second."""
        return (self.start, self.spent_since) == (period.start, spent_since) and now - self.read_at < FLUSH_INTERVAL


class _OpenTurns:
    """The amount of a limit that the running turns of one caller have reserved, and that its turns used lately.

    Amounts are costs for a budget, and tokens for a limit of them.
    """

    def __init__(self) -> None:
        self.reserved: list[float] = []
        self._expected: float | None = None
        """Used by the dearest turn, which fades with each cheaper one. None: no turn has ended yet."""
        self._settled = asyncio.Event()

    def may_use_up(self, left: float) -> bool:
        """Return whether these turns may use as much as is left."""
        return bool(self.reserved) and sum(self.reserved) >= left

    def reserve(self, estimate: float, limit: float) -> float:
        """Reserve an estimated amount, or the expected one if that is more, and return it."""
        reserved = max(estimate, limit * _FIRST_TURN_SHARE if self._expected is None else self._expected)
        self.reserved.append(reserved)
        return reserved

    def settle(self, reserved: float, used: float | None) -> None:
        """End a turn, and wake those that wait for it. `used`: None if the turn has failed."""
        self.reserved.remove(reserved)
        if used is not None:
            self._expected = max(used, (self._expected or 0.0) * _EXPECTATION_LEFT)
        self._settled.set()
        self._settled = asyncio.Event()

    async def wait_settled(self) -> None:
        """Wait until one of the turns has ended. Each is bounded by the timeouts of its model."""
        await self._settled.wait()


_Limited = Literal["cost", "tokens"]


@record
class _Payer:
    """An account that a turn is charged to, with its limits."""

    id: str
    shown_as: str
    budget: Budget | None
    token_limit: int | None


class Reservation:
    """The amount that a turn of a caller has reserved. `settle` is called once, when the turn has ended."""

    def __init__(self, charge: Callable[[Usage, float], None]) -> None:
        """`charge`: counts what the turn has used, with its cost."""
        self._charge = charge
        self._reserved: list[tuple[_Limited, _OpenTurns, float]] = []

    def add(self, kind: _Limited, turns: _OpenTurns, estimate: float, limit: float) -> None:
        self._reserved.append((kind, turns, turns.reserve(estimate, limit)))

    def settle(self, usage: Usage | None, cost: float = 0.0) -> None:
        """Charge what the turn has used. None: it has failed, and costs nothing."""
        if usage is not None:
            self._charge(usage, cost)
        for kind, turns, reserved in self._reserved:
            turns.settle(reserved, None if usage is None else cost if kind == "cost" else usage.total_tokens)


class Budgets:
    """Checks the budgets of all callers of a gateway, and reserves and charges the turns of those with a limit."""

    def __init__(
        self,
        store: UsageStore,
        meter: UsageMeter,
        gateway: GatewayFile,
        caller_limits: CallerLimits,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`caller_limits`: counts the tokens of turns."""
        self._store = store
        self._meter = meter
        self._caller_limits = caller_limits
        self._clock = clock
        self._accounts: dict[str, _Account] = {}
        self._open_turns: dict[tuple[str, _Limited], _OpenTurns] = {}
        self._alert_listeners: list[Callable[[str], None]] = []
        self._alerted: dict[str, int] = {}
        """The start of the period for which there was an alert, by caller."""
        self._reading = asyncio.Lock()
        """Held while an account is read: requests at the same time share it."""
        self._in_store: Mapping[str, Budget | None] = {}
        self.replace_budgets(gateway)

    def replace_budgets(self, gateway: GatewayFile) -> None:
        """Hold the budgets of these settings from now on. What was spent stays spent."""
        self._default = gateway.limits.key_budget
        self._in_file: dict[str, Budget | None] = {
            key.caller_id: key.budget for key in gateway.keys if key.budget is not None
        }
        # The default is for callers: a group without a budget has none.
        self._in_file |= {group.id: group.budget for group in gateway.groups}
        self._budgets = {**self._in_store, **self._in_file}

    def replace_stored_budgets(self, budgets: Mapping[str, Budget]) -> None:
        """Hold these budgets of callers with keys in the store from now on. What was spent stays spent."""
        self._in_store = budgets
        self._budgets = {**self._in_store, **self._in_file}

    def add_alert_listener(self, listener: Callable[[str], None]) -> None:
        """Call a function with each caller that has spent most of its budget, once in a period."""
        self._alert_listeners.append(listener)

    def find_budget(self, caller_id: str) -> Budget | None:
        return self._budgets.get(caller_id, self._default)

    async def read_state(self, caller_id: str) -> BudgetState | None:
        """Return what the caller has spent of its budget. None: it has none. Raises `StorageError`."""
        budget = self.find_budget(caller_id)
        if budget is None:
            return None
        period = find_period(budget, self._clock())
        spent = await self._read_spent(caller_id, period)
        return BudgetState(budget=budget, spent=spent, resets_at=period.end)

    async def check(self, caller: Caller) -> None:
        """Raise `BudgetExceededError` if a budget of the caller is spent, and `StorageError` if that is not known."""
        budget = self.find_budget(caller.id)
        if budget is not None:
            await self._require_left(caller.id, budget)
        for each in caller.shared:
            budget = self.find_budget(each.id)
            if budget is not None:
                await self._require_left(each.id, budget, each.shown_as)

    async def reserve(self, caller: Caller, tokens: int, cost: float, *, has_started: bool = False) -> Reservation:
        """Reserve an estimated use for a turn of a caller, once its other turns leave something of its limits.

        `has_started`: the limit of tokens a minute was checked for its run before.
        Raises `ModelError` if nothing is left, and `StorageError`.
        """
        while True:
            reservation = Reservation(partial(self.charge, caller.id, shared=caller.shared))
            try:
                full = await self._try_reserve(reservation, caller, tokens, cost, has_started=has_started)
            except TooManyError as error:
                text, after = str(error), error.retry_after
                raise ModelError(
                    text, code=error.code, public_text=text, is_retryable=error.should_retry, retry_after=after
                ) from None
            if full is None:
                return reservation
            await full.wait_settled()

    async def _try_reserve(
        self, reservation: Reservation, caller: Caller, tokens: int, cost: float, *, has_started: bool
    ) -> _OpenTurns | None:
        """Reserve a turn, unless the open turns that are returned may use up a limit. Raises `TooManyError`."""
        payers = self._list_payers(caller)
        # Before all that does not wait: nothing may come between a look at what is left and its reservation.
        spent = await self._require_all_left(payers)
        found = []
        for payer in payers:
            by_cost, by_tokens = self._find_open_turns(payer.id, "cost"), self._find_open_turns(payer.id, "tokens")
            if payer.budget is not None and by_cost.may_use_up(payer.budget.amount - spent[payer.id]):
                return by_cost
            if payer.token_limit is not None and not has_started:
                left = payer.token_limit - self._caller_limits.require_tokens_left(payer.id, payer.shown_as)
                if by_tokens.may_use_up(left):
                    return by_tokens
            found.append((payer, by_cost, by_tokens))
        for payer, by_cost, by_tokens in found:
            if payer.budget is not None:
                reservation.add("cost", by_cost, cost, payer.budget.amount)
            if payer.token_limit is not None:
                reservation.add("tokens", by_tokens, tokens, payer.token_limit)
        return None

    def _list_payers(self, caller: Caller) -> list[_Payer]:
        limits = self._caller_limits
        own = _Payer(
            id=caller.id,
            shown_as=_THIS_KEY,
            budget=self.find_budget(caller.id),
            token_limit=limits.find_token_limit(caller.id),
        )
        shared = (
            _Payer(
                id=each.id,
                shown_as=each.shown_as,
                budget=self.find_budget(each.id),
                token_limit=limits.find_shared_token_limit(each),
            )
            for each in caller.shared
        )
        return [own, *shared]

    async def _require_all_left(self, payers: Sequence[_Payer]) -> Mapping[str, float]:
        """Return what each payer with a budget has spent, all as of the moment of the return.

        Raises `BudgetExceededError`.
        """
        limited = [(payer, payer.budget) for payer in payers if payer.budget is not None]
        # In turn: what one has spent may change while another is read.
        while True:
            before = self._meter.spent_count
            spent = {payer.id: await self._require_left(payer.id, budget, payer.shown_as) for payer, budget in limited}
            if len(limited) <= 1 or self._meter.spent_count == before:
                return spent

    def has_limit(self, caller: Caller) -> bool:
        """Return whether the turns of a caller are charged: it has a budget, a limit of tokens or a shared account."""
        return (
            bool(caller.shared)
            or self.find_budget(caller.id) is not None
            or self._caller_limits.find_token_limit(caller.id) is not None
        )

    def wrap_model(
        self,
        model: ModelProvider,
        caller: Caller,
        prices: ModelPrices,
        *,
        has_started: bool = False,
    ) -> ModelProvider:
        """Return the model, which charges each turn itself if the caller has a limit.

        `Accounts` charges the turns of other callers. `has_started`: the model is for a run that has started with
        another one.
        """
        # `has_limit`, written out: every request comes here, and most callers have no limit.
        caller_id = caller.id
        if (
            self._budgets.get(caller_id, self._default) is None
            and not caller.shared
            and self._caller_limits.find_token_limit(caller_id) is None
        ):
            return model
        return BudgetedModel(model, self, caller, prices, has_started=has_started)

    def charge(self, caller_id: str, usage: Usage, cost: float, shared: Iterable[SharedAccount] = ()) -> None:
        """Count the tokens of a turn, and what they cost its caller and the accounts that it shares."""
        self._caller_limits.add_tokens(caller_id, usage.total_tokens)
        self._meter.spend(caller_id, cost)
        for each in shared:
            self._caller_limits.add_shared_tokens(each, usage.total_tokens)
            self._meter.spend(each.id, cost)

    async def store_spending(self, caller: Caller) -> None:
        """Store what a caller with a budget has spent. If that fails, the meter tries again each second."""
        found = [(each, self.find_budget(each)) for each in (caller.id, *(shared.id for shared in caller.shared))]
        limited = [(account_id, budget) for account_id, budget in found if budget is not None]
        for account_id, budget in limited:
            self._alert_nearly_spent(account_id, budget)
        if limited:
            with suppress(StorageError):
                await self._meter.store_spending()

    def _alert_nearly_spent(self, caller_id: str, budget: Budget) -> None:
        """Say once in a period that little is left of a budget."""
        period, account = find_period(budget, self._clock()), self._accounts.get(caller_id)
        stored = account.stored if account is not None and account.start == period.start else 0.0
        spent = stored + self._meter.sum_spent(caller_id, period.start)
        if spent < budget.amount * ALERT_SHARE or self._alerted.get(caller_id) == period.start:
            return
        if len(self._alerted) >= _MAX_ACCOUNTS:
            self._alerted.clear()
        self._alerted[caller_id] = period.start
        reset = datetime.fromtimestamp(period.end, UTC)
        log.warning(
            "budget.nearly_spent",
            caller=caller_id,
            spent=round(spent, COST_DIGITS),
            amount=budget.amount,
            period=budget.period,
            resets_at=f"{reset:%Y-%m-%d %H:%M} UTC",
        )
        for listener in self._alert_listeners:
            listener(caller_id)

    async def _require_left(self, caller_id: str, budget: Budget, shown_as: str = _THIS_KEY) -> float:
        """Return what the caller has spent in this period. Raises `BudgetExceededError` if that is its budget."""
        period = find_period(budget, self._clock())
        spent = await self._read_spent(caller_id, period)
        if spent >= budget.amount:
            raise BudgetExceededError(_describe(budget, period, shown_as), max(1.0, period.end - self._clock()))
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

    def _find_open_turns(self, caller_id: str, kind: _Limited) -> _OpenTurns:
        turns = self._open_turns.get((caller_id, kind))
        if turns is None:
            if len(self._open_turns) >= _MAX_ACCOUNTS:
                self._open_turns = {key: turns for key, turns in self._open_turns.items() if turns.reserved}
            turns = self._open_turns[caller_id, kind] = _OpenTurns()
        return turns


class BudgetedModel(ModelWrapper):
    """A model that a caller can ask while it has a budget left, and that charges each turn.

    It does not own the model inside.
    """

    def __init__(
        self,
        inner: ModelProvider,
        budgets: Budgets,
        caller: Caller,
        prices: ModelPrices,
        *,
        has_started: bool,
    ) -> None:
        super().__init__(inner)
        self._budgets = budgets
        self._caller = caller
        self._prices = prices
        self._has_started = has_started

    async def stream_batches(self, request: ModelRequest) -> Batches:
        output_tokens, price = request.max_tokens or _RESERVED_OUTPUT_TOKENS, self._prices.usual
        estimate = Usage(input_tokens=count_tokens(request), output_tokens=output_tokens)
        cost = 0.0 if price is None else price.cost_of_cut(request, estimate)
        reservation = await self._budgets.reserve(
            self._caller, estimate.total_tokens, cost, has_started=self._has_started
        )
        self._has_started = True
        characters, is_settled = 0, False
        # Streamed in any case: an answer that is left is charged by the text that came.
        asked = replace(request, is_streamed=True)
        try:
            async with aclosing(stream_in_batches(self._inner, asked)) as batches:
                async for batch in batches:
                    characters += _count_characters(batch)
                    answer = batch[-1]
                    if isinstance(answer, StandInChosen):
                        price = self._prices.find(answer.name)
                    if isinstance(answer, ModelAnswer):
                        is_settled = True
                        answer = replace(answer, usage=_find_usage(request, answer, characters))
                        reservation.settle(answer.usage, 0.0 if price is None else price.cost_of_answer(answer))
                        await self._budgets.store_spending(self._caller)
                    yield batch
        except ModelError:
            if not characters and not is_settled:
                is_settled = True
                reservation.settle(None)
            raise
        finally:
            # The turn was left, or broke off. The provider may bill its input even before the first word.
            if not is_settled:
                usage = find_cut_usage(request, characters)
                reservation.settle(usage, 0.0 if price is None else price.cost_of_cut(request, usage))
                # The run has the same.
                request.receipt.told = usage

    async def close(self) -> None:
        """Do nothing: the model is that of all callers."""


def _find_usage(request: ModelRequest, answer: ModelAnswer, characters: int) -> Usage:
    """Return the tokens of a turn, estimated if the provider does not tell them."""
    # An answer without items is that of no model.
    if answer.usage.total_tokens or not answer.items:
        return answer.usage
    return estimate_usage(request, -(-characters // CHARS_PER_TOKEN) or count_items(answer.items))


def _count_characters(batch: Iterable[ModelEvent]) -> int:
    """Return the characters of the deltas of an answer."""
    count = 0
    for event in batch:
        if isinstance(event, TextDelta | ReasoningDelta):
            count += len(event.text)
        elif isinstance(event, CallDelta):
            count += len(event.name) + len(event.arguments)
    return count


def find_period(budget: Budget, now: float) -> BudgetPeriod:
    """Return the period of a budget that a time is in. Weeks begin on Monday."""
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


def _describe(budget: Budget, period: BudgetPeriod, shown_as: str) -> str:
    reset = datetime.fromtimestamp(period.end, UTC)
    return (
        f"{shown_as} has spent its budget of {budget.amount:g} for this {budget.period}. "
        f"It is reset at {reset:%Y-%m-%d %H:%M} UTC."
    )
