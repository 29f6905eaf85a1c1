"""Idempotency keys in a SQLite file, on the threads of the store."""

from __future__ import annotations

import sqlite3

from holodeck.storage.idempotency_keys import IdempotencyKey
from holodeck.storage.sql import idempotency_keys as key_sql
from holodeck.storage.sql.in_progress import for_sqlite
from holodeck.storage.sqlite.worker import Worker


class SQLiteIdempotencyKeys:
    """`IdempotencyKeyStore` in a SQLite file."""

    def __init__(self, reader: Worker, writer: Worker) -> None:
        self._reader = reader
        self._writer = writer

    async def find_key(self, owner: str, value: str) -> IdempotencyKey | None:
        return await self._reader.run(lambda db: _find_key(db, owner, value))

    async def claim_key(self, key: IdempotencyKey) -> IdempotencyKey:
        return await self._writer.run(lambda db: _claim_key(db, key))

    async def release_key(self, owner: str, value: str, response_id: str) -> None:
        values = (owner, value, response_id)
        await self._writer.run(lambda db: db.execute(for_sqlite(key_sql.RELEASE_KEY), values), is_one_statement=True)


def _find_key(db: sqlite3.Connection, owner: str, value: str) -> IdempotencyKey | None:
    row = db.execute(for_sqlite(key_sql.FIND_KEY), (owner, value, key_sql.oldest_time())).fetchone()
    return None if row is None else key_sql.key_of(row)


def _claim_key(db: sqlite3.Connection, key: IdempotencyKey) -> IdempotencyKey:
    db.execute(for_sqlite(key_sql.CLAIM_KEY), key_sql.values_of(key))
    return _find_key(db, key.owner, key.value) or key
