"""Keys of callers that are made while gateways run, shared by all gateways of a database.

Each change of a key has the next number, which the one row of `caller_key_changes` has. A gateway that knows the keys
as of one number compares it, and reads what has changed since. Changes are serialized by the lock of that row, so that
a reader that sees a number also sees all changes up to it. A revoked key stays without its entry until every gateway
has learned of it.

The entry of a key is that of `keys` in a gateway file, as JSON, with hashes only. `caller_uses` has when callers were
last seen, to the minute.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from holodeck.lib.limits import DAY
from holodeck.lib.record import record
from holodeck.storage.jobs import Connection, Row, Storing, decode_optional, encode_value, read, transaction

# Seconds after which a revoked key is deleted. A gateway that was cut off for half as long reads all keys again.
REVOKED_SECONDS = DAY
# Seconds for which the last use of a caller is stored.
USE_SECONDS = 800 * DAY


@record
class StoredKey:
    """A key in the store, or the trace of one that was revoked."""

    name: str
    change: int
    """The number of its last change."""
    entry: bytes | None
    """Its entry, as JSON. None: it is revoked."""
    made_at: float
    made_by: str
    """The id of the caller that has made it."""


_COLUMNS = "name, change_number, entry, made_at, made_by"
NEXT_NUMBER = """
INSERT INTO caller_key_changes (id, number) VALUES (1, 1)
ON CONFLICT (id) DO UPDATE SET number = caller_key_changes.number + 1"""
_READ_NUMBER = "SELECT number FROM caller_key_changes WHERE id = 1"
_READ_CHANGED = f"SELECT {_COLUMNS} FROM caller_keys WHERE change_number > $1 ORDER BY change_number"  # noqa: S608
_READ_KEY = f"SELECT {_COLUMNS} FROM caller_keys WHERE name = $1 AND entry IS NOT NULL"  # noqa: S608
_ADD = f"""
INSERT INTO caller_keys ({_COLUMNS}, changed_at) VALUES ($1, $2, $3, $4, $5, $4)
ON CONFLICT (name) DO UPDATE SET change_number = excluded.change_number, entry = excluded.entry,
    made_at = excluded.made_at, made_by = excluded.made_by, changed_at = excluded.changed_at
WHERE caller_keys.entry IS NULL"""  # noqa: S608
_CHANGE = """
UPDATE caller_keys SET entry = $4, change_number = $3, changed_at = $5
WHERE name = $1 AND change_number = $2 AND entry IS NOT NULL"""
_HAS_KEYS = "SELECT 1 FROM caller_keys WHERE entry IS NOT NULL LIMIT 1"
_RECORD_USE = """
INSERT INTO caller_uses (caller_id, used_at) VALUES ($1, $2)
ON CONFLICT (caller_id) DO UPDATE SET used_at = excluded.used_at WHERE caller_uses.used_at < excluded.used_at"""
_READ_USES = "SELECT caller_id, used_at FROM caller_uses WHERE caller_id = ANY($1)"
_ERASE_USE = "DELETE FROM caller_uses WHERE caller_id = $1"
_DELETE_REVOKED = "DELETE FROM caller_keys WHERE entry IS NULL AND changed_at < $1"
_DELETE_USES = "DELETE FROM caller_uses WHERE used_at < $1"


class CallerKeyStore(Storing):
    """Stores keys of callers, and when callers were last seen."""

    @read()
    async def read_change_number(self, db: Connection) -> int:
        """Return the number of the last change. 0: there was none."""
        return await read_number(db)

    @read()
    async def read_changed(self, db: Connection, since: int) -> list[StoredKey]:
        """Return the keys that changed after a change, revoked ones included, in the order of the changes."""
        return [_key_of(row) for row in await db.fetch_rows(_READ_CHANGED, since)]

    @read()
    async def get_key(self, db: Connection, name: str) -> StoredKey | None:
        row = await db.fetch_row(_READ_KEY, name)
        return None if row is None else _key_of(row)

    @read()
    async def has_keys(self, db: Connection) -> bool:
        """Return whether there is a key that is not revoked."""
        return await db.fetch_row(_HAS_KEYS) is not None

    # Changes are not repeatable: the second attempt would find what the first has done, and report it as a conflict.
    @transaction(is_repeatable=False)
    async def add_key(self, db: Connection, name: str, entry: bytes, made_by: str) -> bool:
        """Store a new key. False, and nothing is changed, if there is one of this name."""
        await db.write(NEXT_NUMBER)
        number = await read_number(db)
        return await db.write_counted(_ADD, name, number, encode_value(entry), time.time(), made_by) > 0

    @transaction(is_repeatable=False)
    async def change_key(self, db: Connection, name: str, change: int, entry: bytes | None) -> bool:
        """Replace the entry of a key whose last change is `change`; None revokes it.

        Returns False, and changes nothing, if it was changed since, or revoked.
        """
        await db.write(NEXT_NUMBER)
        number = await read_number(db)
        encoded = None if entry is None else encode_value(entry)
        return await db.write_counted(_CHANGE, name, change, number, encoded, time.time()) > 0

    @transaction()
    async def record_uses(self, db: Connection, caller_ids: Collection[str], used_at: float) -> None:
        """Store that callers were seen at a time. Idempotent."""
        # In one order in every gateway: two that store the same callers would otherwise wait for each other.
        await db.write_many(_RECORD_USE, [(caller_id, used_at) for caller_id in sorted(caller_ids)])

    @read()
    async def read_uses(self, db: Connection, caller_ids: Collection[str]) -> Mapping[str, float]:
        """Return when callers were last seen, in seconds since 1970, of those that were."""
        return {row[0]: row[1] for row in await db.fetch_rows(_READ_USES, db.array(caller_ids))}

    @transaction()
    async def erase_caller(self, db: Connection, caller_id: str) -> None:
        """Delete when a caller was last seen. Its key stays."""
        await db.write(_ERASE_USE, caller_id)

    @transaction()
    async def delete_old(self, db: Connection) -> None:
        """Delete what no gateway needs any more: revoked keys, and uses of long ago."""
        await db.write(_DELETE_REVOKED, time.time() - REVOKED_SECONDS)
        await db.write(_DELETE_USES, time.time() - USE_SECONDS)


async def read_number(db: Connection) -> int:
    """Return the number of the last change, in a job."""
    row = await db.fetch_row(_READ_NUMBER)
    return 0 if row is None else int(row[0])


def _key_of(row: Row) -> StoredKey:
    name, change, entry, made_at, made_by = row
    return StoredKey(
        name=name, change=change, entry=decode_optional(entry, f"key {name}"), made_at=made_at, made_by=made_by
    )
