"""Questions of MCP servers to a person, while their calls wait for the answers.

The gateway that runs a call adds its question and deletes it when the question has ended. The answer may come to
another gateway with the same storage. A question of a gateway that is not alive any more is as one that does not exist.
"""

from __future__ import annotations

import time

from holodeck.lib.record import record
from holodeck.storage.jobs import Connection, Row, Storing, decode_optional, decode_value, encode_value, read, statement


@record
class StoredElicitation:
    """A question of an MCP server. The bytes are JSON, encoded by the gateway."""

    id: str
    response_id: str
    caller_id: str
    """The caller of the response."""
    created_at: float
    expires_at: float
    """When the gateway that waits for the answer stops to wait."""
    question: bytes
    answer: bytes | None = None
    """None: it is not answered."""


# Every statement that is given a time leaves out the questions that have expired by then: their gateway has not deleted
# them, because it died.
_IS_OF = "response_id = $1 AND caller_id = $2 AND expires_at > $3 AND is_alive(gateway_id)"
_ADD = """
INSERT INTO elicitations (id, response_id, caller_id, created_at, expires_at, question, gateway_id)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING"""
_LIST = f"""
SELECT id, response_id, caller_id, created_at, expires_at, question, answer FROM elicitations WHERE {_IS_OF}
ORDER BY created_at, id"""  # noqa: S608 - no values, as below
_ANSWER = f"UPDATE elicitations SET answer = $5 WHERE {_IS_OF} AND id = $4 AND answer IS NULL"  # noqa: S608
_READ_ANSWER = "SELECT answer FROM elicitations WHERE id = $1"
_DELETE = "DELETE FROM elicitations WHERE id = $1"
_ERASE = "DELETE FROM elicitations WHERE caller_id = $1"
DELETE_EXPIRED_ELICITATIONS = "DELETE FROM elicitations WHERE expires_at < $1"


class ElicitationStore(Storing):
    """Stores questions and their answers."""

    @statement()
    async def add_elicitation(self, db: Connection, elicitation: StoredElicitation) -> None:
        """Store a question of a call that this gateway runs. Idempotent."""
        await db.write(
            _ADD,
            elicitation.id,
            elicitation.response_id,
            elicitation.caller_id,
            elicitation.created_at,
            elicitation.expires_at,
            encode_value(elicitation.question),
            self.gateway_id,
        )

    @read()
    async def list_elicitations(self, db: Connection, response_id: str, caller_id: str) -> list[StoredElicitation]:
        """Return the questions of a response that have not ended, oldest first; answered ones are there until then."""
        return [_elicitation_of(row) for row in await db.fetch_rows(_LIST, response_id, caller_id, time.time())]

    # Not repeatable: the second attempt would take the answer of the first for that of another client.
    @statement(is_repeatable=False)
    async def answer_elicitation(
        self, db: Connection, elicitation_id: str, response_id: str, caller_id: str, answer: bytes
    ) -> bool:
        """Store the answer to a question. False, and nothing is changed, when it has one already or has ended."""
        values = (response_id, caller_id, time.time(), elicitation_id, encode_value(answer))
        return await db.write_counted(_ANSWER, *values) > 0

    @read()
    async def read_elicitation_answer(self, db: Connection, elicitation_id: str) -> bytes | None:
        """Return the answer to a question of this gateway. None: there is none so far."""
        row = await db.fetch_row(_READ_ANSWER, elicitation_id)
        return None if row is None else decode_optional(row[0], elicitation_id)

    @statement()
    async def erase_caller(self, db: Connection, caller_id: str) -> None:
        """Delete the questions of the responses of a caller."""
        await db.write(_ERASE, caller_id)

    @statement()
    async def delete_elicitation(self, db: Connection, elicitation_id: str) -> None:
        """Delete a question that has ended, with its answer."""
        await db.write(_DELETE, elicitation_id)


def _elicitation_of(row: Row) -> StoredElicitation:
    elicitation_id, response_id, caller_id, created_at, expires_at, question, answer = row
    return StoredElicitation(
        id=elicitation_id,
        response_id=response_id,
        caller_id=caller_id,
        created_at=created_at,
        expires_at=expires_at,
        question=decode_value(question, elicitation_id),
        answer=decode_optional(answer, elicitation_id),
    )
