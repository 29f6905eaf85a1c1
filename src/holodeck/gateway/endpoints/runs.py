"""`/v1/runs`: the stored responses as runs, and the trace of each.

A caller sees its own runs. An operator's key that may use everything sees those of all callers. Runs of this gateway
that are not stored yet are listed among the stored ones; those of other gateways are, if they are background responses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from holodeck.gateway.auth.callers import Caller, resolve_caller_id
from holodeck.gateway.configuration import ConfigurationHolder
from holodeck.gateway.http.errors import APIError, not_found_error
from holodeck.gateway.http.query import build_page, item_not_listed_error, limit_of, time_of
from holodeck.gateway.http.replies import Reply, json_reply
from holodeck.gateway.http.request import Request
from holodeck.gateway.runs.active_runs import ActiveRuns
from holodeck.gateway.runs.live_run import LiveResponse
from holodeck.gateway.runs.run_rows import build_run_resource, build_run_row
from holodeck.gateway.runs.trace_resource import build_trace_resource
from holodeck.models.callers import CallerKey
from holodeck.models.items_json import encode_item
from holodeck.storage.base import UNFINISHED_STATUSES, ResponseStore
from holodeck.storage.runs import Position, RunQuery, StoredRun


class RunEndpoints:
    """Routes of runs."""

    def __init__(self, store: ResponseStore, runs: ActiveRuns, configurations: ConfigurationHolder) -> None:
        self._store = store
        self._runs = runs
        self._configurations = configurations

    async def list_runs(self, request: Request) -> Reply:
        """A page of runs, newest first."""
        keys = self._configurations.current.gateway.keys
        query = await self._read_query(request.query, find_owner(request.caller, request.query, keys))
        # Before the stored ones are read: a run that ends meanwhile is then found twice, and not missed.
        live = {run.id: run for run in self._runs.list_stored() if query.owner in (None, run.caller_id)}
        page = await self._store.runs.list_runs(query)
        stored = [_newer(run, live.pop(run.id, None)) for run in page.runs]
        more = _find_live(live.values(), query, page.goes_on_after)
        listed = sorted((*stored, *more), key=lambda run: run.position, reverse=True)
        shown, goes_on_after = listed[: query.limit], page.goes_on_after
        if len(listed) > query.limit:
            goes_on_after = shown[-1].position
        reply = build_page([build_run_resource(run) for run in shown], has_more=goes_on_after is not None)
        if goes_on_after is not None:
            reply["last_id"] = goes_on_after[1]
        return json_reply(reply, owner=query.owner)

    async def get(self, request: Request) -> Reply:
        run = await self._require_run(request)
        return json_reply(build_run_resource(run), owner=run.owner)

    async def get_trace(self, request: Request) -> Reply:
        """The steps of a run with their times, as far as it has come."""
        run = await self._require_run(request)
        live = self._runs.find_stored(run.id)
        if live is not None:
            given = live.writer.request
            items = [encode_item(item) for item in (*given.input.items, *live.trace.items)]
            trace = {**orjson.loads(live.trace.encode()), "item_offset": len(given.input.items)}
            return self._reply_trace(request, run, trace, items, given.instructions)
        record = await self._store.get(run.id, run.owner)
        if record is None or record.trace is None:
            raise not_found_error("Run", run.id)
        instructions = orjson.loads(record.resource)["instructions"]
        return self._reply_trace(request, run, orjson.loads(record.trace), orjson.loads(record.items), instructions)

    def _reply_trace(
        self,
        request: Request,
        run: StoredRun,
        trace: Mapping[str, Any],
        items: Sequence[Mapping[str, Any]],
        instructions: str | None,
    ) -> Reply:
        resource = build_trace_resource(
            build_run_resource(run),
            trace,
            items,
            instructions,
            backend=self._configurations.current.backends.get(run.model),
            is_operator=request.caller.can_read_all_callers,
        )
        return json_reply(resource, owner=run.owner)

    async def _require_run(self, request: Request) -> StoredRun:
        run_id, caller = request.path_params["id"], request.caller
        owner = None if caller.can_read_all_callers else caller.id
        live = self._runs.find_stored(run_id)
        if live is not None and owner in (None, live.caller_id):
            return _row_of(live)
        run = await self._store.runs.get_run(run_id, owner)
        if run is None:
            raise not_found_error("Run", run_id)
        return run

    async def _read_query(self, query: Mapping[str, str], owner: str | None) -> RunQuery:
        return RunQuery(
            owner=owner,
            limit=limit_of(query),
            after=await self._find_position(query.get("after"), owner),
            **{name: query.get(name) for name in ("status", "model", "tool", "server", "text")},
            created_after=time_of(query, "created_after"),
            created_before=time_of(query, "created_before"),
        )

    async def _find_position(self, after: str | None, owner: str | None) -> Position | None:
        if after is None:
            return None
        live = self._runs.find_stored(after)
        if live is not None and owner in (None, live.caller_id):
            return _position_of(live)
        run = await self._store.runs.get_run(after, owner)
        if run is None:
            raise item_not_listed_error(after)
        return run.position


def find_owner(caller: Caller, query: Mapping[str, str], keys: Sequence[CallerKey]) -> str | None:
    """The caller whose runs or usage a request is about; None: all callers. Raises `APIError` 403.

    An operator's key may name one as `caller`, by its id or by the name of its key among `keys`.
    """
    named = resolve_caller_id(query["caller"], keys) if "caller" in query else None
    if caller.can_read_all_callers:
        return named
    if named is not None and named != caller.id:
        message = "Only an operator's key that may use everything can name another 'caller'."
        raise APIError(403, message, kind="invalid_request", code="forbidden", param="caller")
    return caller.id


def _position_of(live: LiveResponse) -> Position:
    return (live.trace.created_at, live.id)


def _row_of(live: LiveResponse) -> StoredRun:
    return build_run_row(live, live.writer.build_resource())


def _newer(stored: StoredRun, live: LiveResponse | None) -> StoredRun:
    """The row that has more: that of a run that goes on, unless it has been stored as finished meanwhile."""
    return _row_of(live) if live is not None and stored.status in UNFINISHED_STATUSES else stored


def _find_live(runs: Iterable[LiveResponse], query: RunQuery, end: Position | None) -> list[StoredRun]:
    """The newest runs that are not stored and belong to a page, which ends at `end`.

    Thousands may be running, of which no more rows are built than a page needs.
    """
    found: list[StoredRun] = []
    for live in sorted(runs, key=_position_of, reverse=True):
        position = _position_of(live)
        if end is not None and position <= end:
            break
        if query.after is None or position < query.after:
            row = _row_of(live)
            if _matches(row, query):
                found.append(row)
            # One more says that there is another page.
            if len(found) > query.limit:
                break
    return found


def _matches(run: StoredRun, query: RunQuery) -> bool:
    """Whether a run that is not stored has what a query asks for."""
    checks: list[bool] = [
        query.status in (None, run.status),
        query.model in (None, run.model),
        query.tool is None or query.tool in run.tools,
        query.server is None or query.server in run.servers,
        query.created_after is None or run.created_at >= query.created_after,
        query.created_before is None or run.created_at < query.created_before,
    ]
    text = None if query.text is None else query.text.lower()
    return all(checks) and (text is None or text in run.question.lower() or text in run.answer.lower())
