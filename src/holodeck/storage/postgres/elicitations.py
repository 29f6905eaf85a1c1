"""Questions of MCP servers in PostgreSQL, which any gateway on the database may answer."""

from __future__ import annotations

import time

from holodeck.storage.checked_values import decode_optional, encode_value
from holodeck.storage.elicitations import StoredElicitation
from holodeck.storage.postgres.liveness import IS_ALIVE
from holodeck.storage.postgres.pool import PostgresPool, without_nul
from holodeck.storage.sql import elicitations as elicitation_sql

_LIST_ALIVE = f"{elicitation_sql.LIST_ELICITATIONS} AND {IS_ALIVE}{elicitation_sql.OLDEST_FIRST}"
_ANSWER_ALIVE = f"{elicitation_sql.ANSWER_ELICITATION} AND {IS_ALIVE}"


class PostgresElicitations:
    """`ElicitationStore` in PostgreSQL."""

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool

    async def add_elicitation(self, elicitation: StoredElicitation) -> None:
        values = elicitation_sql.values_of(elicitation, self._pool.liveness.number)
        await self._pool.run(lambda db: db.execute(elicitation_sql.ADD_ELICITATION, *values), is_repeatable=True)

    async def list_elicitations(self, response_id: str, caller_id: str) -> list[StoredElicitation]:
        values = (without_nul(response_id), caller_id, time.time())
        rows = await self._pool.run(lambda db: db.fetch(_LIST_ALIVE, *values), is_repeatable=True)
        return [elicitation_sql.elicitation_of(tuple(row)) for row in rows]

    async def answer_elicitation(self, elicitation_id: str, response_id: str, caller_id: str, answer: bytes) -> bool:
        values = (without_nul(response_id), caller_id, time.time(), without_nul(elicitation_id), encode_value(answer))
        # Not repeatable: the second attempt would take the answer of the first for that of another client.
        status = await self._pool.run(lambda db: db.execute(_ANSWER_ALIVE, *values), is_repeatable=False)
        return str(status) == "UPDATE 1"

    async def read_elicitation_answer(self, elicitation_id: str) -> bytes | None:
        answer: bytes | None = await self._pool.run(
            lambda db: db.fetchval(elicitation_sql.READ_ANSWER, elicitation_id), is_repeatable=True
        )
        return decode_optional(answer, elicitation_id)

    async def delete_elicitation(self, elicitation_id: str) -> None:
        await self._pool.run(
            lambda db: db.execute(elicitation_sql.DELETE_ELICITATION, elicitation_id), is_repeatable=True
        )
