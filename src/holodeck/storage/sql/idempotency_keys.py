"""SQL statements about idempotency keys that both databases share; `in_progress.for_sqlite` converts them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from holodeck.storage.idempotency_keys import KEY_SECONDS, IdempotencyKey

_HAS_RESPONSE = "EXISTS (SELECT 1 FROM responses WHERE responses.id = idempotency_keys.response_id)"
FIND_KEY = f"""
SELECT owner, key, digest, response_id FROM idempotency_keys
WHERE owner = $1 AND key = $2 AND created_at > $3 AND {_HAS_RESPONSE}"""  # noqa: S608 - no values, as below
CLAIM_KEY = f"""
INSERT INTO idempotency_keys (owner, key, digest, response_id, created_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (owner, key) DO UPDATE SET
    digest = excluded.digest, response_id = excluded.response_id, created_at = excluded.created_at
WHERE idempotency_keys.created_at <= $6 OR NOT {_HAS_RESPONSE}"""  # noqa: S608
RELEASE_KEY = "DELETE FROM idempotency_keys WHERE owner = $1 AND key = $2 AND response_id = $3"
DELETE_EXPIRED = "DELETE FROM idempotency_keys WHERE created_at <= $1"


def oldest_time() -> float:
    """The time before which keys are free."""
    return time.time() - KEY_SECONDS


def values_of(key: IdempotencyKey) -> tuple[object, ...]:
    """The values of `CLAIM_KEY`."""
    return key.owner, key.value, key.digest, key.response_id, time.time(), oldest_time()


def key_of(row: Sequence[Any]) -> IdempotencyKey:
    """The key in a row of `FIND_KEY`."""
    owner, value, digest, response_id = row
    return IdempotencyKey(owner=owner, value=value, digest=digest, response_id=response_id)
