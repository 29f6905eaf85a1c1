"""SQL statements about unfinished responses that both databases share: streams, cancellation, queue.

The stream of an unfinished response is stored in chunks. A chunk stores the number of its first event and how many it
has, so that the number of the next event is known without reading any. The primary key of a chunk is its response and
its first number, so that two writers cannot store the same event number.

The column `keeper` is the id of the gateway that a response is assigned to, `turn` its position in the queue. The
statements have PostgreSQL's numbered parameters; `for_sqlite` converts them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

from holodeck.storage.base import UNFINISHED_STATUSES
from holodeck.storage.checked_values import decode_optional, encode_value

IS_UNFINISHED = "status IN ('queued', 'in_progress')"

GET_GATEWAY_ID = f"SELECT keeper FROM responses WHERE id = $1 AND {IS_UNFINISHED}"  # noqa: S608 - no values, as below
FIND_FINISHED = "SELECT 1 FROM responses WHERE id = $1 AND keeper = $2 AND status = $3 AND resource = $4"
NEXT_EVENT_NUMBER = "SELECT first + count FROM response_events WHERE response_id = $1 ORDER BY first DESC LIMIT 1"
CHUNKS_FROM = "SELECT first, events FROM response_events WHERE response_id = $1 AND first + count > $2 ORDER BY first"
ADD_CHUNK = "INSERT INTO response_events (response_id, first, count, events) VALUES ($1, $2, $3, $4)"
UPDATE_UNFINISHED = """
UPDATE responses SET resource = COALESCE($2, resource), status = COALESCE($3, status), keeper = $4,
    trace = COALESCE($5, trace) WHERE id = $1"""
READ_CHUNKS = """
SELECT e.first, e.events FROM responses r LEFT JOIN response_events e ON e.response_id = r.id AND e.first >= COALESCE(
    (SELECT MAX(c.first) FROM response_events c WHERE c.response_id = $1 AND c.first <= $3), 0)
WHERE r.id = $1 AND r.owner = $2 ORDER BY e.first"""
DELETE_CHUNKS = "DELETE FROM response_events WHERE response_id = $1"
DELETE_ORPHAN_CHUNKS = f"""
DELETE FROM response_events WHERE NOT EXISTS (
    SELECT 1 FROM responses WHERE id = response_events.response_id AND {IS_UNFINISHED})"""  # noqa: S608
REQUEST_CANCEL = f"UPDATE responses SET cancel_asked = TRUE WHERE id = $1 AND owner = $2 AND {IS_UNFINISHED}"  # noqa: S608
READ_CANCEL_REQUESTS = f"SELECT id FROM responses WHERE keeper = $1 AND cancel_asked AND {IS_UNFINISHED}"  # noqa: S608
ASSIGN_GATEWAY = f"UPDATE responses SET keeper = $2 WHERE id = $1 AND {IS_UNFINISHED}"  # noqa: S608
FIND_UNFINISHED_BEFORE = f"SELECT id, owner FROM responses WHERE created_at < $1 AND {IS_UNFINISHED}"  # noqa: S608
RESERVED = -1
"""The queue position of a response for which a request waits, and which is in no queue."""
_COUNTS = f"COALESCE(turn, 0) <> {RESERVED}"
FIND_ASSIGNED = f"SELECT id, owner FROM responses WHERE keeper = $1 AND {_COUNTS} AND {IS_UNFINISHED}"  # noqa: S608
"""Without reserved ones, which their requests end."""
COUNT_UNFINISHED = f"SELECT COUNT(*) FROM responses WHERE owner = $1 AND {_COUNTS} AND {IS_UNFINISHED}"  # noqa: S608
READ_QUEUE_STATE = f"""
SELECT (SELECT COUNT(*) FROM responses WHERE owner = $1 AND id <> $2 AND {_COUNTS} AND {IS_UNFINISHED}),
    (SELECT MAX(turn) FROM responses WHERE owner = $1 AND id <> $2 AND {IS_UNFINISHED}),
    (SELECT MAX(turn) FROM responses WHERE status = 'in_progress' AND {IS_UNFINISHED}),
    (SELECT MIN(turn) FROM responses WHERE status = 'queued' AND {IS_UNFINISHED})"""  # noqa: S608
"""The number of unfinished responses of a caller, without this one and reserved ones, and the last queue position among
them; then, of all callers, the last position that runs and the first that is queued."""


def next_queue_position(queue_state: Sequence[int | None], quota: int) -> int | None:
    """The queue position of one more response. None when the quota is used up. `queue_state`: `READ_QUEUE_STATE`.

    The position is after all those of the same caller, and not before one that runs already: a caller does not
    accumulate positions while it sends nothing.
    """
    count, last_own, last_running, first_queued = queue_state
    if count is None or count >= quota:
        return None
    return max(last_own or 0, last_running or 0, (first_queued or 1) - 1) + 1


def is_finished(status: str) -> bool:
    return status not in UNFINISHED_STATUSES


def encode_events(events: Sequence[bytes]) -> bytes:
    """The events of a chunk as they are stored."""
    return encode_value(b"\n".join(events))


def decode_chunks(
    rows: Iterable[tuple[int | None, bytes | None]], response_id: str
) -> list[tuple[int | None, bytes | None]]:
    """The chunks of rows of `READ_CHUNKS`: the number of the first event of each, and its events."""
    return [(first, decode_optional(events, response_id)) for first, events in rows]


def events_after(number: int, chunks: Iterable[tuple[int | None, bytes | None]]) -> list[bytes]:
    """The events of ordered chunks after a number. A chunk of None is a row of an outer join without a match."""
    found: list[bytes] = []
    for first, chunk in chunks:
        if first is not None and chunk is not None:
            found += chunk.split(b"\n")[max(0, number + 1 - first) :]
    return found


def find_unstored(events: Sequence[bytes], stored: Sequence[bytes]) -> Sequence[bytes] | None:
    """The events after those that are stored already, from the same number on. None: the stored ones are others.

    A writer whose last write was committed without an acknowledgement repeats it, with what has come since.
    """
    return events[len(stored) :] if list(events[: len(stored)]) == list(stored[: len(events)]) else None


@cache
def for_sqlite(statement: str) -> str:
    """A statement with its numbered parameters in the syntax of SQLite: `?1` for `$1`."""
    return re.sub(r"\$(\d)", r"?\1", statement)
