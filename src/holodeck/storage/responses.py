"""Stored responses: their record and columns, the search for items in them, and those that are unfinished.

A request may refer to an item by its id alone, and items have no index. The search reads a caller's responses from
the newest on, within a limit on their number and their bytes, and stops when every id is found.

An unfinished response names the gateway that runs it; when that gateway is not alive any more, the response is an
orphan, and another gateway takes it over. Its stream is stored in chunks. A chunk stores the number of its first event
and how many it has, so that the number of the next event is known without reading any. The primary key of a chunk is
its response and its first number, so that two writers cannot store the same event number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import orjson

from holodeck.lib.limits import MIB
from holodeck.lib.record import record
from holodeck.storage.jobs import (
    Connection,
    Row,
    Storing,
    decode_optional,
    decode_value,
    encode_optional,
    encode_value,
    read,
    statement,
    transaction,
)
from holodeck.storage.runs import IS_UNFINISHED, SET_RUN_STATUS, StoredRun


@record
class StoredResponse:
    """A response with everything that a later request may need of it. The bytes are JSON, encoded by the gateway."""

    id: str
    caller_id: str
    created_at: float
    status: str
    previous_id: str | None = None
    conversation_id: str | None = None
    resource: bytes = b"{}"
    """The response exactly as it is returned."""
    input_items: bytes = b"[]"
    """Its input as it is listed, each item with an id."""
    items: bytes = b"[]"
    """What it added to the context: its input, then its output."""
    pending: bytes = b"{}"
    """Its pending calls."""
    events: bytes = b""
    """Its stream, one event per line; empty when it was not streamed."""
    trace: bytes | None = None
    """When its steps began and how long they took; JSON."""
    run: StoredRun | None = None
    """Its row in the index of runs, which is stored with it. None: that row is not changed; what is read has none."""


COLUMN_NAMES = (
    *("id", "caller_id", "created_at", "status", "previous_id", "conversation_id"),
    *("resource", "input_items", "items", "pending", "events", "trace"),
)
COLUMNS = ", ".join(COLUMN_NAMES)
_FIRST_BYTES = COLUMN_NAMES.index("resource")
_plain_of = attrgetter(*COLUMN_NAMES[:_FIRST_BYTES])


# About what the gateway writes around the texts of a response: the base of what is stored of it, before its items. It
# is never changed, because stored values refer to it; another one would be another form of values.
_SAMPLE = Path(__file__).with_name("sample_response.txt").read_bytes()


def values_of(response: StoredResponse, gateway_id: int) -> tuple[object, ...]:
    """Return the values of a row, with the gateway that the response is assigned to as the last one.

    Takes a few milliseconds per megabyte: see `size_of`.
    """
    base = _SAMPLE + response.items
    return (
        *_plain_of(response),
        encode_value(response.resource, base=base),
        encode_value(response.input_items, base=base),
        encode_value(response.items),
        encode_value(response.pending),
        encode_value(response.events, may_compress=True),
        None if response.trace is None else encode_value(response.trace),
        gateway_id,
    )


def size_of(response: StoredResponse) -> int:
    """Return the number of bytes that `values_of` encodes."""
    sent = len(response.resource) + len(response.input_items) + len(response.items) + len(response.events)
    return sent + len(response.pending) + len(response.trace or b"")


def response_of(row: Sequence[Any]) -> StoredResponse:
    """Return the response of a row of `COLUMNS`. Raises `DamagedValueError`."""
    response_id, stored = row[0], row[_FIRST_BYTES:]
    data = (
        *decode_texts(response_id, *stored[:3]),
        *(decode_optional(each, response_id) for each in stored[3:]),
    )
    return StoredResponse(**dict(zip(COLUMN_NAMES, (*row[:_FIRST_BYTES], *data), strict=True)))


def decode_texts(response_id: str, resource: object, input_items: object, items: object) -> tuple[bytes, bytes, bytes]:
    """Return the stored values of a response's resource, input and items. Raises `DamagedValueError`."""
    context = decode_value(items, response_id)
    base = _SAMPLE + context
    return decode_value(resource, response_id, base=base), decode_value(input_items, response_id, base=base), context


# Responses of a caller that one search covers, newest first.
MAX_SEARCHED_RESPONSES = 1_000
# Bytes that one search reads. That takes about a tenth of a second, in which other readers of the database wait.
MAX_SEARCHED_BYTES = 64 * MIB

READ_TEXT_SIZES = f"""
SELECT id, length(resource) + length(input_items) FROM responses WHERE caller_id = $1
ORDER BY created_at DESC LIMIT {MAX_SEARCHED_RESPONSES}"""  # noqa: S608 - a number of our own
"""The ids and sizes of the responses, read first, so that no bytes over the limit are read."""
_ID_FIELD = b'"id":"'
ResponseTexts = tuple[bytes, bytes]
"""The resource and the input of a response."""


def choose_newest(sizes: Iterable[tuple[str, int]]) -> list[str]:
    """Return the ids of the responses to search: the newest in any case, then older ones within
    `MAX_SEARCHED_BYTES`."""
    chosen: list[str] = []
    total = 0
    for response_id, size in sizes:
        total += size
        if chosen and total > MAX_SEARCHED_BYTES:
            break
        chosen.append(response_id)
    return chosen


class ItemSearch:
    """Collects the responses that contain any of the ids; each id is searched for until its first match."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._missing = {orjson.dumps(each)[1:] for each in ids}
        self.found: list[ResponseTexts] = []

    @property
    def is_complete(self) -> bool:
        return not self._missing

    def search_response(self, resource: bytes, input_items: bytes) -> None:
        here = self._missing.intersection((*_ids_in(resource), *_ids_in(input_items)))
        if here:
            self._missing -= here
            self.found.append((resource, input_items))


def _ids_in(text: bytes) -> Iterator[bytes]:
    """Return all ids in a JSON text, each with its closing quote. The cost does not depend on the number wanted."""
    field = text.find(_ID_FIELD)
    while field >= 0:
        start = field + len(_ID_FIELD)
        end = text.find(b'"', start)
        while end > 0 and text[end - 1 : end] == b"\\":
            end = text.find(b'"', end + 1)
        yield text[start : end + 1]
        field = text.find(_ID_FIELD, start)


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
_FIND_UNFINISHED_OF = f"SELECT id FROM responses WHERE caller_id = $1 AND {IS_UNFINISHED}"  # noqa: S608
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
    async def find_unfinished_of(self, db: Connection, caller_id: str) -> list[str]:
        """Return the ids of the unfinished responses of a caller, on any gateway."""
        return [row[0] for row in await db.fetch_rows(_FIND_UNFINISHED_OF, caller_id)]

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
