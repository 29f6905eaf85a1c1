"""Idempotency keys in PostgreSQL, which all gateways on the database share."""

from __future__ import annotations

from holodeck.storage.idempotency_keys import IdempotencyKey
from holodeck.storage.postgres.pool import Connection, PostgresPool
from holodeck.storage.sql import idempotency_keys as key_sql


class PostgresIdempotencyKeys:
    """`IdempotencyKeyStore` in PostgreSQL."""

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool

    async def find_key(self, owner: str, value: str) -> IdempotencyKey | None:
        return await self._pool.run(lambda db: _find_key(db, owner, value), is_repeatable=True)

    async def claim_key(self, key: IdempotencyKey) -> IdempotencyKey:
        async def claim(db: Connection) -> IdempotencyKey:
            async with db.transaction():
                await db.execute(key_sql.CLAIM_KEY, *key_sql.values_of(key))
                return await _find_key(db, key.owner, key.value) or key

        return await self._pool.run(claim, is_repeatable=True)

    async def release_key(self, owner: str, value: str, response_id: str) -> None:
        values = (owner, value, response_id)
        await self._pool.run(lambda db: db.execute(key_sql.RELEASE_KEY, *values), is_repeatable=True)


async def _find_key(db: Connection, owner: str, value: str) -> IdempotencyKey | None:
    row = await db.fetchrow(key_sql.FIND_KEY, owner, value, key_sql.oldest_time())
    return None if row is None else key_sql.key_of(tuple(row))
