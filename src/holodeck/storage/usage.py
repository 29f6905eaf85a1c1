"""Counts of usage by time, and what callers have spent.

Usage is counted in rows, one for each period, caller, model, server, tool and status. A period begins at a multiple of
its length: there are rows of minutes, hours and days (UTC). A row of runs has neither server nor tool; a row of calls
has a tool. Durations are counted in buckets with fixed bounds, so that rows can be added up in any order, by any number
of gateways.

Spending is the cost of a caller's model turns by the hour, which budgets are checked against. Each gateway process
stores the sums of what it has counted itself, so that storing one again changes nothing.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

from holodeck.lib.record import record
from holodeck.storage import jobs
from holodeck.storage.jobs import Connection, Row, Storing

MINUTE, HOUR, DAY = 60, 3_600, 86_400
PERIODS = (MINUTE, HOUR, DAY)
"""The lengths of periods, in seconds."""
# Upper bounds of the buckets of durations, in seconds; the last bucket has no bound.
BOUNDS = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5),
    *(2.0, 3.0, 5.0, 8.0, 13.0, 20.0, 30.0, 60.0, 120.0, 300.0),
)
SUMS = (
    *("requests", "errors", "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens"),
    *("reasoning_tokens", "estimated_tokens", "tool_calls", "priced"),
)
"""The counts of a row, beside its cost and its durations. `priced`: requests whose cost is known."""
# Groups that one query may have: more is no table that a person reads.
MAX_GROUPS = 10_000

Group = Literal["caller_id", "model", "server", "tool", "status"]


@record
class UsageKey:
    """The numbers that a row counts."""

    caller_id: str
    model: str
    status: str
    server: str = ""
    tool: str = ""
    """Empty for a row of runs."""


def _no_durations() -> list[int]:
    return [0] * (len(BOUNDS) + 1)


@dataclass(slots=True, kw_only=True)
class UsageCounts:
    """The counts of one row or of several, which can be added up."""

    sums: list[int] = field(default_factory=lambda: [0] * len(SUMS))
    """In the order of `SUMS`."""
    cost: float = 0.0
    seconds: list[int] = field(default_factory=_no_durations)
    """How many took how long, by bucket."""
    first_token: list[int] = field(default_factory=_no_durations)
    """How many had their first token after how long, by bucket."""

    def add(self, other: UsageCounts) -> None:
        self.sums = [mine + more for mine, more in zip(self.sums, other.sums, strict=True)]
        self.cost += other.cost
        self.seconds = [mine + more for mine, more in zip(self.seconds, other.seconds, strict=True)]
        self.first_token = [mine + more for mine, more in zip(self.first_token, other.first_token, strict=True)]

    def get(self, name: str) -> int:
        return self.sums[SUMS.index(name)]


def bucket_of(seconds: float) -> int:
    """Return the index of the bucket of a duration."""
    return bisect_left(BOUNDS, seconds)


def find_percentile(counts: Sequence[int], share: float, bounds: Sequence[float] = BOUNDS) -> float | None:
    """Return the duration that so large a share of them does not exceed, between the bounds of its bucket. None: no
    counts.

    Durations beyond the last bound count as that bound. `bounds`: the upper bounds of the buckets.
    """
    totals = list(accumulate(counts))
    wanted = share * totals[-1]
    if not wanted:
        return None
    index = bisect_left(totals, wanted)
    low = bounds[index - 1] if index else 0.0
    high = bounds[min(index, len(bounds) - 1)]
    before = totals[index - 1] if index else 0
    return round(low + (high - low) * (wanted - before) / counts[index], 6)


@record
class UsageBatch:
    """The counts of one gateway since its last batch. Storing the same batch again changes nothing."""

    source: str
    """The gateway process."""
    number: int
    """Its batches are numbered from 1."""
    rows: Mapping[tuple[int, UsageKey], UsageCounts]
    """By the start of the minute."""


Spending = Mapping[tuple[str, int], float]
"""Cost by caller and the start of the hour."""


@record
class UsageQuery:
    """The rows that are added up, and what tells them apart beside their period."""

    period: int
    start: int
    end: int
    caller_id: str | None
    """None: all callers."""
    groups: tuple[Group, ...] = ()

    @property
    def is_of_tools(self) -> bool:
        """Whether rows of calls are read instead of rows of runs."""
        return "server" in self.groups or "tool" in self.groups


UsageRow = tuple[int, tuple[str, ...], UsageCounts]
"""The start of the period, the values of the groups, and the counts."""


_KEY = ("period", "start", "caller_id", "model", "server", "tool", "status")
_SECONDS = tuple(f"seconds_{index}" for index in range(len(BOUNDS) + 1))
_FIRST_TOKEN = tuple(f"first_token_{index}" for index in range(len(BOUNDS) + 1))
_COUNTS = (*SUMS, "cost", *_SECONDS, *_FIRST_TOKEN)
_COLUMNS = (*_KEY, *_COUNTS)

ADD_USAGE = f"""
INSERT INTO usage_counts ({", ".join(_COLUMNS)}) VALUES ({", ".join(f"${n}" for n in range(1, len(_COLUMNS) + 1))})
ON CONFLICT ({", ".join(_KEY)}) DO UPDATE SET
    {", ".join(f"{name} = usage_counts.{name} + excluded.{name}" for name in _COUNTS)}"""  # noqa: S608 - our own names
_STORE_SPENDING = """
INSERT INTO spending (caller_id, start, source, amount) VALUES ($1, $2, $3, $4)
ON CONFLICT (caller_id, start, source) DO UPDATE SET amount = excluded.amount
WHERE spending.amount < excluded.amount"""
"""Sums only grow: one that comes late changes nothing."""
_CLAIM_BATCH = """
INSERT INTO usage_batches (source, number, stored_at) VALUES ($1, $2, $3)
ON CONFLICT (source) DO UPDATE SET number = excluded.number, stored_at = excluded.stored_at
WHERE usage_batches.number < excluded.number"""
"""Changes no row if the batch, or a later one, is stored already."""
_READ_SPENDING = """
SELECT COALESCE(SUM(amount), 0) FROM spending WHERE caller_id = $1 AND start >= $2 AND (source <> $3 OR start < $4)"""
ERASED_CALLER = "erased"
"""The caller of the usage of those that were erased."""
_UNNAME = f"""
INSERT INTO usage_counts ({", ".join(_COLUMNS)})
SELECT {", ".join(f"'{ERASED_CALLER}'" if name == "caller_id" else name for name in _COLUMNS)} FROM usage_counts
WHERE caller_id = $1 ON CONFLICT ({", ".join(_KEY)}) DO UPDATE SET
    {", ".join(f"{name} = usage_counts.{name} + excluded.{name}" for name in _COUNTS)}"""  # noqa: S608
_ERASE = ("DELETE FROM usage_counts WHERE caller_id = $1", "DELETE FROM spending WHERE caller_id = $1")
_DELETE_USAGE = "DELETE FROM usage_counts WHERE period = $1 AND start < $2"
_DELETE_SPENDING = "DELETE FROM spending WHERE start < $1"
_DELETE_BATCHES = "DELETE FROM usage_batches WHERE stored_at < $1"


class UsageStore(Storing):
    """Stores usage and spending."""

    @jobs.transaction()
    async def add(self, db: Connection, batch: UsageBatch) -> None:
        """Add a batch, in one transaction. Idempotent."""
        if await db.write_counted(_CLAIM_BATCH, batch.source, batch.number, time.time()):
            await db.write_many(ADD_USAGE, _rows_of(batch))

    @jobs.read()
    async def read(self, db: Connection, query: UsageQuery) -> list[UsageRow]:
        """Return the rows in the order of their periods, at most one more than `MAX_GROUPS`."""
        sql, values = _read_query(query)
        return [_usage_row_of(row, query) for row in await db.fetch_rows(sql, *values)]

    # No transaction: each row is right by itself.
    @jobs.statement()
    async def store_spending(self, db: Connection, source: str, spending: Spending) -> None:
        """Store what one gateway process has counted, in place of what it has stored for these callers and hours."""
        await db.write_many(_STORE_SPENDING, _spending_rows_of(source, spending))

    @jobs.read()
    async def read_spending(self, db: Connection, caller_id: str, start: int, *, source: str, before: int) -> float:
        """Return what a caller has spent since an hour began; of what `source` has counted, only before `before`."""
        row = await db.fetch_row(_READ_SPENDING, caller_id, start, source, before)
        return 0.0 if row is None else float(row[0])

    async def erase_caller(self, caller_id: str) -> None:
        """Count the usage of a caller without its name, and delete what it has spent."""

        async def erase(db: Connection) -> None:
            await db.write(_UNNAME, caller_id)
            for sql in _ERASE:
                await db.write(sql, caller_id)

        # One at a time: two gateways would add the same rows, or wait for each other's.
        await self._driver.write(erase, exclusive_to=ERASED_CALLER)

    async def delete_older_than(self, before: Mapping[int, float]) -> None:
        """Delete the rows of each period that begin before a time; spending as the rows of days."""
        for period, start in before.items():
            await self._delete(_DELETE_USAGE, period, int(start))
        await self._delete(_DELETE_SPENDING, int(before[DAY]))
        await self._delete(_DELETE_BATCHES, before[DAY])

    @jobs.statement()
    async def _delete(self, db: Connection, sql: str, *values: object) -> None:
        await db.write(sql, *values)


def _rows_of(batch: UsageBatch) -> list[tuple[object, ...]]:
    """Return the values of `ADD_USAGE`, for all periods, in the order of their keys.

    Two gateways that add at the same time lock rows in the same order, so that none waits for the other in a circle.
    """
    added: dict[tuple[int, int, UsageKey], UsageCounts] = {}
    for (minute, key), counts in batch.rows.items():
        for period in PERIODS:
            added.setdefault((period, minute - minute % period, key), UsageCounts()).add(counts)
    return sorted(_values_of(period, start, key, counts) for (period, start, key), counts in added.items())


def _spending_rows_of(source: str, spending: Spending) -> list[tuple[str, int, str, float]]:
    """Return the values of `_STORE_SPENDING`, in the order of their keys."""
    return sorted((caller_id, start, source, amount) for (caller_id, start), amount in spending.items())


def _read_query(query: UsageQuery) -> tuple[str, tuple[object, ...]]:
    """Return a query for the rows of a report."""
    groups = ", ".join(("start", *query.groups))
    # PostgreSQL's sums of BIGINT are decimal numbers, which Python reads slowly.
    sums = ", ".join(f"CAST(SUM({name}) AS BIGINT)" if name != "cost" else "SUM(cost)" for name in _COUNTS)
    kind = "tool <> ''" if query.is_of_tools else "tool = ''"
    caller_id = "" if query.caller_id is None else " AND caller_id = $4"
    sql = (
        f"SELECT {groups}, {sums} FROM usage_counts "  # noqa: S608 - our own names
        f"WHERE period = $1 AND start >= $2 AND start < $3{caller_id} AND {kind} "
        f"GROUP BY {groups} ORDER BY {groups} LIMIT {MAX_GROUPS + 1}"
    )
    values = (query.period, query.start, query.end)
    return sql, values if query.caller_id is None else (*values, query.caller_id)


def _usage_row_of(row: Row, query: UsageQuery) -> UsageRow:
    first = 1 + len(query.groups)
    end = first + len(SUMS)
    durations = row[end + 1 :]
    return (
        row[0],
        tuple(row[1:first]),
        UsageCounts(
            sums=list(row[first:end]),
            cost=float(row[end]),
            seconds=list(durations[: len(_SECONDS)]),
            first_token=list(durations[len(_SECONDS) :]),
        ),
    )


def _values_of(period: int, start: int, key: UsageKey, counts: UsageCounts) -> tuple[object, ...]:
    names = (key.caller_id, key.model, key.server, key.tool, key.status)
    return (period, start, *names, *counts.sums, counts.cost, *counts.seconds, *counts.first_token)
