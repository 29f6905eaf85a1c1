"""Rows of responses and of their streams in a SQLite database.

Every function runs on the thread that owns the connection, inside the transaction that `worker.Worker` opens for a
writer, which is the only one that writes. A function raises `DamagedValueError` for a row that is not as it was
written. All rows are fetched before the first is decoded, as in `conversation_rows`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence

from holodeck.storage import items_by_id
from holodeck.storage.base import StoredResponse
from holodeck.storage.checked_values import decode_value, encode_optional, encode_value
from holodeck.storage.sql import conversations, in_progress
from holodeck.storage.sql import runs as run_sql
from holodeck.storage.sql.in_progress import IS_UNFINISHED, for_sqlite
from holodeck.storage.sql.response_values import COLUMN_NAMES, COLUMNS, response_of, values_of

_UPDATED_COLUMNS = ", ".join(f"{name} = excluded.{name}" for name in (*COLUMN_NAMES[1:], "keeper"))
_PLACEHOLDERS = ", ".join("?" * (len(COLUMN_NAMES) + 1))
INSERT_NEW = f"INSERT INTO responses ({COLUMNS}, keeper) VALUES ({_PLACEHOLDERS}) ON CONFLICT (id) DO NOTHING"  # noqa: S608
"""Inserts `values_of` a response, unless one of its id exists."""
_UPSERT = f"""
INSERT INTO responses ({COLUMNS}, keeper) VALUES ({_PLACEHOLDERS})
ON CONFLICT (id) DO UPDATE SET {_UPDATED_COLUMNS}"""  # noqa: S608
_INSERT_QUEUED = (
    f"INSERT INTO responses ({COLUMNS}, keeper, turn) VALUES ({_PLACEHOLDERS}, ?) ON CONFLICT (id) DO NOTHING"  # noqa: S608
)
STORE_RUN = run_sql.for_sqlite(run_sql.STORE_RUN)
"""Stores `run_sql.values_of` a run."""
_SELECT_RESPONSE = f"SELECT {COLUMNS} FROM responses WHERE id = ?"  # noqa: S608 - no values
_SELECT_TEXTS = "SELECT resource, input_items FROM responses WHERE id = ?"


def insert_response(db: sqlite3.Connection, record: StoredResponse, gateway_id: int) -> bool:
    """Insert a response and its run. False, and nothing is changed, if there is one of its id."""
    is_new = db.execute(INSERT_NEW, values_of(record, gateway_id)).rowcount > 0
    if is_new:
        store_run(db, record)
    return is_new


def store_run(db: sqlite3.Connection, record: StoredResponse) -> None:
    if record.run is not None:
        db.execute(STORE_RUN, run_sql.values_of(record.run))


def replace_response(db: sqlite3.Connection, record: StoredResponse, gateway_id: int) -> None:
    db.execute(_UPSERT, values_of(record, gateway_id))
    store_run(db, record)
    if in_progress.is_finished(record.status):
        db.execute(for_sqlite(in_progress.DELETE_CHUNKS), (record.id,))


def insert_within_quota(
    db: sqlite3.Connection, record: StoredResponse, gateway_id: int, *, quota: int, is_durable: bool
) -> int | None:
    queue_state = db.execute(for_sqlite(in_progress.READ_QUEUE_STATE), (record.owner, record.id)).fetchone()
    position = in_progress.next_queue_position(queue_state, quota)
    if position is not None:
        db.execute(_INSERT_QUEUED, (*values_of(record, gateway_id), position if is_durable else None))
        store_run(db, record)
    return position


def reserve_response(db: sqlite3.Connection, record: StoredResponse, gateway_id: int) -> None:
    db.execute(_INSERT_QUEUED, (*values_of(record, gateway_id), in_progress.RESERVED))
    store_run(db, record)


def finish_response(db: sqlite3.Connection, record: StoredResponse, gateway_id: int) -> bool:
    row = db.execute(for_sqlite(in_progress.GET_GATEWAY_ID), (record.id,)).fetchone()
    if row is None or row[0] != gateway_id:
        finished = (record.id, gateway_id, record.status, encode_value(record.resource))
        return db.execute(for_sqlite(in_progress.FIND_FINISHED), finished).fetchone() is not None
    db.execute(_UPSERT, values_of(record, gateway_id))
    store_run(db, record)
    db.execute(for_sqlite(in_progress.DELETE_CHUNKS), (record.id,))
    return True


def read_response(db: sqlite3.Connection, response_id: str, caller_id: str) -> StoredResponse | None:
    row = db.execute(f"{_SELECT_RESPONSE} AND owner = ?", (response_id, caller_id)).fetchone()
    return response_of(row) if row is not None else None


def delete_response(db: sqlite3.Connection, response_id: str, caller_id: str) -> bool:
    db.execute(for_sqlite(run_sql.DELETE_RUN), (response_id, caller_id))
    if not db.execute("DELETE FROM responses WHERE id = ? AND owner = ?", (response_id, caller_id)).rowcount:
        return False
    db.execute(for_sqlite(in_progress.DELETE_CHUNKS), (response_id,))
    return True


def read_context(db: sqlite3.Connection, response_id: str, caller_id: str, max_bytes: int) -> list[bytes]:
    rows = db.execute(for_sqlite(conversations.READ_CONTEXT), (response_id, caller_id, max_bytes)).fetchall()
    return [decode_value(items, each) for each, items in rows]


def find_responses_containing(
    db: sqlite3.Connection, ids: Collection[str], caller_id: str
) -> list[items_by_id.ResponseTexts]:
    search = items_by_id.ItemSearch(ids)
    sizes = db.execute(for_sqlite(items_by_id.READ_SIZES), (caller_id,)).fetchall()
    for response_id in items_by_id.choose_newest(sizes):
        texts = db.execute(_SELECT_TEXTS, (response_id,)).fetchone()
        if texts is not None:
            search.search_response(*(decode_value(text, response_id) for text in texts))
        if search.is_complete:
            break
    return search.found


def find_orphans(db: sqlite3.Connection, is_alive: Callable[[int], bool]) -> dict[str, int | None]:
    """The ids of unfinished responses whose gateway is not alive. `is_alive` is called once for each gateway."""
    found = db.execute(f"SELECT id, keeper FROM responses WHERE {IS_UNFINISHED}").fetchall()  # noqa: S608 - no values
    gateway_ids = {gateway_id for _, gateway_id in found}
    alive = {gateway_id for gateway_id in gateway_ids if gateway_id is not None and is_alive(gateway_id)}
    return {response_id: gateway_id for response_id, gateway_id in found if gateway_id not in alive}


def read_orphans(db: sqlite3.Connection, is_alive: Callable[[int], bool]) -> list[StoredResponse]:
    rows = (db.execute(_SELECT_RESPONSE, (response_id,)).fetchone() for response_id in find_orphans(db, is_alive))
    return [response_of(row) for row in rows if row is not None]


def append_events(
    db: sqlite3.Connection,
    gateway_id: int,
    response_id: str,
    first_number: int,
    events: Sequence[bytes],
    resource: bytes | None,
    status: str | None,
    trace: bytes | None,
) -> bool:
    """See `ResponseStore.append_events`."""
    row = db.execute(for_sqlite(in_progress.GET_GATEWAY_ID), (response_id,)).fetchone()
    if row is None:
        return False
    next_number = db.execute(for_sqlite(in_progress.NEXT_EVENT_NUMBER), (response_id,)).fetchone()
    end = next_number[0] if next_number is not None else 0
    if first_number < end and row[0] == gateway_id:
        rows = db.execute(for_sqlite(in_progress.CHUNKS_FROM), (response_id, first_number)).fetchall()
        chunks = in_progress.decode_chunks(rows, response_id)
        unstored = in_progress.find_unstored(events, in_progress.events_after(first_number - 1, chunks))
        if unstored is None:
            return False
        events = unstored
    elif first_number != end:
        return False
    if events:
        chunk = (response_id, end, len(events), in_progress.encode_events(events))
        db.execute(for_sqlite(in_progress.ADD_CHUNK), chunk)
    if (row[0], resource, status) != (gateway_id, None, None):
        changes = (encode_optional(resource), status, gateway_id, encode_optional(trace))
        db.execute(for_sqlite(in_progress.UPDATE_UNFINISHED), (response_id, *changes))
    if status is not None:
        db.execute(for_sqlite(run_sql.SET_STATUS), (response_id, status))
    return True


def read_chunks(
    db: sqlite3.Connection, response_id: str, caller_id: str, first_number: int
) -> list[tuple[int | None, bytes | None]]:
    """The chunks from the one with this event number on. Empty when there is no such response."""
    rows = db.execute(for_sqlite(in_progress.READ_CHUNKS), (response_id, caller_id, first_number)).fetchall()
    return in_progress.decode_chunks(rows, response_id)
