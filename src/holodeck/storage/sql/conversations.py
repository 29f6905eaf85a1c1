"""SQL statements about conversations that both databases share, and the rules of the lease.

The statements have PostgreSQL's numbered parameters; `in_progress.for_sqlite` converts them. The lease is stored in
the row of the conversation: the response that holds it (`taken_by`) and the gateway of that response (`keeper`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from holodeck.lib.limits import MAX_CONTEXT_DEPTH
from holodeck.storage.base import Conversation, ConversationContents, ConversationItem, Order
from holodeck.storage.checked_values import CHECK_BYTES, decode_optional, decode_value, encode_optional, encode_value

GET_LIST_POSITION = "SELECT created_at, id FROM conversations WHERE id = $1 AND owner = $2"
"""The position of a conversation among those of its caller: see `page_query`."""
GET_LEASE = "SELECT waiting, taken_by FROM conversations WHERE id = $1 AND owner = $2"
GET_LAST_POSITION = "SELECT COALESCE(MAX(position), 0) FROM conversation_items WHERE conversation_id = $1"
LEASE_CONVERSATION = "UPDATE conversations SET taken_by = $2, keeper = $3 WHERE id = $1"
RELEASE_CONVERSATION = (
    "UPDATE conversations SET taken_by = NULL, keeper = NULL WHERE id = $1 AND owner = $2 AND taken_by = $3"
)
READ_CONTEXT = f"""
WITH RECURSIVE chain (id, previous_id, depth, bytes) AS (
    SELECT id, previous_id, 0, CAST(length(items) - {CHECK_BYTES} AS BIGINT) FROM responses WHERE id = $1 AND owner = $2
    UNION ALL
    SELECT r.id, r.previous_id, chain.depth + 1, chain.bytes + length(r.items) - {CHECK_BYTES}
    FROM responses r JOIN chain ON r.id = chain.previous_id
    WHERE r.owner = $2 AND chain.depth < {MAX_CONTEXT_DEPTH} AND chain.bytes <= $3)
SELECT r.id, r.items FROM chain JOIN responses r ON r.id = chain.id ORDER BY chain.depth DESC"""  # noqa: S608
"""The ids and items of a response and its predecessors. The recursion sums sizes: no bytes over the limit are read."""
STORE_PENDING_CALLS = "UPDATE conversations SET waiting = $2, taken_by = NULL, keeper = NULL WHERE id = $1"


def positions_query(limit: str, max_bytes: str, *, where: str = "", direction: str = "ASC") -> str:
    """Query for the positions of the first items of conversation $1, up to a number and a sum of bytes.

    The item that makes the sum exceed the limit is the last one. `limit` and `max_bytes` are the two parameters, such
    as `$2`.
    """
    sizes = f"""
SELECT position, length(data) - {CHECK_BYTES} AS size FROM conversation_items WHERE conversation_id = $1{where}
ORDER BY position {direction} LIMIT {limit}"""  # noqa: S608 - names of our own
    before = f"SUM(size) OVER (ORDER BY position {direction}) - size"
    return f"""
SELECT position FROM (SELECT position, {before} AS before FROM ({sizes}) AS s) AS b
WHERE before <= {max_bytes}"""  # noqa: S608


def items_query(order: Order, *, is_after: bool) -> str:
    """Query for items of conversation $1 in this order, up to $2 items and $3 bytes: see `positions_query`.

    `is_after`: only items behind the one with id $4.
    """
    direction, where = ("ASC" if order == "asc" else "DESC"), ""
    if is_after:
        compare = ">" if order == "asc" else "<"
        start = "SELECT position FROM conversation_items WHERE conversation_id = $1 AND id = $4"
        where = f" AND position {compare} ({start})"
    positions = positions_query("$2", "$3", where=where, direction=direction)
    return f"""
SELECT id, data FROM conversation_items WHERE conversation_id = $1 AND position IN ({positions})
ORDER BY position {direction}"""  # noqa: S608 - names of our own


def page_query(order: Order, *, is_after: bool) -> str:
    """Query for up to $2 conversations of caller $1 in this order, by creation and then by id.

    `is_after`: only conversations behind the position ($3, $4), the row of `GET_LIST_POSITION`.
    """
    direction, compare = ("ASC", ">") if order == "asc" else ("DESC", "<")
    where = f" AND (created_at, id) {compare} ($3, $4)" if is_after else ""
    return f"""
SELECT id, owner, created_at, metadata FROM conversations WHERE owner = $1{where}
ORDER BY created_at {direction}, id {direction} LIMIT $2"""  # noqa: S608 - names of our own


def conversation_query(is_alive: str) -> str:
    """Query for the state of a conversation in the first row, then its items.

    It is one statement, so that all rows are of the same snapshot. `is_alive` is an SQL expression: whether the
    gateway in the column `keeper` is alive.
    """
    return f"""
SELECT 0 AS position, '' AS id, waiting AS data, taken_by, keeper,
    CASE WHEN taken_by IS NULL THEN FALSE ELSE {is_alive} END AS is_there
FROM conversations WHERE id = $1 AND owner = $2
UNION ALL
SELECT position, id, data, NULL, NULL, FALSE FROM conversation_items
WHERE conversation_id = $1 AND position IN ({positions_query("$3", "$4")})
ORDER BY position"""  # noqa: S608 - names of our own


def values_of(conversation: Conversation) -> tuple[object, ...]:
    """The values of a new row: id, owner, time and metadata."""
    return conversation.id, conversation.owner, conversation.created_at, encode_value(conversation.metadata)


def listed_of(row: Sequence[Any]) -> Conversation:
    """The conversation of a row of id, owner, time and metadata."""
    return Conversation(id=row[0], owner=row[1], created_at=row[2], metadata=decode_value(row[3], row[0]))


def item_of(row: Sequence[Any]) -> ConversationItem:
    """The item of a row of id and data."""
    return ConversationItem(id=row[0], data=decode_value(row[1], row[0]))


def conversation_of(
    rows: Iterable[Sequence[Any]], conversation_id: str, gateway_id: int
) -> ConversationContents | None:
    """The contents from the rows of `conversation_query`. None when the caller has no such conversation."""
    found = list(rows)
    if not found or found[0][0] != 0:
        return None
    _, _, pending_calls, leased_by, leaseholder_gateway, is_alive = found[0]
    return ConversationContents(
        items=tuple(item_of(row[1:3]) for row in found[1:]),
        last_position=found[-1][0],
        pending_calls=decode_optional(pending_calls, conversation_id),
        leased_by=leased_by,
        is_leased_here=leased_by is not None and leaseholder_gateway == gateway_id,
        is_leaseholder_alive=bool(is_alive),
    )


def may_lease(lease: Sequence[Any] | None, end: int, expected: ConversationContents, response_id: str) -> bool:
    """Whether a response may lease a conversation: it has the lease already, or nothing has changed since `expected`.

    `lease` is the row of `GET_LEASE`, `end` the position of `GET_LAST_POSITION`.
    """
    if lease is None:
        return False
    pending_calls, leased_by = lease
    return leased_by == response_id or (
        (pending_calls, leased_by, end)
        == (encode_optional(expected.pending_calls), expected.leased_by, expected.last_position)
    )


def may_store_pending_calls(lease: Sequence[Any] | None, response_id: str | None, pending_calls: bytes | None) -> bool:
    """Whether `STORE_PENDING_CALLS` applies to the items of a response.

    A response that holds the lease replaces the pending calls, also by none; another one only by calls of its own.
    """
    return lease is not None and response_id is not None and (pending_calls is not None or lease[1] == response_id)
