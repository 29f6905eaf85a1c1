"""SQL statements about usage and spending that both databases share; `in_progress.for_sqlite` converts them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holodeck.storage.usage import (
    BOUNDS,
    DAY,
    MAX_GROUPS,
    PERIODS,
    SUMS,
    Spending,
    UsageBatch,
    UsageCounts,
    UsageKey,
    UsageQuery,
    UsageRow,
)

_KEY = ("period", "start", "owner", "model", "server", "tool", "status")
_SECONDS = tuple(f"seconds_{index}" for index in range(len(BOUNDS) + 1))
_FIRST_TOKEN = tuple(f"first_token_{index}" for index in range(len(BOUNDS) + 1))
_COUNTS = (*SUMS, "cost", *_SECONDS, *_FIRST_TOKEN)
_COLUMNS = (*_KEY, *_COUNTS)

ADD_ROW = f"""
INSERT INTO usage_counts ({", ".join(_COLUMNS)}) VALUES ({", ".join(f"${n}" for n in range(1, len(_COLUMNS) + 1))})
ON CONFLICT ({", ".join(_KEY)}) DO UPDATE SET
    {", ".join(f"{name} = usage_counts.{name} + excluded.{name}" for name in _COUNTS)}"""  # noqa: S608 - our own names
STORE_SPENDING = """
INSERT INTO spending (owner, start, source, amount) VALUES ($1, $2, $3, $4)
ON CONFLICT (owner, start, source) DO UPDATE SET amount = excluded.amount
WHERE spending.amount < excluded.amount"""
"""Sums only grow: one that comes late changes nothing."""
CLAIM_BATCH = """
INSERT INTO usage_batches (source, number, stored_at) VALUES ($1, $2, $3)
ON CONFLICT (source) DO UPDATE SET number = excluded.number, stored_at = excluded.stored_at
WHERE usage_batches.number < excluded.number"""
"""Changes no row if the batch, or a later one, is stored already."""
READ_SPENDING = """
SELECT COALESCE(SUM(amount), 0) FROM spending WHERE owner = $1 AND start >= $2 AND (source <> $3 OR start < $4)"""
DELETE_USAGE = "DELETE FROM usage_counts WHERE period = $1 AND start < $2"
DELETE_SPENDING = "DELETE FROM spending WHERE start < $1"
DELETE_BATCHES = "DELETE FROM usage_batches WHERE stored_at < $1"


def rows_of(batch: UsageBatch) -> list[tuple[object, ...]]:
    """The values of `ADD_ROW`, for all periods, in the order of their keys.

    Two gateways that add at the same time lock rows in the same order, so that none waits for the other in a circle.
    """
    added: dict[tuple[int, int, UsageKey], UsageCounts] = {}
    for (minute, key), counts in batch.rows.items():
        for period in PERIODS:
            added.setdefault((period, minute - minute % period, key), UsageCounts()).add(counts)
    return sorted(_values_of(period, start, key, counts) for (period, start, key), counts in added.items())


def spending_rows_of(source: str, spending: Spending) -> list[tuple[str, int, str, float]]:
    """The values of `STORE_SPENDING`, in the order of their keys."""
    return sorted((owner, start, source, amount) for (owner, start), amount in spending.items())


def read_query(query: UsageQuery) -> tuple[str, tuple[object, ...]]:
    """Query for the rows of a report."""
    groups = ", ".join(("start", *query.groups))
    # PostgreSQL's sums of BIGINT are decimal numbers, which Python reads slowly.
    sums = ", ".join(f"CAST(SUM({name}) AS BIGINT)" if name != "cost" else "SUM(cost)" for name in _COUNTS)
    kind = "tool <> ''" if query.is_of_tools else "tool = ''"
    owner = "" if query.owner is None else " AND owner = $4"
    sql = (
        f"SELECT {groups}, {sums} FROM usage_counts "  # noqa: S608 - our own names
        f"WHERE period = $1 AND start >= $2 AND start < $3{owner} AND {kind} "
        f"GROUP BY {groups} ORDER BY {groups} LIMIT {MAX_GROUPS + 1}"
    )
    values = (query.period, query.start, query.end)
    return sql, values if query.owner is None else (*values, query.owner)


def usage_row_of(row: Sequence[Any], query: UsageQuery) -> UsageRow:
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


def list_deletions(before: Mapping[int, float]) -> Iterator[tuple[str, tuple[object, ...]]]:
    """The statements of `UsageStore.delete_older_than`."""
    for period, time in before.items():
        yield DELETE_USAGE, (period, int(time))
    yield DELETE_SPENDING, (int(before[DAY]),)
    yield DELETE_BATCHES, (before[DAY],)


def _values_of(period: int, start: int, key: UsageKey, counts: UsageCounts) -> tuple[object, ...]:
    names = (key.owner, key.model, key.server, key.tool, key.status)
    return (period, start, *names, *counts.sums, counts.cost, *counts.seconds, *counts.first_token)
