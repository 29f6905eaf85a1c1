"""Pending calls and their claims.

A call is claimed by one response (`claimed_by`). The claim ends with the gateway of the response (`gateway_id`), until
the response confirms it, before it starts a call. A confirmed claim outlives the response, however that ends, unless
the response releases it because the call was not started.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping

from holodeck.lib.record import record
from holodeck.storage.jobs import Connection, Storing, read, statement, transaction

# Paused responses that are returned for one call id. There may be several: some models repeat ids of calls.
MAX_PAUSED_RESPONSES = 8


@record
class PendingCall:
    """A call that waits, or waited, for an approval or for a client's output."""

    digest: bytes | None = None
    """A digest of the call, computed by the gateway. None for a call that was claimed before it was stored."""
    claimed_by: str | None = None
    """The response that has claimed it."""


_ADD = """
INSERT INTO pending_calls (caller_id, id, created_at, digest) VALUES ($1, $2, $3, $4)
ON CONFLICT (caller_id, id) DO NOTHING"""
_FIND = """
SELECT digest, CASE WHEN gateway_id IS NULL OR is_alive(gateway_id) THEN claimed_by END
FROM pending_calls WHERE caller_id = $1 AND id = $2"""
_LOCK = f"{_FIND} FOR UPDATE"
_CLAIM = "UPDATE pending_calls SET claimed_by = $3, gateway_id = $4 WHERE caller_id = $1 AND id = $2"
_CONFIRM = "UPDATE pending_calls SET gateway_id = NULL WHERE id = ANY($1) AND caller_id = $2 AND claimed_by = $3"
_RELEASE = "UPDATE pending_calls SET claimed_by = NULL WHERE caller_id = $1 AND id = $2 AND claimed_by = $3"
_RELEASE_ALL = "UPDATE pending_calls SET claimed_by = NULL WHERE caller_id = $1 AND claimed_by = $2"
_ADD_PAUSED = """
INSERT INTO paused_responses (caller_id, call_id, response_id, created_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (caller_id, call_id, response_id) DO NOTHING"""
_FIND_PAUSED = f"""
SELECT response_id FROM paused_responses WHERE caller_id = $1 AND call_id = $2
ORDER BY created_at DESC LIMIT {MAX_PAUSED_RESPONSES}"""  # noqa: S608 - a number of our own
DELETE_OLD_CALLS = "DELETE FROM pending_calls WHERE created_at < $1"
DELETE_OLD_PAUSED = "DELETE FROM paused_responses WHERE created_at < $1"


class PendingCalls(Storing):
    """The methods of the store about pending calls."""

    @transaction()
    async def add_pending_calls(
        self,
        db: Connection,
        caller_id: str,
        response_id: str,
        digests: Mapping[str, bytes],
        *,
        client_call_ids: Collection[str] = (),
    ) -> None:
        """Store pending calls by their ids. A call that is stored already is not changed.

        `client_call_ids`: the calls of the client's own tools, by which `find_paused_responses` finds the response.
        """
        now = time.time()
        calls = [(caller_id, call_id, now, digest) for call_id, digest in sorted(digests.items())]
        await db.write_many(_ADD, calls)
        await db.write_many(_ADD_PAUSED, [(caller_id, call_id, response_id, now) for call_id in client_call_ids])

    @read()
    async def read_pending_calls(self, db: Connection, caller_id: str, ids: Collection[str]) -> dict[str, PendingCall]:
        """Return the stored calls by id. An id without a stored call is not in the result."""
        return await _read_calls(db, _FIND, caller_id, ids)

    @transaction()
    async def claim_calls(
        self, db: Connection, caller_id: str, ids: Collection[str], response_id: str
    ) -> dict[str, str]:
        """Claim calls for a response, all or none. Empty on success: no other response can claim them then.

        Else the calls that are claimed already, each with the response that has claimed it. Idempotent.
        The claim ends with this gateway, until `confirm_claim`.
        """
        # Sorted, so that two claims of the same calls cannot deadlock.
        call_ids, now = sorted(ids), time.time()
        await db.write_many(_ADD, [(caller_id, call_id, now, None) for call_id in call_ids])
        found = await _read_calls(db, _LOCK, caller_id, call_ids)
        others = {
            call_id: call.claimed_by for call_id, call in found.items() if call.claimed_by not in (None, response_id)
        }
        if not others:
            await db.write_many(_CLAIM, [(caller_id, call_id, response_id, self.gateway_id) for call_id in call_ids])
        return others

    @statement()
    async def confirm_claim(self, db: Connection, caller_id: str, response_id: str, ids: Collection[str]) -> bool:
        """Make the claim of a response on calls outlive this gateway. False when it has not claimed all of them.

        Comes before the first of the calls is started. Idempotent.
        """
        return await db.write_counted(_CONFIRM, db.array(ids), caller_id, response_id) == len(set(ids))

    # No transaction: each call may be claimed again by itself.
    @statement()
    async def release_calls(
        self, db: Connection, caller_id: str, response_id: str, ids: Collection[str] | None = None
    ) -> None:
        """Release claims of a response on calls that it did not run; without `ids`, all of its claims."""
        if ids is None:
            await db.write(_RELEASE_ALL, caller_id, response_id)
        else:
            await db.write_many(_RELEASE, [(caller_id, call_id, response_id) for call_id in sorted(ids)])

    @read()
    async def find_paused_responses(self, db: Connection, caller_id: str, call_id: str) -> list[str]:
        """Return the responses that paused with this call of a client's tool, newest first."""
        return [row[0] for row in await db.fetch_rows(_FIND_PAUSED, caller_id, call_id)]


async def _read_calls(db: Connection, sql: str, caller_id: str, ids: Iterable[str]) -> dict[str, PendingCall]:
    rows = {call_id: await db.fetch_row(sql, caller_id, call_id) for call_id in ids}
    return {call_id: PendingCall(digest=row[0], claimed_by=row[1]) for call_id, row in rows.items() if row is not None}
