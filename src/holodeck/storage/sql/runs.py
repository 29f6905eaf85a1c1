"""SQL statements about the index of runs that both databases share; `for_sqlite` converts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holodeck.lib.limits import DELETE_BATCH
from holodeck.storage.runs import SEARCHED_RUNS, Position, RunPage, RunQuery, StoredRun
from holodeck.storage.sql import in_progress
from holodeck.storage.sql.in_progress import IS_UNFINISHED

_COLUMNS = "id, owner, created_at, status, model, servers, tools, question, answer, details"
# Neither who asked what when, nor the model: a run that is stored again is the same run.
_UPDATED = ("status", "servers", "tools", "answer", "details")
# Of the columns, for a statement from which PostgreSQL cannot infer them.
_POSTGRES_TYPES = ("text", "text", "float8", *("text",) * 6, "bytea")
STORE_RUN = f"""
INSERT INTO runs ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (owner, created_at, id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _UPDATED)}"""  # noqa: S608
# A run has the caller and the time of its response.
_IS_RUN_OF = "id = $1 AND (owner, created_at) = (SELECT owner, created_at FROM responses WHERE id = $1)"
SET_STATUS = f"UPDATE runs SET status = $2 WHERE {_IS_RUN_OF} AND status <> $2"  # noqa: S608
DELETE_RUN = f"DELETE FROM runs WHERE {_IS_RUN_OF} AND owner = $2"  # noqa: S608
"""Deletes the run of a response of caller $2, before the response is deleted."""
DELETE_OLD_RUNS = f"""
DELETE FROM runs WHERE (owner, created_at, id) IN (
    SELECT owner, created_at, id FROM runs WHERE created_at < $1 AND NOT {IS_UNFINISHED} LIMIT {DELETE_BATCH})"""  # noqa: S608
"""Deletes one batch, and is repeated until it deletes nothing."""
GET_RUN = f"SELECT {_COLUMNS} FROM runs WHERE {_IS_RUN_OF}"  # noqa: S608
_NEWEST_FIRST = "ORDER BY created_at DESC, id DESC"
COMPLETED = "completed"
"""The status of nearly all runs, which the index of the other statuses leaves out."""

Statement = tuple[str, tuple[object, ...]]


def values_of(run: StoredRun) -> tuple[object, ...]:
    """The values of `STORE_RUN`."""
    return (
        *(run.id, run.owner, run.created_at, run.status, run.model),
        *(_join_names(run.servers), _join_names(run.tools), run.question, run.answer, run.details),
    )


def insert_after(source: str, *, first: int) -> str:
    """A statement that inserts a run if the rows `source` are not empty. `first`: the number of its first parameter."""
    values = ", ".join(f"${number}::{kind}" for number, kind in enumerate(_POSTGRES_TYPES, start=first))
    return f"INSERT INTO runs ({_COLUMNS}) SELECT {values} FROM {source} ON CONFLICT (owner, created_at, id) DO NOTHING"  # noqa: S608


def run_of(row: Sequence[Any]) -> StoredRun:
    run_id, owner, created_at, status, model, servers, tools, question, answer, details = row
    return StoredRun(
        id=run_id,
        owner=owner,
        created_at=created_at,
        status=status,
        model=model,
        servers=tuple(filter(None, servers.split("\n"))),
        tools=tuple(filter(None, tools.split("\n"))),
        question=question,
        answer=answer,
        details=details,
    )


def bound_query(query: RunQuery) -> Statement | None:
    """Query for the position of the last run that a search looks at. None: the search needs no bound."""
    has_filter = (query.model, query.tool, query.server, query.text) != (None, None, None, None)
    if not has_filter and query.status != COMPLETED:
        return None
    found = _index_conditions(query)
    sql = f"SELECT created_at, id FROM runs{found.where} {_NEWEST_FIRST} LIMIT 1 OFFSET {SEARCHED_RUNS - 1}"  # noqa: S608
    return sql, tuple(found.values)


def page_query(query: RunQuery, bound: Position | None) -> Statement:
    """Query for a page and one run more. `bound`: the last run to look at."""
    found = _index_conditions(query)
    if bound is not None:
        found.add("(created_at, id) >= ({}, {})", *bound)
    if query.status == COMPLETED:
        found.add("status = {}", query.status)
    if query.model is not None:
        found.add("model = {}", query.model)
    if query.tool is not None:
        found.add("strpos(tools, {}) > 0", _join_names((query.tool,)))
    if query.server is not None:
        found.add("strpos(servers, {}) > 0", _join_names((query.server,)))
    if query.text is not None:
        pattern = f"%{_escape_like(query.text)}%"
        found.add("(question LIKE {} ESCAPE '!' OR answer LIKE {} ESCAPE '!')", pattern, pattern)
    sql = f"SELECT {_COLUMNS} FROM runs{found.where} {_NEWEST_FIRST} LIMIT {query.limit + 1}"  # noqa: S608
    return sql, tuple(found.values)


def build_page(rows: Sequence[Sequence[Any]], query: RunQuery, bound: Position | None) -> RunPage:
    """The page of the rows of `page_query`."""
    runs = tuple(run_of(row) for row in rows[: query.limit])
    if len(rows) > query.limit:
        return RunPage(runs=runs, goes_on_after=runs[-1].position)
    return RunPage(runs=runs, goes_on_after=bound)


def for_sqlite(statement: str) -> str:
    return in_progress.for_sqlite(statement).replace("strpos(", "instr(")


def for_postgres(statement: str) -> str:
    return statement.replace(" LIKE ", " ILIKE ")


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
    """The conditions that the indices serve."""
    found = _Conditions()
    if query.owner is not None:
        found.add("owner = {}", query.owner)
    if query.after is not None:
        found.add("(created_at, id) < ({}, {})", *query.after)
    if query.created_after is not None:
        found.add("created_at >= {}", query.created_after)
    if query.created_before is not None:
        found.add("created_at < {}", query.created_before)
    if query.status is not None and query.status != COMPLETED:
        # The second condition is that of the index, which a parameter cannot promise.
        found.add("status = {} AND status <> 'completed'", query.status)
    return found


def _join_names(names: Sequence[str]) -> str:
    """Names as one text, in which each is found as a whole: between two line breaks."""
    return "".join(f"\n{name}\n" for name in names)


def _escape_like(text: str) -> str:
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")
