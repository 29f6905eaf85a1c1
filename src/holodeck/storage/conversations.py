"""Conversations with their items, pending calls and leases.

The lease is stored in the row of the conversation: the response that holds it (`leased_by`) and the gateway of that
response (`gateway_id`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from holodeck.lib.limits import DEFAULT_CONTEXT_BYTES
from holodeck.lib.record import record
from holodeck.storage.jobs import (
    CHECK_BYTES,
    Connection,
    Row,
    Storing,
    decode_optional,
    decode_value,
    encode_optional,
    encode_value,
    read,
    statement,
    transaction,
)

Order = Literal["asc", "desc"]


@record
class Conversation:
    """A conversation that clients add items to."""

    id: str
    caller_id: str
    created_at: float
    metadata: bytes = b"{}"


@record
class ConversationItem:
    """One item of a conversation. `data` is its wire form as JSON, encoded by the gateway."""

    id: str
    data: bytes


@record
class ConversationContents:
    """A consistent snapshot of a conversation: items, pending calls and lease."""

    items: Sequence[ConversationItem] = ()
    last_position: int = 0
    """The position of the last item that was read."""
    pending_calls: bytes | None = None
    """Calls that wait for the client or for an approval; JSON, encoded by the gateway."""
    leased_by: str | None = None
    """The response that holds the lease. It may be an orphan: see `is_leaseholder_alive`."""
    is_leased_here: bool = False
    """True when the response that holds the lease belongs to this gateway."""
    is_leaseholder_alive: bool = False
    """True when the gateway of the response that holds the lease is alive."""


_INSERT = "INSERT INTO conversations (id, caller_id, created_at, metadata) VALUES ($1, $2, $3, $4)"
_GET = "SELECT id, caller_id, created_at, metadata FROM conversations WHERE id = $1 AND caller_id = $2"
_UPDATE = "UPDATE conversations SET metadata = $3 WHERE id = $1 AND caller_id = $2"
_DELETE = "DELETE FROM conversations WHERE id = $1 AND caller_id = $2"
_FIND = "SELECT 1 FROM conversations WHERE id = $1 AND caller_id = $2"
_GET_LIST_POSITION = "SELECT created_at, id FROM conversations WHERE id = $1 AND caller_id = $2"
"""The position of a conversation among those of its caller: see `_page_query`."""
# Locked, so that two gateways do not use the same positions, and a later statement sees what another has just added.
_LOCK_LEASE = "SELECT pending_calls, leased_by FROM conversations WHERE id = $1 AND caller_id = $2 FOR UPDATE"
_GET_LAST_POSITION = "SELECT COALESCE(MAX(position), 0) FROM conversation_items WHERE conversation_id = $1"
_LEASE = "UPDATE conversations SET leased_by = $2, gateway_id = $3 WHERE id = $1"
_RELEASE = (
    "UPDATE conversations SET leased_by = NULL, gateway_id = NULL WHERE id = $1 AND caller_id = $2 AND leased_by = $3"
)
_STORE_PENDING_CALLS = "UPDATE conversations SET pending_calls = $2, leased_by = NULL, gateway_id = NULL WHERE id = $1"
_INSERT_ITEM = """
INSERT INTO conversation_items (conversation_id, position, id, data) VALUES ($1, $2, $3, $4)
ON CONFLICT (conversation_id, id) DO NOTHING"""
_IS_ITEM = f"conversation_id = $1 AND id = $3 AND EXISTS ({_FIND})"
_GET_ITEM = f"SELECT id, data FROM conversation_items WHERE {_IS_ITEM}"  # noqa: S608 - no values, as below
_DELETE_ITEM = f"DELETE FROM conversation_items WHERE {_IS_ITEM}"  # noqa: S608
# SQLite reads a CROSS JOIN from left to right: otherwise it goes through all conversations of the caller, which an
# index has in this order, and looks for the item in each of them.
_FIND_ITEM = """
SELECT i.id, i.data FROM conversation_items i CROSS JOIN conversations c
WHERE i.id = $1 AND c.id = i.conversation_id AND c.caller_id = $2 ORDER BY c.created_at DESC LIMIT 1"""


def _positions_query(limit: str, max_bytes: str, *, where: str = "", direction: str = "ASC") -> str:
    """Return a query for the positions of the first items of conversation $1, up to a number and a sum of bytes.

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


def _items_query(order: Order, *, is_after: bool) -> str:
    """Return a query for items of conversation $1 in this order, up to $2 items and $3 bytes: see `_positions_query`.

    `is_after`: only items behind the one with id $4.
    """
    direction, where = ("ASC" if order == "asc" else "DESC"), ""
    if is_after:
        compare = ">" if order == "asc" else "<"
        start = "SELECT position FROM conversation_items WHERE conversation_id = $1 AND id = $4"
        where = f" AND position {compare} ({start})"
    positions = _positions_query("$2", "$3", where=where, direction=direction)
    return f"""
SELECT id, data FROM conversation_items WHERE conversation_id = $1 AND position IN ({positions})
ORDER BY position {direction}"""  # noqa: S608 - names of our own


