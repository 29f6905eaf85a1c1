"""What both databases are asked about a conversation: its items, calls that wait in it, and who has taken them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from holodeck.lib.limits import MAX_CONTEXT_DEPTH
from holodeck.storage.base import ConversationContents, ConversationItem, Order

GET_LEASE = "SELECT waiting, taken_by FROM conversations WHERE id = $1 AND owner = $2"
GET_LAST_POSITION = "SELECT COALESCE(MAX(position), 0) FROM conversation_items WHERE conversation_id = $1"
LEASE_CONVERSATION = "UPDATE conversations SET taken_by = $2, keeper = $3 WHERE id = $1"
RELEASE_CONVERSATION = (
    "UPDATE conversations SET taken_by = NULL, keeper = NULL WHERE id = $1 AND owner = $2 AND taken_by = $3"
)
READ_CONTEXT = f"""
WITH RECURSIVE chain (id, previous_id, depth, bytes) AS (
    SELECT id, previous_id, 0, CAST(length(items) AS BIGINT) FROM responses WHERE id = $1 AND owner = $2
    UNION ALL
    SELECT r.id, r.previous_id, chain.depth + 1, chain.bytes + length(r.items)
    FROM responses r JOIN chain ON r.id = chain.previous_id
    WHERE r.owner = $2 AND chain.depth < {MAX_CONTEXT_DEPTH} AND chain.bytes <= $3)
SELECT r.items FROM chain JOIN responses r ON r.id = chain.id ORDER BY chain.depth DESC"""  # noqa: S608
"""Sizes first: what is too much is not read."""
STORE_PENDING_CALLS = "UPDATE conversations SET waiting = $2, taken_by = NULL, keeper = NULL WHERE id = $1"


def positions_query(limit: str, max_bytes: str, *, where: str = "", direction: str = "ASC") -> str:
    """The places of so many items of conversation $1, and of none behind the first that makes them too many bytes.

    `limit` and `max_bytes` are what stands for the two numbers.
    """
    sizes = f"""
SELECT position, length(data) AS size FROM conversation_items WHERE conversation_id = $1{where}
ORDER BY position {direction} LIMIT {limit}"""  # noqa: S608 - names of our own
    before = f"SUM(size) OVER (ORDER BY position {direction}) - size"
    return f"""
SELECT position FROM (SELECT position, {before} AS before FROM ({sizes}) AS s) AS b
WHERE before <= {max_bytes}"""  # noqa: S608


def items_query(order: Order, *, is_after: bool) -> str:
    """Items of conversation $1 in this order: $2 of them, $3 bytes. See `positions_query`. `is_after`:
    behind that of id $4.
    """
    direction, where = ("ASC" if order == "asc" else "DESC"), ""
    if is_after:
        compare = ">" if order == "asc" else "<"
        place = "SELECT position FROM conversation_items WHERE conversation_id = $1 AND id = $4"
        where = f" AND position {compare} ({place})"
    wanted = positions_query("$2", "$3", where=where, direction=direction)
    return f"""
SELECT id, data FROM conversation_items WHERE conversation_id = $1 AND position IN ({wanted})
ORDER BY position {direction}"""  # noqa: S608 - names of our own


def conversation_query(is_alive: str) -> str:
    """The state of a conversation in the first row, then its items: one statement, so all of the same moment.

    `is_alive` says of a row whether its `gateway_id` is alive.
    """
    return f"""
SELECT 0 AS position, '' AS id, waiting AS data, taken_by, keeper,
    CASE WHEN taken_by IS NULL THEN FALSE ELSE {is_alive} END AS is_there
FROM conversations WHERE id = $1 AND owner = $2
UNION ALL
SELECT position, id, data, NULL, NULL, FALSE FROM conversation_items
WHERE conversation_id = $1 AND position IN ({positions_query("$3", "$4")})
ORDER BY position"""  # noqa: S608 - names of our own


def conversation_of(rows: Iterable[Sequence[Any]], gateway_id: int) -> ConversationContents | None:
    """None: the conversation is not there, or another's."""
    found = list(rows)
    if not found or found[0][0] != 0:
        return None
    _, _, waiting, taken_by, taker, is_there = found[0]
    return ConversationContents(
        items=tuple(ConversationItem(id=row[1], data=row[2]) for row in found[1:]),
        last_position=found[-1][0],
        pending_calls=waiting,
        leased_by=taken_by,
        is_leased_here=taken_by is not None and taker == gateway_id,
        is_leaseholder_alive=bool(is_there),
    )


def may_lease(lease: Sequence[Any] | None, end: int, expected: ConversationContents, response_id: str) -> bool:
    """Whether a conversation still is as it was seen, and nobody else has taken what waits in it."""
    if lease is None:
        return False
    waiting, taken_by = lease
    return taken_by == response_id or (
        (waiting, taken_by, end) == (expected.pending_calls, expected.leased_by, expected.last_position)
    )


def may_store_pending_calls(lease: Sequence[Any] | None, response_id: str | None, pending_calls: bytes | None) -> bool:
    """A response that has taken what waited leaves what waits now; one that has not leaves only calls of its own."""
    return lease is not None and response_id is not None and (pending_calls is not None or lease[1] == response_id)
