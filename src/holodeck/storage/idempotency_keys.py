"""Keys by which clients repeat a request without repeating what it did."""

from __future__ import annotations

import time

from holodeck.lib.limits import DAY
from holodeck.lib.record import record
from holodeck.storage.jobs import Connection, Storing, read, statement, transaction

KEY_SECONDS = DAY
"""Seconds for which a key is remembered."""


@record
class IdempotencyKey:
    """The key of a caller, the request that it was first sent with, and the response to that."""

    caller_id: str
    value: str
    digest: bytes
    """Of the body of the request, computed by the gateway."""
    response_id: str = ""
    """Empty for a key that is looked for."""


_HAS_RESPONSE = "EXISTS (SELECT 1 FROM responses WHERE responses.id = idempotency_keys.response_id)"
_FIND = f"""
SELECT digest, response_id FROM idempotency_keys
WHERE caller_id = $1 AND key = $2 AND created_at > $3 AND {_HAS_RESPONSE}"""  # noqa: S608 - no values, as below
_CLAIM = f"""
INSERT INTO idempotency_keys (caller_id, key, digest, response_id, created_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (caller_id, key) DO UPDATE SET
    digest = excluded.digest, response_id = excluded.response_id, created_at = excluded.created_at
WHERE idempotency_keys.created_at <= $6 OR NOT {_HAS_RESPONSE}"""  # noqa: S608
_RELEASE = "DELETE FROM idempotency_keys WHERE caller_id = $1 AND key = $2 AND response_id = $3"
_ERASE = "DELETE FROM idempotency_keys WHERE caller_id = $1"
DELETE_EXPIRED_KEYS = "DELETE FROM idempotency_keys WHERE created_at <= $1"


def oldest_key_time() -> float:
    """Return the time before which keys are free."""
    return time.time() - KEY_SECONDS


class IdempotencyKeyStore(Storing):
    """Stores keys. A key is free again after `KEY_SECONDS`, and when its response is deleted."""

    @read()
    async def find_key(self, db: Connection, caller_id: str, value: str) -> IdempotencyKey | None:
        return await _find_key(db, caller_id, value)

    @transaction()
    async def claim_key(self, db: Connection, key: IdempotencyKey) -> IdempotencyKey:
        """Store a key if it is free, and return what is stored then: another response may have it. Idempotent.

        The response of the key is stored already.
        """
        times = (time.time(), oldest_key_time())
        await db.write(_CLAIM, key.caller_id, key.value, key.digest, key.response_id, *times)
        return await _find_key(db, key.caller_id, key.value) or key

    @statement()
    async def erase_caller(self, db: Connection, caller_id: str) -> None:
        """Delete the keys of a caller."""
        await db.write(_ERASE, caller_id)

    @statement()
    async def release_key(self, db: Connection, caller_id: str, value: str, response_id: str) -> None:
        """Make a key free that this response has."""
        await db.write(_RELEASE, caller_id, value, response_id)


async def _find_key(db: Connection, caller_id: str, value: str) -> IdempotencyKey | None:
    row = await db.fetch_row(_FIND, caller_id, value, oldest_key_time())
    return None if row is None else IdempotencyKey(caller_id=caller_id, value=value, digest=row[0], response_id=row[1])
