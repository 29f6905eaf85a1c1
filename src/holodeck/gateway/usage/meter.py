"""Counting of usage: every run, model turn and tool call of a gateway, stored in batches.

`UsageMeter` counts in memory, which costs a request a few additions. Once a second what has been counted is stored as
one batch, which shares a transaction with whatever is stored at that moment; `flush` does it at once. A process that
is killed loses what it has counted since its last batch: at most `FLUSH_INTERVAL` and the time of one write. While
storage fails, counts add up in memory, and the same batch is tried again; storage takes each batch once.

Spending is stored in the same rhythm, and for callers with a budget before the answer of a turn is used
(`store_spending`). What this process has spent from the hour `spent_since` on is in memory as well, so that a budget
reads from storage only the rest.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.lib.ids import new_id
from holodeck.models.events import RunResult
from holodeck.storage.usage import (
    DAY,
    HOUR,
    MINUTE,
    SUMS,
    UsageBatch,
    UsageCounts,
    UsageKey,
    UsageStore,
    bucket_of,
)

# Seconds between two batches: what a process that is killed can lose, and how late other gateways see spending.
FLUSH_INTERVAL = 1.0
# Days for which usage by the minute is stored.
MINUTES_DAYS = 2
# Stands for the names of a server that a request declares and of its tools: clients may invent any number of them.
REQUEST_SERVER = "(request)"
OTHER_TOOL = "other"

# Where each count is in `UsageCounts.sums`, which has the order of `SUMS`.
_REQUESTS, _ERRORS, _INPUT_TOKENS = map(SUMS.index, ("requests", "errors", "input_tokens"))
_CACHED_TOKENS, _CACHE_WRITE_TOKENS = map(SUMS.index, ("cached_tokens", "cache_write_tokens"))
_OUTPUT_TOKENS, _REASONING_TOKENS = map(SUMS.index, ("output_tokens", "reasoning_tokens"))
_ESTIMATED_TOKENS = SUMS.index("estimated_tokens")
_TOOL_CALLS, _PRICED = map(SUMS.index, ("tool_calls", "priced"))
# The minute, caller, model, status, server and tool: a plain tuple, which is found faster than a `UsageKey`.
_RowKey = tuple[int, str, str, str, str, str]


class UsageMeter:
    """Counts the usage of one gateway process."""

    def __init__(
        self, store: UsageStore, *, is_known_server: Callable[[str], bool], clock: Callable[[], float] = time.time
    ) -> None:
        """`is_known_server`: whether a name is that of an MCP server of the operator."""
        self._store = store
        self._is_known_server = is_known_server
        self._clock = clock
        self.source = new_id("gateway")
        """The name of this process in storage."""
        self._number = 0
        self._rows: dict[_RowKey, UsageCounts] = {}
        self._unstored: UsageBatch | None = None
        """The batch that is being stored, or could not be."""
        self._lock = asyncio.Lock()
        """Held while a batch is stored."""
        self._spent: dict[str, dict[int, float]] = {}
        """Cost by caller and hour, from `spent_since` on."""
        self.spent_count = 0
        """How many costs have been added. `_stored_count`: how many of them are stored."""
        self._stored_count = 0
        self._changed: set[tuple[str, int]] = set()
        """The callers and hours whose cost is not stored."""
        self._spending_lock = asyncio.Lock()
        """Held while spending is stored."""
        self.spent_since = _hour_of(clock())
        """The first hour whose cost is in memory. It moves on when all of earlier hours is stored."""

    def count_run(
        self,
        caller_id: str,
        model: str,
        result: RunResult,
        *,
        seconds: float,
        cost: float | None,
        first_token: float | None = None,
    ) -> None:
        """Count a run, however it ended. `cost`: None if the model has no price.

        `seconds` and `first_token` are counted from the creation of the run.
        """
        counts, usage = self._find_row(caller_id, model, result.status), result.usage
        sums = counts.sums
        sums[_REQUESTS] += 1
        sums[_ERRORS] += result.status == "failed"
        sums[_INPUT_TOKENS] += usage.input_tokens
        sums[_CACHED_TOKENS] += usage.cached_tokens
        sums[_CACHE_WRITE_TOKENS] += usage.cache_write_tokens
        sums[_OUTPUT_TOKENS] += usage.output_tokens
        sums[_REASONING_TOKENS] += usage.reasoning_tokens
        sums[_ESTIMATED_TOKENS] += usage.estimated_tokens
        sums[_TOOL_CALLS] += result.tool_calls
        sums[_PRICED] += cost is not None
        counts.cost += cost or 0.0
        counts.seconds[bucket_of(seconds)] += 1
        if first_token is not None:
            counts.first_token[bucket_of(first_token)] += 1

    def count_call(
        self, caller_id: str, model: str, server: str, tool: str, seconds: float, *, is_error: bool, is_direct: bool
    ) -> None:
        """Count a tool call. `is_direct`: an MCP client made it, so it is no part of a run."""
        if server and not self._is_known_server(server):
            server, tool = REQUEST_SERVER, OTHER_TOOL
        status = "error" if is_error else "ok"
        counts = self._find_row(caller_id, model, status, server, tool)
        counts.sums[_TOOL_CALLS] += 1
        counts.sums[_ERRORS] += is_error
        counts.seconds[bucket_of(seconds)] += 1
        if is_direct:
            # Calls of runs are counted with their run; this one has none.
            self._find_row(caller_id, model, status).sums[_TOOL_CALLS] += 1

    def spend(self, caller_id: str, cost: float) -> None:
        """Count the cost of a model turn, when the turn has ended."""
        if cost:
            now = int(self._clock())
            # Not before `spent_since`, if the clock was set back: what is stored of those hours is not added to.
            hour = max(now - now % HOUR, self.spent_since)
            hours = self._spent.setdefault(caller_id, {})
            hours[hour] = hours.get(hour, 0.0) + cost
            self._changed.add((caller_id, hour))
            self.spent_count += 1

    def sum_spent(self, caller_id: str, start: int) -> float:
        """Return what a caller has spent in this process since the start of an hour, but not before `spent_since`."""
        return sum(amount for hour, amount in self._spent.get(caller_id, {}).items() if hour >= start)

    async def flush(self) -> None:
        """Store everything that has been counted. Raises `StorageError`; the counts are then stored later."""
        async with self._lock:
            while self._unstored is not None or self._rows:
                if self._unstored is None:
                    self._unstored = self._take_batch()
                await asyncio.shield(self._store.add(self._unstored))
                self._unstored = None
        await self.store_spending()

    async def store_spending(self) -> None:
        """Store what has been spent up to now; calls at the same time share a write.

        Raises `StorageError`. The spending is then stored later, and counts nevertheless.
        """
        wanted = self.spent_count
        if self._stored_count >= wanted:
            return
        async with self._spending_lock:
            if self._stored_count >= wanted:
                return
            count, changed, self._changed = self.spent_count, self._changed, set()
            spending = {(caller_id, hour): self._spent[caller_id][hour] for caller_id, hour in changed}
            try:
                await asyncio.shield(self._store.store_spending(self.source, spending))
            except BaseException:
                self._changed |= changed
                raise
            self._stored_count = count
            self._forget_past_hours()

    async def forget_caller(self, caller_id: str) -> None:
        """Store what has been counted of a caller, and forget what it has spent. Raises `StorageError`."""
        await self.flush()
        async with self._spending_lock:
            self._spent.pop(caller_id, None)
            self._changed = {each for each in self._changed if each[0] != caller_id}

    async def run(self) -> None:
        """Store a batch every second. Runs until it is cancelled."""
        is_failing = False
        while True:
            await asyncio.sleep(FLUSH_INTERVAL)
            try:
                await self.flush()
            except StorageError as error:
                if not is_failing:
                    log.warning("gateway.usage_not_stored", error=error)
                is_failing = True
            else:
                is_failing = False

    async def close(self) -> None:
        """Store the rest. If that fails it is logged, and lost."""
        try:
            await self.flush()
        except StorageError as error:
            log.warning("gateway.usage_lost", error=error)

    def _take_batch(self) -> UsageBatch:
        self._number += 1
        rows = {
            (minute, UsageKey(caller_id=caller_id, model=model, status=status, server=server, tool=tool)): counts
            for (minute, caller_id, model, status, server, tool), counts in self._rows.items()
        }
        batch = UsageBatch(source=self.source, number=self._number, rows=rows)
        self._rows = {}
        return batch

    def _forget_past_hours(self) -> None:
        """Drop the cost of hours that are over and stored: it is read from storage, as that of other processes."""
        since = min((hour for _, hour in self._changed), default=_hour_of(self._clock()))
        if since <= self.spent_since:
            return
        recent = {
            caller_id: {hour: amount for hour, amount in hours.items() if hour >= since}
            for caller_id, hours in self._spent.items()
        }
        self._spent = {caller_id: hours for caller_id, hours in recent.items() if hours}
        self.spent_since = since

    def _find_row(self, caller_id: str, model: str, status: str, server: str = "", tool: str = "") -> UsageCounts:
        now = int(self._clock())
        key = (now - now % MINUTE, caller_id, model, status, server, tool)
        counts = self._rows.get(key)
        if counts is None:
            counts = self._rows[key] = UsageCounts()
        return counts


def _hour_of(now: float) -> int:
    """Return the start of the hour of a time."""
    return int(now) - int(now) % HOUR


def usage_limits(now: float, days: float) -> dict[int, float]:
    """Return the times before which rows of each period are deleted. Minutes are for what happens now."""
    oldest = now - days * DAY
    return {MINUTE: max(oldest, now - MINUTES_DAYS * DAY), HOUR: oldest, DAY: oldest}
