"""Callers that are paused, and those whose data is being erased, known to all gateways of a database.

A change of a state has the next number of the changes of keys, so that gateways find both by one look: see
`caller_keys`. There are few states, and all are read at once.

What a caller has stored is erased at every gateway, since each may have something of it in memory. The table
`caller_state_readers` has the number of the last change of which each gateway has erased everything. The erasure is
finished once every gateway that is alive has come so far. Its state stays for `REVOKED_SECONDS`: a gateway that was cut
off meanwhile may still store something from before.
"""

from __future__ import annotations

import time

from holodeck.lib.record import record
from holodeck.storage.caller_keys import NEXT_NUMBER, REVOKED_SECONDS, read_number
from holodeck.storage.jobs import Connection, Row, Storing, read, statement, transaction
from holodeck.storage.usage import DAY


@record
class CallerState:
    """The decisions of operators about a caller."""

    caller_id: str
    change: int
    """The number of its last change."""
    is_paused: bool
    is_erasing: bool
    erased_at: float | None
    """When its data was last erased, or the erasure began. None: never, or long ago."""
    changed_at: float
    changed_by: str
    """The id of the caller that has changed it."""


_COLUMNS = "caller_id, change_number, is_paused, is_erasing, erased_at, changed_at, changed_by"
_READ_STATES = f"SELECT {_COLUMNS} FROM caller_states ORDER BY change_number"  # noqa: S608 - no values, as below
_SET_PAUSED = f"""
INSERT INTO caller_states ({_COLUMNS}) VALUES ($1, $2, $3, FALSE, NULL, $4, $5)
ON CONFLICT (caller_id) DO UPDATE SET change_number = excluded.change_number, is_paused = excluded.is_paused,
    changed_at = excluded.changed_at, changed_by = excluded.changed_by"""  # noqa: S608
_START_ERASING = f"""
INSERT INTO caller_states ({_COLUMNS}) VALUES ($1, $2, FALSE, TRUE, $3, $3, $4)
ON CONFLICT (caller_id) DO UPDATE SET change_number = excluded.change_number, is_erasing = TRUE,
    erased_at = excluded.erased_at, changed_at = excluded.changed_at, changed_by = excluded.changed_by"""  # noqa: S608
_FIND_ERASED = """
SELECT change_number FROM caller_states WHERE caller_id = $1 AND is_erasing AND NOT EXISTS (
    SELECT 1 FROM caller_state_readers WHERE number < caller_states.change_number AND is_alive(gateway_id))"""
_FINISH_ERASING = """
UPDATE caller_states SET change_number = $3, is_erasing = FALSE
WHERE caller_id = $1 AND change_number = $2 AND is_erasing"""
_CONFIRM = """
INSERT INTO caller_state_readers (gateway_id, number) VALUES ($1, $2)
ON CONFLICT (gateway_id) DO UPDATE SET number = excluded.number WHERE caller_state_readers.number < excluded.number"""
_DELETE_ENDED = """
DELETE FROM caller_states WHERE NOT is_paused AND NOT is_erasing AND (erased_at IS NULL OR erased_at < $1)"""
_LIST_CALLERS = f"""
SELECT caller_id FROM (
    SELECT caller_id FROM usage_counts WHERE period = {DAY} UNION SELECT caller_id FROM caller_states) AS seen
WHERE caller_id > $1 AND strpos(lower(caller_id), $2) > 0 ORDER BY caller_id LIMIT $3"""  # noqa: S608
_DELETE_READERS = "DELETE FROM caller_state_readers WHERE NOT is_alive(gateway_id)"


class CallerStateStore(Storing):
    """Stores the states of callers."""

    @read()
    async def read_states(self, db: Connection) -> list[CallerState]:
        """Return all states, in the order of their changes."""
        return [_state_of(row) for row in await db.fetch_rows(_READ_STATES)]

    @read()
    async def list_callers(self, db: Connection, *, after: str, text: str, limit: int) -> list[str]:
        """Return the ids of callers with usage or a state, in their order. `text`: a part of their ids, in any case."""
        return [row[0] for row in await db.fetch_rows(_LIST_CALLERS, after, text.lower(), limit)]

    @transaction()
    async def set_paused(self, db: Connection, caller_id: str, changed_by: str, *, is_paused: bool) -> None:
        """Store that a caller is paused, or not any more. Idempotent."""
        await db.write(NEXT_NUMBER)
        await db.write(_SET_PAUSED, caller_id, await read_number(db), is_paused, time.time(), changed_by)
        await db.write(_DELETE_ENDED, time.time() - REVOKED_SECONDS)

    @transaction()
    async def start_erasing(self, db: Connection, caller_id: str, changed_by: str) -> None:
        """Store that everything of a caller is to be erased. Idempotent."""
        await db.write(NEXT_NUMBER)
        await db.write(_START_ERASING, caller_id, await read_number(db), time.time(), changed_by)

    @transaction()
    async def finish_erasing(self, db: Connection, caller_id: str) -> None:
        """End the erasure of a caller, if every gateway that is alive has erased what it had. Idempotent."""
        found = await db.fetch_row(_FIND_ERASED, caller_id)
        if found is not None:
            await db.write(NEXT_NUMBER)
            await db.write(_FINISH_ERASING, caller_id, found[0], await read_number(db))

    @statement()
    async def confirm(self, db: Connection, number: int) -> None:
        """Store that this gateway has erased everything up to a change. Idempotent."""
        await db.write(_CONFIRM, self.gateway_id, number)

    @transaction()
    async def delete_old(self, db: Connection) -> None:
        """Delete what no gateway needs any more."""
        await db.write(_DELETE_ENDED, time.time() - REVOKED_SECONDS)
        await db.write(_DELETE_READERS)


def _state_of(row: Row) -> CallerState:
    caller_id, change, is_paused, is_erasing, erased_at, changed_at, changed_by = row
    return CallerState(
        caller_id=caller_id,
        change=change,
        is_paused=bool(is_paused),
        is_erasing=bool(is_erasing),
        erased_at=erased_at,
        changed_at=changed_at,
        changed_by=changed_by,
    )
