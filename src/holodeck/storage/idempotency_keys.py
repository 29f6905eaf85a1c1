"""Keys by which clients repeat a request without repeating what it did; and the interface of their storage."""

from __future__ import annotations

from typing import Protocol

from holodeck.lib.limits import DAY
from holodeck.lib.record import record

KEY_SECONDS = DAY
"""Seconds for which a key is remembered."""


@record
class IdempotencyKey:
    """The key of a caller, the request that it was first sent with, and the response to that."""

    owner: str
    value: str
    digest: bytes
    """Of the body of the request, computed by the gateway."""
    response_id: str = ""
    """Empty for a key that is looked for."""


class IdempotencyKeyStore(Protocol):
    """Stores keys. Every failure is a `StorageError`.

    A key is free again after `KEY_SECONDS`, and when its response is deleted.
    """

    async def find_key(self, owner: str, value: str) -> IdempotencyKey | None: ...

    async def claim_key(self, key: IdempotencyKey) -> IdempotencyKey:
        """Store a key if it is free, and return what is stored then: another response may have it. Idempotent.

        The response of the key is stored already.
        """
        ...

    async def release_key(self, owner: str, value: str, response_id: str) -> None:
        """Make a key free that this response has."""
        ...
