"""What both databases are asked about calls that wait for a person or a client: one response takes them, and no other.

A call that was taken stays taken, whatever becomes of the response, unless whoever took it says that it did not begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from holodeck.lib.limits import MAX_PAUSED_TURNS
from holodeck.storage.store import WaitingCall

REMEMBER = """
INSERT INTO waiting_calls (owner, id, created_at, digest) VALUES ($1, $2, $3, $4) ON CONFLICT (owner, id) DO NOTHING"""
FIND = "SELECT digest, taken_by FROM waiting_calls WHERE owner = $1 AND id = $2"
TAKE = "UPDATE waiting_calls SET taken_by = $3 WHERE owner = $1 AND id = $2"
RETURN = "UPDATE waiting_calls SET taken_by = NULL WHERE owner = $1 AND id = $2 AND taken_by = $3"
RETURN_ALL = "UPDATE waiting_calls SET taken_by = NULL WHERE owner = $1 AND taken_by = $2"
PAUSE = """
INSERT INTO paused_turns (owner, call_id, response_id, created_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (owner, call_id, response_id) DO NOTHING"""
PAUSED_IN = f"""
SELECT response_id FROM paused_turns WHERE owner = $1 AND call_id = $2
ORDER BY created_at DESC LIMIT {MAX_PAUSED_TURNS}"""  # noqa: S608 - a number of our own
FORGET = ("DELETE FROM waiting_calls WHERE created_at < $1", "DELETE FROM paused_turns WHERE created_at < $1")


def call_of(row: Sequence[Any]) -> WaitingCall:
    return WaitingCall(digest=row[0], taken_by=row[1])


def taken_by_others(found: Iterable[tuple[str, WaitingCall]], taker: str) -> dict[str, str]:
    """The calls that another response has, each with the id of that one."""
    return {call_id: call.taken_by for call_id, call in found if call.taken_by is not None and call.taken_by != taker}
