"""Responses in the making in a SQLite file: which have lost their keeper, and how their streams grow."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from holodeck.storage import unfinished
from holodeck.storage.unfinished import IS_UNFINISHED, for_sqlite


def orphans(db: sqlite3.Connection, is_there: Callable[[int], bool]) -> dict[str, int | None]:
    """Those whose keeper is gone; each keeper is looked for once."""
    found = db.execute(f"SELECT id, keeper FROM responses WHERE {IS_UNFINISHED}").fetchall()  # noqa: S608 - our own
    alive = {keeper for keeper in {keeper for _, keeper in found} if keeper is not None and is_there(keeper)}
    return {response_id: keeper for response_id, keeper in found if keeper not in alive}


def grow(
    db: sqlite3.Connection,
    keeper: int,
    response_id: str,
    first: int,
    events: Sequence[bytes],
    resource: bytes | None,
    status: str | None,
) -> bool:
    """See `ResponseStore.grow`. The transaction around it is the only one that writes."""
    row = db.execute(for_sqlite(unfinished.KEEPER), (response_id,)).fetchone()
    if row is None:
        return False
    chunk = (response_id, first, len(events), unfinished.joined(events))
    end = db.execute(for_sqlite(unfinished.END), (response_id,)).fetchone()
    if first != (end[0] if end is not None else 0):
        is_repeated = db.execute(for_sqlite(unfinished.CHUNK), chunk).fetchone() is not None
        return row[0] == keeper and is_repeated
    if events:
        db.execute(for_sqlite(unfinished.ADD_CHUNK), chunk)
    if (row[0], resource, status) != (keeper, None, None):
        db.execute(for_sqlite(unfinished.UPDATE), (response_id, resource, status, keeper))
    return True
