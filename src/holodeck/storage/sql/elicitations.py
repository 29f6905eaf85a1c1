"""SQL statements about the questions of MCP servers that both databases share; `in_progress.for_sqlite` converts them.

The column `keeper` is the id of the gateway that waits for the answer. Every statement that is given a time leaves out
the questions that have expired by then: their gateway has not deleted them, because it died.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holodeck.storage.checked_values import decode_optional, decode_value, encode_value
from holodeck.storage.elicitations import StoredElicitation

_COLUMNS = "id, response_id, owner, created_at, expires_at, question, answer"
ADD_ELICITATION = """
INSERT INTO elicitations (id, response_id, owner, created_at, expires_at, question, keeper)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING"""
_IS_OF = "response_id = $1 AND owner = $2 AND expires_at > $3"
LIST_ELICITATIONS = f"SELECT {_COLUMNS}, keeper FROM elicitations WHERE {_IS_OF}"  # noqa: S608 - no values, as below
OLDEST_FIRST = " ORDER BY created_at, id"
"""Ends `LIST_ELICITATIONS`."""
FIND_UNANSWERED = f"SELECT keeper FROM elicitations WHERE {_IS_OF} AND id = $4 AND answer IS NULL"  # noqa: S608
ANSWER_ELICITATION = f"UPDATE elicitations SET answer = $5 WHERE {_IS_OF} AND id = $4 AND answer IS NULL"  # noqa: S608
READ_ANSWER = "SELECT answer FROM elicitations WHERE id = $1"
DELETE_ELICITATION = "DELETE FROM elicitations WHERE id = $1"
DELETE_EXPIRED = "DELETE FROM elicitations WHERE expires_at < $1"


def values_of(elicitation: StoredElicitation, gateway_id: int) -> tuple[object, ...]:
    """The values of `ADD_ELICITATION`."""
    return (
        *(elicitation.id, elicitation.response_id, elicitation.owner, elicitation.created_at),
        *(elicitation.expires_at, encode_value(elicitation.question), gateway_id),
    )


def elicitation_of(row: Sequence[Any]) -> StoredElicitation:
    """The question in a row of `LIST_ELICITATIONS`."""
    elicitation_id, response_id, owner, created_at, expires_at, question, answer, _ = row
    return StoredElicitation(
        id=elicitation_id,
        response_id=response_id,
        owner=owner,
        created_at=created_at,
        expires_at=expires_at,
        question=decode_value(question, elicitation_id),
        answer=decode_optional(answer, elicitation_id),
    )
