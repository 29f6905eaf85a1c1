"""Usage and spending in a SQLite file, on the threads of the store."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping

from holodeck.storage.sql import usage as usage_sql
from holodeck.storage.sql.in_progress import for_sqlite
from holodeck.storage.sqlite.worker import Worker
from holodeck.storage.usage import Spending, UsageBatch, UsageQuery, UsageRow


class SQLiteUsage:
    """`UsageStore` in a SQLite file. A batch shares a transaction with the responses that are stored at that moment."""

    def __init__(self, reader: Worker, writer: Worker) -> None:
        self._reader = reader
        self._writer = writer

    async def add(self, batch: UsageBatch) -> None:
        await self._writer.run(lambda db: _add_batch(db, batch))

    async def read(self, query: UsageQuery) -> list[UsageRow]:
        sql, values = usage_sql.read_query(query)
        return await self._reader.run(
            lambda db: [usage_sql.usage_row_of(row, query) for row in db.execute(for_sqlite(sql), values)]
        )

    async def store_spending(self, source: str, spending: Spending) -> None:
        sql, rows = for_sqlite(usage_sql.STORE_SPENDING), usage_sql.spending_rows_of(source, spending)
        await self._writer.run(lambda db: db.executemany(sql, rows))

    async def read_spending(self, owner: str, start: int, *, source: str, before: int) -> float:
        sql, values = for_sqlite(usage_sql.READ_SPENDING), (owner, start, source, before)
        return float(await self._reader.run(lambda db: db.execute(sql, values).fetchone()[0]))

    async def delete_older_than(self, before: Mapping[int, float]) -> None:
        for sql, values in usage_sql.list_deletions(before):
            statement, given = for_sqlite(sql), values
            await self._writer.run(lambda db, statement=statement, given=given: db.execute(statement, given))  # type: ignore[misc]


def _add_batch(db: sqlite3.Connection, batch: UsageBatch) -> None:
    if not db.execute(for_sqlite(usage_sql.CLAIM_BATCH), (batch.source, batch.number, time.time())).rowcount:
        return
    db.executemany(for_sqlite(usage_sql.ADD_ROW), usage_sql.rows_of(batch))
