"""Usage and spending in PostgreSQL, added up over all gateways."""

from __future__ import annotations

import time
from collections.abc import Mapping

from holodeck.storage.postgres.pool import Connection, PostgresPool
from holodeck.storage.sql import usage as usage_sql
from holodeck.storage.usage import Spending, UsageBatch, UsageQuery, UsageRow


class PostgresUsage:
    """`UsageStore` in PostgreSQL."""

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool

    async def add(self, batch: UsageBatch) -> None:
        rows = usage_sql.rows_of(batch)

        async def add(db: Connection) -> None:
            async with db.transaction():
                changed = await db.execute(usage_sql.CLAIM_BATCH, batch.source, batch.number, time.time())
                if changed != "INSERT 0 0":
                    await db.executemany(usage_sql.ADD_ROW, rows)

        await self._pool.run(add, is_repeatable=True)

    async def read(self, query: UsageQuery) -> list[UsageRow]:
        sql, values = usage_sql.read_query(query)
        rows = await self._pool.run(lambda db: db.fetch(sql, *values), is_repeatable=True)
        return [usage_sql.usage_row_of(tuple(row), query) for row in rows]

    async def store_spending(self, source: str, spending: Spending) -> None:
        rows = usage_sql.spending_rows_of(source, spending)
        await self._pool.run(lambda db: db.executemany(usage_sql.STORE_SPENDING, rows), is_repeatable=True)

    async def read_spending(self, owner: str, start: int, *, source: str, before: int) -> float:
        values = (owner, start, source, before)
        return float(await self._pool.run(lambda db: db.fetchval(usage_sql.READ_SPENDING, *values), is_repeatable=True))

    async def delete_older_than(self, before: Mapping[int, float]) -> None:
        async def delete(db: Connection) -> None:
            for sql, values in usage_sql.list_deletions(before):
                await db.execute(sql, *values)

        await self._pool.run(delete, is_repeatable=True)
