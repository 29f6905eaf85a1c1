"""The index of runs: one narrow row for each stored response, for lists and searches.

A row is written in the transaction that stores its response (`StoredResponse.run`), and deleted with it. It has what a
list shows and filters by; the response itself is read only for one run.

A page is found by position, newest first: the time and the id of the run before it. A search by anything but caller,
time and the rare statuses looks at no more than `SEARCHED_RUNS` runs; the page then says where the next one goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

from holodeck.lib.limits import DELETE_BATCH
from holodeck.lib.record import record
from holodeck.storage.jobs import Connection, Row, Storing, read

UNFINISHED_STATUSES = ("queued", "in_progress")
"""The statuses of a response, and of its run, that has not ended."""
IS_UNFINISHED = f"status IN {UNFINISHED_STATUSES}"
"""SQL condition of the same."""
# Runs that one page of a search looks at. SQLite filters so many in about 50 ms, in which other reads wait.
SEARCHED_RUNS = 20_000

Position = tuple[float, str]
"""Where a run is in the index: its time and its id."""


@record
class StoredRun:
    """The row of one run."""

    id: str
    caller_id: str
    created_at: float
    """The same as that of its response."""
    status: str
    model: str
    servers: tuple[str, ...] = ()
    """Names of the MCP servers that it called. None of the names has a line break."""
    tools: tuple[str, ...] = ()
    """Names of the tools that it called."""
    question: str = ""
    """The beginning of the question."""
    answer: str = ""
    """The beginning of the answer."""
    details: bytes = b"{}"
    """What is only shown; JSON, encoded by the gateway."""

    @property
    def position(self) -> Position:
        return (self.created_at, self.id)


@record
class RunQuery:
    """The runs that a page has: those that match all of this."""

    caller_id: str | None
    """The caller. None: all callers."""
    limit: int
    after: Position | None = None
    """The last run of the page before, or where it went on."""
    status: str | None = None
    model: str | None = None
    tool: str | None = None
    server: str | None = None
    text: str | None = None
    """A part of the question's or the answer's beginning, in lower or upper case."""
    created_after: float | None = None
    created_before: float | None = None


@record
class RunPage:
    """A page of runs, newest first."""

    runs: tuple[StoredRun, ...]
    goes_on_after: Position | None = None
    """The position after which the next page begins. None: there is no further run."""


_COLUMNS = "id, caller_id, created_at, status, model, servers, tools, question, answer, details"
# Neither who asked what when, nor the model: a run that is stored again is the same run.
_UPDATED = ("status", "servers", "tools", "answer", "details")
# Of the columns, for a statement from which PostgreSQL cannot infer them.
_POSTGRES_TYPES = ("text", "text", "float8", *("text",) * 6, "bytea")
_ON_CONFLICT = f"""
ON CONFLICT (caller_id, created_at, id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _UPDATED)}"""
STORE_RUN = f"INSERT INTO runs ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10){_ON_CONFLICT}"  # noqa: S608
# A run has the caller and the time of its response.
_IS_RUN_OF = "id = $1 AND (caller_id, created_at) = (SELECT caller_id, created_at FROM responses WHERE id = $1)"
SET_RUN_STATUS = f"UPDATE runs SET status = $2 WHERE {_IS_RUN_OF} AND status <> $2"  # noqa: S608
DELETE_RUN = f"DELETE FROM runs WHERE {_IS_RUN_OF} AND caller_id = $2"  # noqa: S608
"""Deletes the run of a response of caller $2, before the response is deleted."""
DELETE_OLD_RUNS = f"""
DELETE FROM runs WHERE (caller_id, created_at, id) IN (
    SELECT caller_id, created_at, id FROM runs WHERE created_at < $1 AND NOT {IS_UNFINISHED} LIMIT {DELETE_BATCH})"""  # noqa: S608
"""Deletes one batch, and is repeated until it deletes nothing."""
_GET_RUN = f"SELECT {_COLUMNS} FROM runs WHERE {_IS_RUN_OF}"  # noqa: S608
_NEWEST_FIRST = "ORDER BY created_at DESC, id DESC"
_COMPLETED = "completed"
"""The status of nearly all runs, which the index of the other statuses leaves out."""


class RunIndex(Storing):
    """Reads the index of runs."""

    @read()
    async def list_runs(self, db: Connection, query: RunQuery) -> RunPage:
        bound: Position | None = None
        if (bounding := _bound_query(query)) is not None:
            row = await db.fetch_row(bounding[0], *bounding[1])
            bound = None if row is None else (row[0], row[1])
        sql, values = _page_query(query, bound)
        return _build_page(await db.fetch_rows(sql, *values), query, bound)

    @read()
    async def get_run(self, db: Connection, run_id: str, caller_id: str | None) -> StoredRun | None:
        """Return the run of this id. `caller_id`: of which caller; None: of any."""
        row = await db.fetch_row(_GET_RUN, run_id)
        run = None if row is None else _run_of(row)
        return run if run is not None and caller_id in (None, run.caller_id) else None


def run_values_of(run: StoredRun) -> tuple[object, ...]:
    """Return the values of `STORE_RUN`."""
    return (
        *(run.id, run.caller_id, run.created_at, run.status, run.model),
        *(_join_names(run.servers), _join_names(run.tools), run.question, run.answer, run.details),
    )


def store_run_after(source: str, *, first: int) -> str:
    """Return a statement that stores a run if the rows `source` are not empty.

    `first`: the number of its first parameter.
    """
    values = ", ".join(f"${number}::{kind}" for number, kind in enumerate(_POSTGRES_TYPES, start=first))
    # Without a condition, the `ON` would be one of a join.
    return f"INSERT INTO runs ({_COLUMNS}) SELECT {values} FROM {source} WHERE TRUE{_ON_CONFLICT}"  # noqa: S608


def _run_of(row: Row) -> StoredRun:
    run_id, caller_id, created_at, status, model, servers, tools, question, answer, details = row
    return StoredRun(
        id=run_id,
        caller_id=caller_id,
        created_at=created_at,
        status=status,
        model=model,
        servers=tuple(filter(None, servers.split("\n"))),
        tools=tuple(filter(None, tools.split("\n"))),
        question=question,
        answer=answer,
        details=details,
    )


def _bound_query(query: RunQuery) -> tuple[str, list[object]] | None:
    """Return a query for the position of the last run that a search looks at. None: the search needs no bound."""
    has_filter = (query.model, query.tool, query.server, query.text) != (None, None, None, None)
    if not has_filter and query.status != _COMPLETED:
        return None
    found = _index_conditions(query)
    sql = f"SELECT created_at, id FROM runs{found.where} {_NEWEST_FIRST} LIMIT 1 OFFSET {SEARCHED_RUNS - 1}"  # noqa: S608
    return sql, found.values


def _page_query(query: RunQuery, bound: Position | None) -> tuple[str, list[object]]:
    """Return a query for a page and one run more. `bound`: the last run to look at."""
    found = _index_conditions(query)
    if bound is not None:
        found.add("(created_at, id) >= ({}, {})", *bound)
    if query.status == _COMPLETED:
        found.add("status = {}", query.status)
    if query.model is not None:
        found.add("model = {}", query.model)
    if query.tool is not None:
        found.add("strpos(tools, {}) > 0", _join_names((query.tool,)))
    if query.server is not None:
        found.add("strpos(servers, {}) > 0", _join_names((query.server,)))
    if query.text is not None:
        pattern = f"%{_escape_like(query.text)}%"
        found.add("(question ILIKE {} ESCAPE '!' OR answer ILIKE {} ESCAPE '!')", pattern, pattern)
    sql = f"SELECT {_COLUMNS} FROM runs{found.where} {_NEWEST_FIRST} LIMIT {query.limit + 1}"  # noqa: S608
    return sql, found.values


def _build_page(rows: Sequence[Row], query: RunQuery, bound: Position | None) -> RunPage:
    """Return the page of the rows of `_page_query`."""
    runs = tuple(_run_of(row) for row in rows[: query.limit])
    if len(rows) > query.limit:
        return RunPage(runs=runs, goes_on_after=runs[-1].position)
    return RunPage(runs=runs, goes_on_after=bound)


class _Conditions:
    """The conditions of a query, all of which must hold, and their values."""

    def __init__(self) -> None:
        self._conditions: list[str] = []
        self.values: list[object] = []

    def add(self, condition: str, *values: object) -> None:
        """Add a condition with `{}` for each of its values."""
        first = len(self.values) + 1
        self._conditions.append(condition.format(*(f"${number}" for number in range(first, first + len(values)))))
        self.values += values

    @property
    def where(self) -> str:
        return f" WHERE {' AND '.join(self._conditions)}" if self._conditions else ""


def _index_conditions(query: RunQuery) -> _Conditions:
    """Return the conditions that the indices serve."""
    found = _Conditions()
    if query.caller_id is not None:
        found.add("caller_id = {}", query.caller_id)
    if query.after is not None:
        found.add("(created_at, id) < ({}, {})", *query.after)
    if query.created_after is not None:
        found.add("created_at >= {}", query.created_after)
    if query.created_before is not None:
        found.add("created_at < {}", query.created_before)
    if query.status is not None and query.status != _COMPLETED:
        # The second condition is that of the index, which a parameter cannot promise.
        found.add("status = {} AND status <> 'completed'", query.status)
    return found


def _join_names(names: Sequence[str]) -> str:
    """Return names as one text, in which each is found as a whole: between two line breaks."""
    return "\n" + "\n\n".join(names) + "\n" if names else ""


def _escape_like(text: str) -> str:
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")
