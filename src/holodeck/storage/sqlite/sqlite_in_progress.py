"""Responses in the making in a SQLite file: which have lost their keeper, and how their streams grow."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from holodeck.storage.sql import in_progress
from holodeck.storage.sql.in_progress import IS_UNFINISHED, for_sqlite


def find_orphans(db: sqlite3.Connection, is_alive: Callable[[int], bool]) -> dict[str, int | None]:
    """Those whose keeper is gone; each keeper is looked for once."""
    found = db.execute(f"SELECT id, keeper FROM responses WHERE {IS_UNFINISHED}").fetchall()  # noqa: S608 - our own
    alive = {keeper for keeper in {keeper for _, keeper in found} if keeper is not None and is_alive(keeper)}
    return {response_id: keeper for response_id, keeper in found if keeper not in alive}


def append_events(
    db: sqlite3.Connection,
    gateway_id: int,
    response_id: str,
    first_number: int,
    events: Sequence[bytes],
    resource: bytes | None,
    status: str | None,
) -> bool:
    """See `ResponseStore.append_events`. The transaction around it is the only one that writes."""
    row = db.execute(for_sqlite(in_progress.GET_GATEWAY_ID), (response_id,)).fetchone()
    if row is None:
        return False
    chunk = (response_id, first_number, len(events), in_progress.join_events(events))
    end = db.execute(for_sqlite(in_progress.NEXT_EVENT_NUMBER), (response_id,)).fetchone()
    if first_number != (end[0] if end is not None else 0):
        is_repeated = db.execute(for_sqlite(in_progress.FIND_CHUNK), chunk).fetchone() is not None
        return row[0] == gateway_id and is_repeated
    if events:
        db.execute(for_sqlite(in_progress.ADD_CHUNK), chunk)
    if (row[0], resource, status) != (gateway_id, None, None):
        db.execute(for_sqlite(in_progress.UPDATE_UNFINISHED), (response_id, resource, status, gateway_id))
    return True
