"""Questions of MCP servers in a SQLite file, on the threads of the store."""

from __future__ import annotations

import sqlite3
import time

from holodeck.storage.checked_values import decode_optional, encode_value
from holodeck.storage.elicitations import StoredElicitation
from holodeck.storage.liveness import FileLiveness, SoleLiveness
from holodeck.storage.sql import elicitations as elicitation_sql
from holodeck.storage.sql.in_progress import for_sqlite
from holodeck.storage.sqlite.worker import Worker


class SQLiteElicitations:
    """`ElicitationStore` in a SQLite file."""

    def __init__(self, reader: Worker, writer: Worker, liveness: FileLiveness | SoleLiveness) -> None:
        self._reader = reader
        self._writer = writer
        self._liveness = liveness

    async def add_elicitation(self, elicitation: StoredElicitation) -> None:
        values = elicitation_sql.values_of(elicitation, self._liveness.number)
        await self._writer.run(lambda db: db.execute(for_sqlite(elicitation_sql.ADD_ELICITATION), values))

    async def list_elicitations(self, response_id: str, caller_id: str) -> list[StoredElicitation]:
        return await self._reader.run(lambda db: self._list(db, response_id, caller_id))

    async def answer_elicitation(self, elicitation_id: str, response_id: str, caller_id: str, answer: bytes) -> bool:
        values = (response_id, caller_id, time.time(), elicitation_id)
        return await self._writer.run(lambda db: self._answer(db, values, answer))

    async def read_elicitation_answer(self, elicitation_id: str) -> bytes | None:
        sql = for_sqlite(elicitation_sql.READ_ANSWER)
        row = await self._reader.run(lambda db: db.execute(sql, (elicitation_id,)).fetchone())
        return None if row is None else decode_optional(row[0], elicitation_id)

    async def delete_elicitation(self, elicitation_id: str) -> None:
        sql = for_sqlite(elicitation_sql.DELETE_ELICITATION)
        await self._writer.run(lambda db: db.execute(sql, (elicitation_id,)))

    def _list(self, db: sqlite3.Connection, response_id: str, caller_id: str) -> list[StoredElicitation]:
        sql = for_sqlite(elicitation_sql.LIST_ELICITATIONS + elicitation_sql.OLDEST_FIRST)
        rows = db.execute(sql, (response_id, caller_id, time.time())).fetchall()
        return [elicitation_sql.elicitation_of(row) for row in rows if self._liveness.is_alive(row[-1])]

    def _answer(self, db: sqlite3.Connection, values: tuple[object, ...], answer: bytes) -> bool:
        row = db.execute(for_sqlite(elicitation_sql.FIND_UNANSWERED), values).fetchone()
        if row is None or not self._liveness.is_alive(row[0]):
            return False
        return db.execute(for_sqlite(elicitation_sql.ANSWER_ELICITATION), (*values, encode_value(answer))).rowcount > 0
