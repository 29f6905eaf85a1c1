"""Unfinished responses: which gateway runs them, their streams, and requests to cancel them.

An unfinished response names the gateway that runs it; when that gateway is not alive any more, the response is an
orphan, and another gateway takes it over.

The stream of an unfinished response is stored in chunks. A chunk stores the number of its first event and how many it
has, so that the number of the next event is known without reading any. The primary key of a chunk is its response and
its first number, so that two writers cannot store the same event number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from holodeck.storage.checked_values import decode_optional, encode_optional, encode_value
from holodeck.storage.jobs import Connection, Row, Storing, read, statement, transaction
from holodeck.storage.responses import COLUMNS, StoredResponse, response_of
from holodeck.storage.runs import IS_UNFINISHED, SET_RUN_STATUS

RESERVED = -1
"""The queue position of a response for which a request waits, and which is in no queue."""
IS_COUNTED = f"COALESCE(queue_position, 0) <> {RESERVED}"
"""SQL condition: whether a response counts towards a quota. The request of a reserved one ends it."""

# Locked: another writer waits here, and then sees what this one has added.
LOCK_UNFINISHED = f"SELECT gateway_id FROM responses WHERE id = $1 AND {IS_UNFINISHED} FOR UPDATE"  # noqa: S608 - no values, as below
DELETE_CHUNKS = "DELETE FROM response_events WHERE response_id = $1"
DELETE_ORPHAN_CHUNKS = f"""
DELETE FROM response_events WHERE NOT EXISTS (
    SELECT 1 FROM responses WHERE id = response_events.response_id AND {IS_UNFINISHED})"""  # noqa: S608
_NEXT_EVENT_NUMBER = "SELECT first + count FROM response_events WHERE response_id = $1 ORDER BY first DESC LIMIT 1"
_CHUNKS_FROM = "SELECT first, events FROM response_events WHERE response_id = $1 AND first + count > $2 ORDER BY first"
_ADD_CHUNK = "INSERT INTO response_events (response_id, first, count, events) VALUES ($1, $2, $3, $4)"
_UPDATE_UNFINISHED = """
UPDATE responses SET resource = COALESCE($2, resource), status = COALESCE($3, status), gateway_id = $4,
    trace = COALESCE($5, trace) WHERE id = $1"""
_READ_CHUNKS = """
SELECT e.first, e.events FROM responses r LEFT JOIN response_events e ON e.response_id = r.id AND e.first >= COALESCE(
    (SELECT MAX(c.first) FROM response_events c WHERE c.response_id = $1 AND c.first <= $3), 0)
