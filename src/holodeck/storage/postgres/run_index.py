"""The index of runs in PostgreSQL."""

from __future__ import annotations

from holodeck.storage.postgres.pool import Connection, PostgresPool
from holodeck.storage.runs import RunPage, RunQuery, StoredRun
from holodeck.storage.sql import runs as run_sql


class PostgresRunIndex:
    """`RunIndex` in PostgreSQL."""

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool

    async def list_runs(self, query: RunQuery) -> RunPage:
        async def read(db: Connection) -> RunPage:
            bound = None
            if (statement := run_sql.bound_query(query)) is not None:
                row = await db.fetchrow(statement[0], *statement[1])
                bound = None if row is None else (row[0], row[1])
            sql, values = run_sql.page_query(query, bound)
            rows = await db.fetch(run_sql.for_postgres(sql), *values)
            return run_sql.build_page([tuple(row) for row in rows], query, bound)

        return await self._pool.run(read, is_repeatable=True)

    async def get_run(self, run_id: str, caller_id: str | None) -> StoredRun | None:
        # Texts of PostgreSQL cannot contain NUL, so no stored id does.
        key = run_id.replace("\0", "\ufffd")
        row = await self._pool.run(lambda db: db.fetchrow(run_sql.GET_RUN, key), is_repeatable=True)
        run = None if row is None else run_sql.run_of(tuple(row))
        return run if run is not None and caller_id in (None, run.owner) else None


async def store_run(db: Connection, run: StoredRun | None) -> None:
    """Store the row of a run, in the transaction of its response."""
    if run is not None:
        await db.execute(run_sql.STORE_RUN, *run_sql.values_of(run))
