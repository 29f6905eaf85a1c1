"""`/v1/runs`: the stored responses as runs, and the trace of each.

A caller sees its own runs. An operator's key that may use everything sees those of all callers. Runs of this gateway
that are not stored yet are listed among the stored ones; those of other gateways are, if they are background responses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import orjson

from holodeck.gateway.api import examples
from holodeck.gateway.api.route import route
from holodeck.gateway.auth.callers import Caller, resolve_caller_id
from holodeck.gateway.configuration import ConfigurationHolder
from holodeck.gateway.http.error_codes import STORED_ERRORS
from holodeck.gateway.http.errors import APIError, not_found_error
from holodeck.gateway.http.parameters import (
    AFTER,
    TextParameter,
    TimeParameter,
    build_limit,
    build_page,
    item_not_listed_error,
)
from holodeck.gateway.http.replies import Reply, json_reply
from holodeck.gateway.http.request import Request
from holodeck.gateway.runs.active_runs import ActiveRuns
from holodeck.gateway.runs.background import Background
from holodeck.gateway.runs.live_run import LiveResponse
from holodeck.gateway.runs.run_rows import build_run_resource, build_run_row
from holodeck.gateway.runs.run_trace import read_trace
from holodeck.gateway.runs.trace_resource import build_trace_resource
from holodeck.gateway.runs.trace_steps import StoredTrace
from holodeck.models.callers import CallerKey
from holodeck.models.items import encode_item
from holodeck.storage.runs import SEARCHED_RUNS, UNFINISHED_STATUSES, Position, RunQuery, StoredRun
from holodeck.storage.store import ResponseStore

RUN_STATUSES = ("queued", "in_progress", "completed", "requires_action", "incomplete", "failed", "cancelled")
CALLER = TextParameter(
    name="caller",
    about=(
        "Only of this caller: its id, such as `key:alice#qkzvhtwbarme` or `jwt:alice`, or the name of its key, such as "
        "`alice`: that of the key in force. `local` is the caller of a gateway without keys; a key of that name is "
        "`key:local`. Others than oneself are for those who see all."
    ),
)
FindKey = Callable[[str], CallerKey | None]
"""Finds the key in force of a name."""
owned_route = partial(route, "GET", tag="Runs and usage", is_counted=False, shows_other_callers=True)
"""The decorator of a route that shows a caller its own, and an operator everything."""
_LIMIT = build_limit("Runs")
_FILTERS = (
    TextParameter(name="status", values=RUN_STATUSES),
    TextParameter(name="model", about="The public name of a model or an agent."),
    TextParameter(name="tool", about="Only runs that called this tool."),
    TextParameter(name="server", about="Only runs that called this MCP server."),
)
_TEXT = TextParameter(
    name="text", about="A part of the first 200 characters of the question or of the answer, in any case."
)
_CREATED_AFTER = TimeParameter(name="created_after", about="Seconds since 1970; that moment included.")
_CREATED_BEFORE = TimeParameter(name="created_before", about="Seconds since 1970; that moment excluded.")


class RunEndpoints:
    """Routes of runs."""

    def __init__(
        self,
        store: ResponseStore,
        runs: ActiveRuns,
        configurations: ConfigurationHolder,
        background: Background,
        *,
        find_key: FindKey,
    ) -> None:
        self._store = store
        self._runs = runs
        self._configurations = configurations
        self._background = background
        self._find_key = find_key

    @owned_route(
        "/v1/runs",
        id="listRuns",
        summary="List runs",
        description=(
            "The stored responses of the caller, newest first, and those that run at this gateway. An operator's key "
            "without a scope lists those of all callers.\n\n"
            f"A search by `model`, `tool`, `server` or `text` looks at {SEARCHED_RUNS} runs for each page. A page may "
            "then have fewer runs than `limit`, or none, and `has_more` all the same: go on with `last_id` as `after`."
        ),
        query=(_LIMIT, AFTER, *_FILTERS, CALLER, _TEXT, _CREATED_AFTER, _CREATED_BEFORE),
        reply="RunList",
        example={
            "object": "list",
            "data": [examples.RUN],
            "first_id": examples.RUN_ID,
            "last_id": examples.RUN_ID,
            "has_more": False,
        },
        errors=("query", "storage"),
    )
    async def list_runs(self, request: Request) -> Reply:
        """Return a page of runs, newest first."""
        caller = request.caller
        query = await self._read_query(
            request.query, find_owner(caller, request.query, self._find_key, can_read_all=caller.can_read_all_callers)
        )
        # Before the stored ones are read: a run that ends meanwhile is then found twice, and not missed.
        live = {run.id: run for run in self._runs.list_stored() if query.caller_id in (None, run.caller_id)}
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
        return json_reply(reply, owner=query.caller_id)

    @owned_route(
        "/v1/runs/{id}",
        id="getRun",
        summary="Get a run",
        description="The run of a stored response. One that goes on is shown as far as it has come.",
        reply="Run",
        example=examples.RUN,
        errors=STORED_ERRORS,
    )
    async def get(self, request: Request) -> Reply:
        run = await self._require_run(request)
        return json_reply(build_run_resource(run), owner=run.caller_id)

    @owned_route(
        "/v1/runs/{id}/trace",
        id="getRunTrace",
        summary="Get the trace of a run",
        description=(
            "When each step began and how long it took: turns, requests to the model, tool calls, waiting. It says "
            "what the model was sent and what it wrote in each turn, also for runs that failed or go on.\n\n"
            "Only an operator's key without a scope gets `agent_instructions` and the `tools` of spans: both are the "
            "operator's, and a request need not mention the servers whose tools its model is offered."
        ),
        reply="RunTrace",
        example=examples.TRACE,
        errors=STORED_ERRORS,
    )
    async def get_trace(self, request: Request) -> Reply:
        """Return the steps of a run with their times, as far as it has come."""
        run = await self._require_run(request)
        live = self._runs.find_stored(run.id)
        if live is not None:
            given = live.writer.request
            items = [encode_item(item) for item in (*given.input.items, *live.trace.items)]
            begun: StoredTrace = {**live.trace.to_stored(), "item_offset": len(given.input.items)}
            return self._reply_trace(request, run, begun, items, given.instructions)
        record = await self._store.get(run.id, run.caller_id)
        trace = None if record is None else read_trace(record.trace)
        if record is None or trace is None:
            raise not_found_error("Run", run.id)
        instructions = orjson.loads(record.resource)["instructions"]
        return self._reply_trace(request, run, trace, orjson.loads(record.items), instructions)

    @route(
        "POST",
        "/v1/runs/{id}/cancel",
        id="cancelRun",
        tag="Runs and usage",
        summary="Cancel a run",
        description=(
            "Cancel a run of the caller, whichever gateway has it. An operator's key without a scope cancels those of "
            "all callers. Returns the run: one of another gateway ends a moment later. A finished one stays as it is."
        ),
        reply="Run",
        example={**examples.RUN, "status": "cancelled"},
        errors=STORED_ERRORS,
        is_counted=False,
        shows_other_callers=True,
    )
    async def cancel(self, request: Request) -> Reply:
        """Cancel a run. Idempotent."""
        run = await self._require_run(request)
        live = self._runs.find_stored(run.id)
        if live is not None:
            live.cancel()
        if run.status in UNFINISHED_STATUSES:
            # Also stored for a gateway that takes it over.
            await self._background.cancel(run.id, run.caller_id)
        if live is not None:
            await live.finished.wait()
        return json_reply(build_run_resource(await self._require_run(request)), owner=run.caller_id)

    def _reply_trace(
        self,
        request: Request,
        run: StoredRun,
        trace: StoredTrace,
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
        return json_reply(resource, owner=run.caller_id)

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
            caller_id=owner,
            limit=_LIMIT.read(query),
            after=await self._find_position(AFTER.read(query), owner),
            **{each.name: each.read(query) for each in _FILTERS},
            text=_TEXT.read(query),
            created_after=_CREATED_AFTER.read(query),
            created_before=_CREATED_BEFORE.read(query),
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


def find_owner(caller: Caller, query: Mapping[str, str], find_key: FindKey, *, can_read_all: bool) -> str | None:
    """Return the caller whose runs or usage a request is about; None: all callers. Raises `APIError` 403.

    One that `can_read_all` may name another as `caller`, by its id or by the name of its key, which
    `find_key` finds.
    """
    given = CALLER.read(query)
    named = None if given is None else resolve_caller_id(given, find_key)
    if can_read_all:
        return named
    if named is not None and named != caller.id:
        message = "Naming another 'caller' needs a role that sees all callers, and a key that may use everything."
        raise APIError(403, message, kind="invalid_request", code="forbidden", param="caller")
    return caller.id


def _position_of(live: LiveResponse) -> Position:
    return (live.trace.created_at, live.id)


def _row_of(live: LiveResponse) -> StoredRun:
    return build_run_row(live, live.writer.build_resource())


def _newer(stored: StoredRun, live: LiveResponse | None) -> StoredRun:
    """Return the row that has more: that of a run that goes on, unless it has been stored as finished meanwhile."""
    return _row_of(live) if live is not None and stored.status in UNFINISHED_STATUSES else stored


def _find_live(runs: Iterable[LiveResponse], query: RunQuery, end: Position | None) -> list[StoredRun]:
    """Return the newest runs that are not stored and belong to a page, which ends at `end`.

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
    """Return whether a run that is not stored has what a query asks for."""
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