WHERE r.id = $1 AND r.caller_id = $2 ORDER BY e.first"""
_REQUEST_CANCEL = f"UPDATE responses SET cancel_requested = TRUE WHERE id = $1 AND caller_id = $2 AND {IS_UNFINISHED}"  # noqa: S608
_READ_CANCEL_REQUESTS = f"SELECT id FROM responses WHERE gateway_id = $1 AND cancel_requested AND {IS_UNFINISHED}"  # noqa: S608
_ASSIGN_GATEWAY = f"UPDATE responses SET gateway_id = $2 WHERE id = $1 AND {IS_UNFINISHED}"  # noqa: S608
_FIND_UNFINISHED = f"SELECT id FROM responses WHERE id = ANY($1) AND {IS_UNFINISHED}"  # noqa: S608
_FIND_UNFINISHED_BEFORE = f"SELECT id, caller_id FROM responses WHERE created_at < $1 AND {IS_UNFINISHED}"  # noqa: S608
_FIND_ASSIGNED = f"SELECT id, caller_id FROM responses WHERE gateway_id = $1 AND {IS_COUNTED} AND {IS_UNFINISHED}"  # noqa: S608
_COUNT_UNFINISHED = f"SELECT COUNT(*) FROM responses WHERE caller_id = $1 AND {IS_COUNTED} AND {IS_UNFINISHED}"  # noqa: S608
# Materialized, so that each gateway is looked for once, however many responses it has.
_GATEWAYS = f"WITH gateways AS MATERIALIZED (SELECT DISTINCT gateway_id FROM responses WHERE {IS_UNFINISHED})"  # noqa: S608
_IS_ORPHAN = f"""{IS_UNFINISHED} AND (
    gateway_id IS NULL OR gateway_id IN (SELECT gateway_id FROM gateways WHERE NOT is_alive(gateway_id)))"""  # noqa: S608
_READ_ORPHANS = f"{_GATEWAYS} SELECT {COLUMNS} FROM responses WHERE {_IS_ORPHAN}"  # noqa: S608
_FIND_ORPHANS = f"{_GATEWAYS} SELECT id, gateway_id FROM responses WHERE {_IS_ORPHAN}"  # noqa: S608

Chunk = tuple[int | None, bytes | None]
"""The number of the first event, and the events. None: the response has no chunk."""


class UnfinishedResponses(Storing):
    """The methods of the store about unfinished responses."""

    @read()
    async def count_unfinished(self, db: Connection, caller_id: str) -> int:
        """Return the number of unfinished responses of a caller, on all gateways together."""
        row = await db.fetch_row(_COUNT_UNFINISHED, caller_id)
        return 0 if row is None else int(row[0])

    @read()
    async def read_orphans(self, db: Connection) -> list[StoredResponse]:
        """Return unfinished responses whose gateway is not alive, or that have none."""
        return [response_of(row) for row in await db.fetch_rows(_READ_ORPHANS)]

    async def find_orphans(self) -> dict[str, int | None]:
        """Return the ids of the same responses, each with the id of its dead gateway. None: none was ever assigned.

        Gateways poll this. Raises `StorageError` also while the database cannot be written.
        """
        found = await self._find_orphans()
        await self._driver.require_usable()
        return found

    @read()
    async def _find_orphans(self, db: Connection) -> dict[str, int | None]:
        return dict(await db.fetch_rows(_FIND_ORPHANS))

    @read()
    async def find_unfinished(self, db: Connection, ids: Collection[str]) -> set[str]:
        """Return the subset of the ids whose responses are unfinished, on any gateway."""
        return {row[0] for row in await db.fetch_rows(_FIND_UNFINISHED, db.array(ids))}

    @read()
    async def find_unfinished_before(self, db: Connection, created_before: float) -> dict[str, str]:
        """Return the ids of unfinished responses from before a time, on any gateway, each with the id of its caller."""
        return dict(await db.fetch_rows(_FIND_UNFINISHED_BEFORE, created_before))

    @read()
    async def find_assigned(self, db: Connection) -> dict[str, str]:
        """Return the ids of the unfinished responses that are assigned to this gateway, each with its caller's.

        Without reserved ones, which their requests end.
        """
        return dict(await db.fetch_rows(_FIND_ASSIGNED, self.gateway_id))

    @statement()
    async def assign_gateway(self, db: Connection, response_id: str, gateway_id: int | None = None) -> None:
        """Assign an unfinished response to this gateway, or to `gateway_id`. A finished response is not changed."""
        await db.write(_ASSIGN_GATEWAY, response_id, gateway_id or self.gateway_id)

    @transaction()
    async def append_events(
        self,
        db: Connection,
        response_id: str,
        first_number: int,
        events: Sequence[bytes],
        *,
        resource: bytes | None = None,
        status: str | None = None,
        trace: bytes | None = None,
    ) -> bool:
        """Append events to the stream of an unfinished response, and update its state, in one transaction.

        `first_number` is the number of the first event, counted from 0. The response is then assigned to this gateway.
        Returns False, and changes nothing, when there is no such unfinished response, or when `first_number` is not
        the next number because another writer has appended.
        Idempotent, because the acknowledgement of a commit may have been lost: of events from `first_number` on that
        this gateway has stored already, as they are here, only those after them are appended.
        `status` is an unfinished status; `save` and `finish` end a response. An event contains no line break.
        """
        row = await db.fetch_row(LOCK_UNFINISHED, response_id)
        if row is None:
            return False
        gateway_id, last = row[0], await db.fetch_row(_NEXT_EVENT_NUMBER, response_id)
        end = last[0] if last is not None else 0
        if first_number < end and gateway_id == self.gateway_id:
            chunks = _decode_chunks(await db.fetch_rows(_CHUNKS_FROM, response_id, first_number), response_id)
            unstored = _find_unstored(events, _events_after(first_number - 1, chunks))
            if unstored is None:
                return False
            events = unstored
        elif first_number != end:
            return False
        if events:
            await db.write(_ADD_CHUNK, response_id, end, len(events), encode_value(b"\n".join(events)))
        if (gateway_id, resource, status) != (self.gateway_id, None, None):
            changes = (encode_optional(resource), status, self.gateway_id, encode_optional(trace))
            await db.write(_UPDATE_UNFINISHED, response_id, *changes)
        if status is not None:
            await db.write(SET_RUN_STATUS, response_id, status)
        return True

    @read()
    async def read_events(
        self, db: Connection, response_id: str, caller_id: str, starting_after: int = -1
    ) -> list[bytes] | None:
        """Return the events after a number that an unfinished response has so far. None: there is no such response.

        Empty for a finished response, whose events are in `StoredResponse.events`.
        """
        rows = await db.fetch_rows(_READ_CHUNKS, response_id, caller_id, starting_after + 1)
        return _events_after(starting_after, _decode_chunks(rows, response_id)) if rows else None

    @statement()
    async def request_cancel(self, db: Connection, response_id: str, caller_id: str) -> bool:
        """Ask the gateway that runs a response to cancel it. False when there is no such unfinished response."""
        return await db.write_counted(_REQUEST_CANCEL, response_id, caller_id) > 0

    @read()
    async def read_cancel_requests(self, db: Connection) -> list[str]:
        """Return the ids of the unfinished responses of this gateway for which `request_cancel` was called.

        Gateways poll this, so it is served from an index.
        """
        return [row[0] for row in await db.fetch_rows(_READ_CANCEL_REQUESTS, self.gateway_id)]


def _decode_chunks(rows: Iterable[Row], response_id: str) -> list[Chunk]:
    return [(first, decode_optional(events, response_id)) for first, events in rows]


def _events_after(number: int, chunks: Iterable[Chunk]) -> list[bytes]:
    """Return the events of ordered chunks after a number."""
    found: list[bytes] = []
    for first, chunk in chunks:
        if first is not None and chunk is not None:
            found += chunk.split(b"\n")[max(0, number + 1 - first) :]
    return found


def _find_unstored(events: Sequence[bytes], stored: Sequence[bytes]) -> Sequence[bytes] | None:
    """Return the events after those that are stored already, from the same number on. None: the stored ones are others.

    A writer whose last write was committed without an acknowledgement repeats it, with what has come since.
    """
    return events[len(stored) :] if list(events[: len(stored)]) == list(stored[: len(events)]) else None
