"""Counts of usage by time, and what callers have spent; and the interface of their storage.

Usage is counted in rows, one for each period, caller, model, server, tool and status. A period begins at a multiple of
its length: there are rows of minutes, hours and days (UTC). A row of runs has neither server nor tool; a row of calls
has a tool. Durations are counted in buckets with fixed bounds, so that rows can be added up in any order, by any number
of gateways.

Spending is the cost of a caller's model turns by the hour, which budgets are checked against. Each gateway process
stores the sums of what it has counted itself, so that storing one again changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal, Protocol

from holodeck.lib.record import record

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
    *("reasoning_tokens", "tool_calls", "priced"),
)
"""The counts of a row, beside its cost and its durations. `priced`: requests whose cost is known."""
# Groups that one query may have: more is no table that a person reads.
MAX_GROUPS = 10_000

Group = Literal["owner", "model", "server", "tool", "status"]


@record
class UsageKey:
    """What a row counts."""

    owner: str
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
    """The index of the bucket of a duration."""
    return bisect_left(BOUNDS, seconds)


def find_percentile(counts: Sequence[int], share: float, bounds: Sequence[float] = BOUNDS) -> float | None:
    """The duration that so large a share of them does not exceed, between the bounds of its bucket. None: no counts.

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
    """What one gateway has counted since its last batch. Storing the same batch again changes nothing."""

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
    """Which rows are added up, and by what they are told apart beside their period."""

    period: int
    start: int
    end: int
    owner: str | None
    """None: all callers."""
    groups: tuple[Group, ...] = ()

    @property
    def is_of_tools(self) -> bool:
        """Whether rows of calls are read instead of rows of runs."""
        return "server" in self.groups or "tool" in self.groups


UsageRow = tuple[int, tuple[str, ...], UsageCounts]
"""The start of the period, the values of the groups, and the counts."""


class UsageStore(Protocol):
    """Stores usage and spending. Every failure is a `StorageError`."""

    async def add(self, batch: UsageBatch) -> None:
        """Add a batch, in one transaction. Idempotent."""
        ...

    async def read(self, query: UsageQuery) -> list[UsageRow]:
        """The rows in the order of their periods, at most one more than `MAX_GROUPS`."""
        ...

    async def store_spending(self, source: str, spending: Spending) -> None:
        """Store what one gateway process has counted, in place of what it has stored for these callers and hours."""
        ...

    async def read_spending(self, owner: str, start: int, *, source: str, before: int) -> float:
        """What a caller has spent since the start of an hour; of what `source` has counted, only before `before`."""
        ...

    async def delete_older_than(self, before: Mapping[int, float]) -> None:
        """Delete the rows of each period that begin before a time; spending as the rows of days."""
        ...