def _page_query(order: Order, *, is_after: bool) -> str:
    """Return a query for up to $2 conversations of caller $1 in this order, by creation and then by id.

    `is_after`: only conversations behind the position ($3, $4), the row of `_GET_LIST_POSITION`.
    """
    direction, compare = ("ASC", ">") if order == "asc" else ("DESC", "<")
    where = f" AND (created_at, id) {compare} ($3, $4)" if is_after else ""
    return f"""
SELECT id, caller_id, created_at, metadata FROM conversations WHERE caller_id = $1{where}
ORDER BY created_at {direction}, id {direction} LIMIT $2"""  # noqa: S608 - names of our own


# The position of the last item to read. Nearly always all items are within the limit of bytes, which a plain sum tells
# at a fraction of the cost.
_LAST_READ = f"""COALESCE(
    (SELECT MAX(position) FROM (
        SELECT position, length(data) - {CHECK_BYTES} AS size FROM conversation_items WHERE conversation_id = $1
        ORDER BY position LIMIT $3) AS s HAVING SUM(size) <= $4),
    (SELECT MAX(position) FROM ({_positions_query("$3", "$4")}) AS p), 0)"""  # noqa: S608 - names of our own
# The state of a conversation in the first row, then its items. It is one statement, so that all rows are of the same
# snapshot.
_READ_CONTENTS = f"""
SELECT 0 AS position, '' AS id, pending_calls AS data, leased_by, gateway_id,
    CASE WHEN leased_by IS NULL THEN FALSE ELSE is_alive(gateway_id) END AS is_leaseholder_alive
FROM conversations WHERE id = $1 AND caller_id = $2
UNION ALL
SELECT position, id, data, NULL, NULL, FALSE FROM conversation_items
WHERE conversation_id = $1 AND position <= {_LAST_READ}
ORDER BY position"""  # noqa: S608 - names of our own


