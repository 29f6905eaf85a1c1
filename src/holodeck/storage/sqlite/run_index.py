"""The index of runs in a SQLite file, read on the thread of the store's reader."""

from __future__ import annotations

import sqlite3

from holodeck.storage.runs import RunPage, RunQuery, StoredRun
from holodeck.storage.sql import runs as run_sql
from holodeck.storage.sqlite.worker import Worker


class SQLiteRunIndex:
    """`RunIndex` in a SQLite file."""

    def __init__(self, reader: Worker) -> None:
        self._reader = reader

    async def list_runs(self, query: RunQuery) -> RunPage:
        return await self._reader.run(lambda db: _read_page(db, query))

    async def get_run(self, run_id: str, caller_id: str | None) -> StoredRun | None:
        sql = run_sql.for_sqlite(run_sql.GET_RUN)
        row = await self._reader.run(lambda db: db.execute(sql, (run_id,)).fetchone())
        run = None if row is None else run_sql.run_of(row)
        return run if run is not None and caller_id in (None, run.owner) else None


def _read_page(db: sqlite3.Connection, query: RunQuery) -> RunPage:
    bound = None
    if (statement := run_sql.bound_query(query)) is not None:
        bound = db.execute(run_sql.for_sqlite(statement[0]), statement[1]).fetchone()
    sql, values = run_sql.page_query(query, bound)
    return run_sql.build_page(db.execute(run_sql.for_sqlite(sql), values).fetchall(), query, bound)
