"""SQL statements about pending calls and their claims that both databases share.

A call is claimed by one response (`taken_by`). The claim outlives the response, however that ends, unless the response
releases it because the call was not started.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from holodeck.storage.base import PendingCall

# Paused responses that are returned for one call id. There may be several: some models repeat ids of calls.
MAX_PAUSED_TURNS = 8

ADD_PENDING_CALL = """
INSERT INTO waiting_calls (owner, id, created_at, digest) VALUES ($1, $2, $3, $4) ON CONFLICT (owner, id) DO NOTHING"""
FIND_PENDING_CALL = "SELECT digest, taken_by FROM waiting_calls WHERE owner = $1 AND id = $2"
CLAIM_CALL = "UPDATE waiting_calls SET taken_by = $3 WHERE owner = $1 AND id = $2"
RELEASE_CALL = "UPDATE waiting_calls SET taken_by = NULL WHERE owner = $1 AND id = $2 AND taken_by = $3"
RELEASE_ALL_CALLS = "UPDATE waiting_calls SET taken_by = NULL WHERE owner = $1 AND taken_by = $2"
ADD_PAUSED_TURN = """
INSERT INTO paused_turns (owner, call_id, response_id, created_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (owner, call_id, response_id) DO NOTHING"""
FIND_PAUSED_RESPONSES = f"""
SELECT response_id FROM paused_turns WHERE owner = $1 AND call_id = $2
ORDER BY created_at DESC LIMIT {MAX_PAUSED_TURNS}"""  # noqa: S608 - a number of our own
DELETE_OLD_CALLS = ("DELETE FROM waiting_calls WHERE created_at < $1", "DELETE FROM paused_turns WHERE created_at < $1")


def pending_call_of(row: Sequence[Any]) -> PendingCall:
    return PendingCall(digest=row[0], claimed_by=row[1])


def claims_of_others(found: Iterable[tuple[str, PendingCall]], response_id: str) -> dict[str, str]:
    """The calls that another response has claimed, each with the id of that response."""
    return {
        call_id: call.claimed_by
        for call_id, call in found
        if call.claimed_by is not None and call.claimed_by != response_id
    }