class Conversations(Storing):
    """The methods of the store about conversations."""

    @transaction(is_repeatable=False)
    async def create_conversation(
        self, db: Connection, conversation: Conversation, items: Sequence[ConversationItem]
    ) -> None:
        metadata = encode_value(conversation.metadata)
        await db.write(_INSERT, conversation.id, conversation.caller_id, conversation.created_at, metadata)
        await _append_items(db, conversation.id, items)

    @read(confirms_missing=True)
    async def get_conversation(self, db: Connection, conversation_id: str, caller_id: str) -> Conversation | None:
        row = await db.fetch_row(_GET, conversation_id, caller_id)
        return None if row is None else _conversation_of(row)

    @read(confirms_missing=True)
    async def list_conversations(
        self, db: Connection, caller_id: str, *, after: str | None, limit: int, order: Order
    ) -> list[Conversation] | None:
        """Return up to `limit` conversations of a caller by creation, behind the conversation `after`.

        None when `after` is no conversation of this caller. A page is read from an index, beginning behind `after`.
        """
        position: Row = ()
        if after is not None:
            found = await db.fetch_row(_GET_LIST_POSITION, after, caller_id)
            if found is None:
                return None
            position = found
        rows = await db.fetch_rows(_page_query(order, is_after=after is not None), caller_id, limit, *position)
        return [_conversation_of(row) for row in rows]

    @statement(confirms_missing=True)
    async def update_conversation(self, db: Connection, conversation_id: str, caller_id: str, metadata: bytes) -> bool:
        return await db.write_counted(_UPDATE, conversation_id, caller_id, encode_value(metadata)) > 0

    # Deletions are not repeatable: the second attempt would find nothing to delete.
    @statement(is_repeatable=False, confirms_missing=True)
    async def delete_conversation(self, db: Connection, conversation_id: str, caller_id: str) -> bool:
        return await db.write_counted(_DELETE, conversation_id, caller_id) > 0

    @transaction(is_repeatable=False, confirms_missing=True)
    async def add_items(
        self,
        db: Connection,
        conversation_id: str,
        caller_id: str,
        items: Sequence[ConversationItem],
        *,
        response_id: str | None = None,
        pending_calls: bytes | None = None,
    ) -> bool:
        """Append items in order, in one transaction. An item whose id exists already is not changed.

        `response_id` is the response that produced the items, if one did. `pending_calls` are then its pending calls:
        they replace those of the conversation, and the lease of the response ends.
        Returns False when there is no such conversation.
        """
        lease = await db.fetch_row(_LOCK_LEASE, conversation_id, caller_id)
        if lease is None:
            return False
        await _append_items(db, conversation_id, items)
        # The response with the lease replaces the pending calls, also by none; another one only by calls of its own.
        if response_id is not None and (pending_calls is not None or lease[1] == response_id):
            await db.write(_STORE_PENDING_CALLS, conversation_id, encode_optional(pending_calls))
        return True

    @read(confirms_missing=True)
    async def read_conversation(
        self,
        db: Connection,
        conversation_id: str,
        caller_id: str,
        *,
        limit: int,
        max_bytes: int = DEFAULT_CONTEXT_BYTES,
    ) -> ConversationContents | None:
        """Return a consistent snapshot: the first `limit` items, pending calls, lease. None: there is no conversation.

        `max_bytes`: as in `ResponseStore.read_context`.
        """
        rows = await db.fetch_rows(_READ_CONTENTS, conversation_id, caller_id, limit, max_bytes)
        if not rows or rows[0][0] != 0:
            return None
        _, _, pending_calls, leased_by, gateway_id, is_alive = rows[0]
        return ConversationContents(
            items=tuple([_item_of(row[1], row[2]) for row in rows[1:]]),
            last_position=rows[-1][0],
            pending_calls=decode_optional(pending_calls, conversation_id),
            leased_by=leased_by,
            is_leased_here=leased_by is not None and gateway_id == self.gateway_id,
            is_leaseholder_alive=bool(is_alive),
        )

    @transaction()
    async def lease_conversation(
        self, db: Connection, conversation_id: str, caller_id: str, expected: ConversationContents, response_id: str
    ) -> bool:
        """Lease a conversation for a response. False when it has changed since `expected` was read. Idempotent."""
        lease = await db.fetch_row(_LOCK_LEASE, conversation_id, caller_id)
        if lease is None:
            return False
        pending_calls, leased_by = lease
        unchanged = (encode_optional(expected.pending_calls), expected.leased_by, expected.last_position)
        end = await _read_last_position(db, conversation_id)
        if leased_by != response_id and (pending_calls, leased_by, end) != unchanged:
            return False
        await db.write(_LEASE, conversation_id, response_id, self.gateway_id)
        return True

    @statement()
    async def release_conversation(
        self, db: Connection, conversation_id: str, caller_id: str, response_id: str
    ) -> None:
        """End the lease of a response that did not continue the conversation."""
        await db.write(_RELEASE, conversation_id, caller_id, response_id)

    @read(confirms_missing=True)
    async def list_items(
        self,
        db: Connection,
        conversation_id: str,
        caller_id: str,
        *,
        after: str | None = None,
        limit: int = 100,
        order: Order = "asc",
        max_bytes: int = DEFAULT_CONTEXT_BYTES,
    ) -> list[ConversationItem] | None:
        """Return up to `limit` items in this order, behind the item `after`. None: there is no such conversation.

        `max_bytes`: as in `ResponseStore.read_context`.
        """
        if await db.fetch_row(_FIND, conversation_id, caller_id) is None:
            return None
        position = () if after is None else (after,)
        sql = _items_query(order, is_after=after is not None)
        return [_item_of(*row) for row in await db.fetch_rows(sql, conversation_id, limit, max_bytes, *position)]

    @read(confirms_missing=True)
    async def get_item(
        self, db: Connection, conversation_id: str, caller_id: str, item_id: str
    ) -> ConversationItem | None:
        row = await db.fetch_row(_GET_ITEM, conversation_id, caller_id, item_id)
        return None if row is None else _item_of(*row)

    @read()
    async def find_item(self, db: Connection, item_id: str, caller_id: str) -> ConversationItem | None:
        """Return the item of this id in the newest of the caller's conversations that has one."""
        row = await db.fetch_row(_FIND_ITEM, item_id, caller_id)
        return None if row is None else _item_of(*row)

    @statement(is_repeatable=False, confirms_missing=True)
    async def delete_item(self, db: Connection, conversation_id: str, caller_id: str, item_id: str) -> bool:
        return await db.write_counted(_DELETE_ITEM, conversation_id, caller_id, item_id) > 0


def _conversation_of(row: Row) -> Conversation:
    """Return the conversation of a row of id, caller_id, time and metadata."""
    return Conversation(id=row[0], caller_id=row[1], created_at=row[2], metadata=decode_value(row[3], row[0]))


def _item_of(item_id: str, data: object) -> ConversationItem:
    """Return the item of an id and the data that is stored of it."""
    return ConversationItem(id=item_id, data=decode_value(data, item_id))


async def _read_last_position(db: Connection, conversation_id: str) -> int:
    row = await db.fetch_row(_GET_LAST_POSITION, conversation_id)
    return 0 if row is None else int(row[0])


async def _append_items(db: Connection, conversation_id: str, items: Sequence[ConversationItem]) -> None:
    last = await _read_last_position(db, conversation_id)
    rows = [
        (conversation_id, last + offset, item.id, encode_value(item.data)) for offset, item in enumerate(items, start=1)
    ]
    await db.write_many(_INSERT_ITEM, rows)
