"""`/v1/usage`: requests, tokens, cost, tool calls and durations by time, as JSON or CSV."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from holodeck.gateway.api import examples
from holodeck.gateway.api.route import route
from holodeck.gateway.configuration import ConfigurationHolder
from holodeck.gateway.endpoints.runs import CALLER, FindKey, find_owner, owned_route
from holodeck.gateway.http.errors import APIError
from holodeck.gateway.http.parameters import ChoiceParameter, TimeParameter, WordsParameter
from holodeck.gateway.http.replies import Reply, json_reply
from holodeck.gateway.http.request import Request
from holodeck.gateway.usage.budgets import Budgets
from holodeck.gateway.usage.meter import MINUTES_DAYS, UsageMeter
from holodeck.lib.off_loop import run_off_loop
from holodeck.models.callers import GROUP_PREFIX
from holodeck.storage.usage import (
    DAY,
    HOUR,
    MAX_GROUPS,
    MINUTE,
    Group,
    UsageCounts,
    UsageQuery,
    UsageRow,
    UsageStore,
    find_percentile,
)

CSV = "text/csv; charset=utf-8"
BUCKETS = {"minute": MINUTE, "hour": HOUR, "day": DAY}
# Buckets of a report that names no start: an hour of minutes, two days of hours, a month of days.
_DEFAULT_COUNTS = {"minute": 60, "hour": 48, "day": 31}
GROUPS: Mapping[str, Group] = {
    "caller": "caller_id",
    "model": "model",
    "server": "server",
    "tool": "tool",
    "status": "status",
}
"""The words of `group_by`, with the columns that they mean."""
_START_TIME = TimeParameter(
    name="start_time", about="Seconds since 1970. Left out: 60 minutes, 48 hours or 31 days ago."
)
_END_TIME = TimeParameter(name="end_time", about="Seconds since 1970. Left out: now.")
_BUCKET = ChoiceParameter(name="bucket", about="Left out: `hour`.", values=tuple(BUCKETS), default="hour")
_GROUP_BY = WordsParameter(name="group_by", values=tuple(GROUPS), example="caller,model")
_FORMAT = ChoiceParameter(name="format", values=("json", "csv"), default="json")
_COUNTS = (
    *("requests", "errors", "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens"),
    *("reasoning_tokens", "estimated_tokens", "tool_calls"),
)
_DIGITS = 10
# A spreadsheet takes a text that begins with one of these for a formula.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


_NO_BUDGET = dict.fromkeys(("amount", "period", "spent", "left", "resets_at"))


class UsageEndpoints:
    """The route of usage. A caller sees its own, an operator or a viewer without a scope that of all."""

    def __init__(
        self,
        store: UsageStore,
        meter: UsageMeter,
        budgets: Budgets,
        configurations: ConfigurationHolder,
        find_key: FindKey,
    ) -> None:
        self._store = store
        self._meter = meter
        self._find_key = find_key
        self._budgets = budgets
        self._configurations = configurations

    @owned_route(
        "/v1/usage",
        id="getUsage",
        summary="Get the usage",
        description=(
            "Requests, tokens, cost and durations of the caller by minute, hour or day (UTC), whether responses were "
            "stored or not. A key with the role operator or viewer, without a scope, gets those of all callers.\n\n"
            "With `server` or `tool` in `group_by` the rows count tool calls, and their durations: they have no "
            "requests, no tokens and no cost. `seconds_p50` and the like are estimated from buckets, and at most 300. "
            f"Minutes are stored for {MINUTES_DAYS} days. `total` adds up the time of the report, and `previous` as "
            "long a time before it. With `Accept: text/csv`, or `format=csv`, the rows are CSV."
        ),
        query=(_START_TIME, _END_TIME, _BUCKET, _GROUP_BY, CALLER, _FORMAT),
        reply="UsageReport",
        other_media_types=("text/csv",),
        example={
            "object": "usage",
            "start_time": 1780999200,
            "end_time": 1781002800,
            "currency": None,
            "total": examples.USAGE,
            "previous": examples.NO_USAGE,
            "data": [examples.USAGE],
        },
        errors=("query", "storage"),
    )
    async def get(self, request: Request) -> Reply:
        """Read the usage of a time, by bucket and group."""
        query, names = _read_query(request, self._find_key)
        is_csv = _wants_csv(request)
        # What was counted a moment ago is in the report, too.
        await self._meter.flush()
        rows = await self._store.read(query)
        if len(rows) > MAX_GROUPS:
            message = f"This report has more than {MAX_GROUPS} rows. Ask for less time, larger buckets or fewer groups."
            raise APIError(400, message, kind="invalid_request", code="invalid_value", param="group_by")
        if is_csv:
            return await run_off_loop(lambda: _write_csv(rows, query, names))
        # The groups say only whether calls of tools are counted, or requests.
        groups: tuple[Group, ...] = ("server",) if query.is_of_tools else ()
        before = replace(query, start=max(0, 2 * query.start - query.end), end=query.start, groups=groups)
        earlier = await self._store.read(before)
        currency = self._configurations.current.served.find_currency()
        return await run_off_loop(
            lambda: _build_report(rows, query, names, previous=_add_up(earlier, before), currency=currency)
        )

    @route(
        "GET",
        "/v1/budget",
        id="getBudget",
        tag="Runs and usage",
        summary="Get the budget",
        description=(
            "The budget of the caller, what it has spent and has left of it, and when it is reset. All are null "
            "for a caller without a budget. `group` has the same of its group."
        ),
        reply="Budget",
        example={"object": "budget", **_NO_BUDGET, "group": None},
        errors=("storage",),
        is_counted=False,
    )
    async def get_budget(self, request: Request) -> Reply:
        """Return what the caller has left."""
        caller, group = request.caller, None
        if caller.group is not None:
            group = {"name": caller.group, **await self._read_budget(f"{GROUP_PREFIX}{caller.group}")}
        return json_reply({"object": "budget", **await self._read_budget(caller.id), "group": group})

    async def _read_budget(self, account_id: str) -> dict[str, Any]:
        state = await self._budgets.read_state(account_id)
        if state is None:
            return _NO_BUDGET
        return {"amount": state.budget.amount, "period": state.budget.period, **state.to_resource()}


def _build_report(
    rows: list[UsageRow], query: UsageQuery, names: tuple[str, ...], *, previous: dict[str, Any], currency: str | None
) -> Reply:
    return json_reply(
        {
            "object": "usage",
            "start_time": query.start,
            "end_time": query.end,
            "currency": currency,
            "total": _add_up(rows, query),
            "previous": previous,
            "data": [_build_row(row, query.period, names) for row in rows],
        },
        owner=query.caller_id,
    )


def _add_up(rows: list[UsageRow], query: UsageQuery) -> dict[str, Any]:
    """Return one row for the whole time of a query."""
    total = UsageCounts()
    for _, _, counts in rows:
        total.add(counts)
    return _build_row((query.start, (), total), query.end - query.start, ())


def _read_query(request: Request, find_key: FindKey) -> tuple[UsageQuery, tuple[str, ...]]:
    """Return the query, and the words of its groups."""
    values = request.query
    bucket = _BUCKET.read(values)
    names = _GROUP_BY.read(values)
    length = BUCKETS[bucket]
    end = _END_TIME.read(values)
    last = int(time.time() if end is None else end)
    start = _START_TIME.read(values)
    # A bucket that is asked for in part is whole in the report.
    aligned_end = -(-last // length) * length if end is not None else (last // length + 1) * length
    first = aligned_end - _DEFAULT_COUNTS[bucket] * length if start is None else int(start) // length * length
    if first >= aligned_end:
        message = "Invalid 'end_time': it must be after 'start_time'."
        raise APIError(400, message, kind="invalid_request", code="invalid_value", param="end_time")
    query = UsageQuery(
        period=length,
        start=max(first, 0),
        end=aligned_end,
        caller_id=find_owner(request.caller, values, find_key, can_read_all=request.caller.can_read_all_figures),
        groups=tuple(GROUPS[name] for name in names),
    )
    return query, names


def _wants_csv(request: Request) -> bool:
    if _FORMAT.name in request.query:
        return _FORMAT.read(request.query) == "csv"
    return request.headers.get("accept", "").partition(";")[0].strip() == "text/csv"


def _build_row(row: UsageRow, seconds: int, names: tuple[str, ...]) -> dict[str, Any]:
    start, groups, counts = row
    return {
        "start_time": start,
        "end_time": start + seconds,
        **dict(zip(names, groups, strict=True)),
        **{name: counts.get(name) for name in _COUNTS},
        "cost": _cost_of(counts),
        "seconds_p50": find_percentile(counts.seconds, 0.5),
        "seconds_p95": find_percentile(counts.seconds, 0.95),
        "first_token_seconds_p50": find_percentile(counts.first_token, 0.5),
        "first_token_seconds_p95": find_percentile(counts.first_token, 0.95),
    }


def _cost_of(counts: UsageCounts) -> float | None:
    """Return the cost of the requests that have one. None: none has."""
    return round(counts.cost, _DIGITS) if counts.get("priced") else None


def _write_csv(rows: list[UsageRow], query: UsageQuery, names: tuple[str, ...]) -> Reply:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(_build_row((0, names, UsageCounts()), HOUR, names)), lineterminator="\r\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _escape_formula(value) for name, value in _build_row(row, query.period, names).items()})
    return Reply(body=text.getvalue().encode(), content_type=CSV, owner=query.caller_id)


def _escape_formula(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else value
