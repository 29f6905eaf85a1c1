"""Rows of conversations, of their items and of pending calls in a SQLite database.

Every function runs on the thread that owns the connection, inside the transaction that `worker.Worker` opens for a
writer, which is the only one that writes. A function raises `DamagedValueError` for a row that is not as it was
written. All rows are fetched before the first is decoded: an open statement in the traceback of an error would keep
the reader at an old state of the database.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from holodeck.storage.base import Conversation, ConversationContents, ConversationItem, Order, PendingCall
from holodeck.storage.checked_values import encode_optional, encode_value
from holodeck.storage.sql import conversations, pending_calls
from holodeck.storage.sql.in_progress import for_sqlite

_INSERT_CONVERSATION = "INSERT INTO conversations (id, owner, created_at, metadata) VALUES (?, ?, ?, ?)"
_SELECT_CONVERSATION = "SELECT id, owner, created_at, metadata FROM conversations WHERE id = ? AND owner = ?"
_UPDATE_CONVERSATION = "UPDATE conversations SET metadata = ? WHERE id = ? AND owner = ?"
_DELETE_CONVERSATION = "DELETE FROM conversations WHERE id = ? AND owner = ?"
_FIND_CONVERSATION = "SELECT 1 FROM conversations WHERE id = ? AND owner = ?"
# Liveness is a matter of file locks here, which SQL does not see: `read_contents` adds it.
_READ_CONTENTS = for_sqlite(conversations.conversation_query("FALSE"))
_INSERT_ITEM = """
INSERT INTO conversation_items (conversation_id, position, id, data) VALUES (?, ?, ?, ?)
ON CONFLICT (conversation_id, id) DO NOTHING"""
_SELECT_ITEM = "SELECT id, data FROM conversation_items WHERE conversation_id = ? AND id = ?"
_DELETE_ITEM = "DELETE FROM conversation_items WHERE conversation_id = ? AND id = ?"
# A CROSS JOIN of SQLite is read from left to right: otherwise it goes through all conversations of the caller, which
# an index has in this order, and looks for the item in each of them.
_FIND_ITEM = """
SELECT i.id, i.data FROM conversation_items i CROSS JOIN conversations c ON c.id = i.conversation_id
WHERE i.id = ? AND c.owner = ? ORDER BY c.created_at DESC LIMIT 1"""


def create_conversation(db: sqlite3.Connection, conversation: Conversation, items: Sequence[ConversationItem]) -> None:
    db.execute(_INSERT_CONVERSATION, conversations.values_of(conversation))
    _append_items(db, conversation.id, items)


def read_conversation(db: sqlite3.Connection, conversation_id: str, caller_id: str) -> Conversation | None:
    row = db.execute(_SELECT_CONVERSATION, (conversation_id, caller_id)).fetchone()
    return conversations.listed_of(row) if row is not None else None


def list_conversations(
    db: sqlite3.Connection, caller_id: str, *, after: str | None, limit: int, order: Order
) -> list[Conversation] | None:
    position: tuple[object, ...] = ()
    if after is not None:
        found = db.execute(for_sqlite(conversations.GET_LIST_POSITION), (after, caller_id)).fetchone()
        if found is None:
            return None
        position = found
    sql = for_sqlite(conversations.page_query(order, is_after=after is not None))
    return [conversations.listed_of(row) for row in db.execute(sql, (caller_id, limit, *position)).fetchall()]


def update_conversation(db: sqlite3.Connection, conversation_id: str, caller_id: str, metadata: bytes) -> bool:
    return db.execute(_UPDATE_CONVERSATION, (encode_value(metadata), conversation_id, caller_id)).rowcount > 0


def delete_conversation(db: sqlite3.Connection, conversation_id: str, caller_id: str) -> bool:
    return db.execute(_DELETE_CONVERSATION, (conversation_id, caller_id)).rowcount > 0


def read_contents(
    db: sqlite3.Connection,
    conversation_id: str,
    caller_id: str,
    *,
    limit: int,
    max_bytes: int,
    gateway_id: int,
    is_alive: Callable[[int], bool],
) -> ConversationContents | None:
    """See `ResponseStore.read_conversation`. `is_alive`: whether a gateway is alive, by its id."""
    rows = db.execute(_READ_CONTENTS, (conversation_id, caller_id, limit, max_bytes)).fetchall()
    contents = conversations.conversation_of(rows, conversation_id, gateway_id)
    if contents is None or contents.leased_by is None:
        return contents
    return replace(contents, is_leaseholder_alive=is_alive(rows[0][4]))


def lease_conversation(
    db: sqlite3.Connection,
    conversation_id: str,
    caller_id: str,
    expected: ConversationContents,
    response_id: str,
    gateway_id: int,
) -> bool:
    lease = db.execute(for_sqlite(conversations.GET_LEASE), (conversation_id, caller_id)).fetchone()
    end = db.execute(for_sqlite(conversations.GET_LAST_POSITION), (conversation_id,)).fetchone()[0]
    if not conversations.may_lease(lease, end, expected, response_id):
        return False
    db.execute(for_sqlite(conversations.LEASE_CONVERSATION), (conversation_id, response_id, gateway_id))
    return True


def add_items(
    db: sqlite3.Connection,
    conversation_id: str,
    caller_id: str,
    items: Sequence[ConversationItem],
    *,
    response_id: str | None,
    pending_calls: bytes | None,
) -> bool:
    lease = db.execute(for_sqlite(conversations.GET_LEASE), (conversation_id, caller_id)).fetchone()
    if lease is None:
        return False
    _append_items(db, conversation_id, items)
    if conversations.may_store_pending_calls(lease, response_id, pending_calls):
        db.execute(for_sqlite(conversations.STORE_PENDING_CALLS), (conversation_id, encode_optional(pending_calls)))
    return True


def list_items(
    db: sqlite3.Connection,
    conversation_id: str,
    caller_id: str,
    *,
    after: str | None,
    limit: int,
    order: Order,
    max_bytes: int,
) -> list[ConversationItem] | None:
    if not _has_conversation(db, conversation_id, caller_id):
        return None
    sql = for_sqlite(conversations.items_query(order, is_after=after is not None))
    values = (conversation_id, limit, max_bytes, *((after,) if after is not None else ()))
    return [conversations.item_of(row) for row in db.execute(sql, values).fetchall()]


def read_item(db: sqlite3.Connection, conversation_id: str, caller_id: str, item_id: str) -> ConversationItem | None:
    if not _has_conversation(db, conversation_id, caller_id):
        return None
    row = db.execute(_SELECT_ITEM, (conversation_id, item_id)).fetchone()
    return conversations.item_of(row) if row is not None else None


def find_item(db: sqlite3.Connection, item_id: str, caller_id: str) -> ConversationItem | None:
    row = db.execute(_FIND_ITEM, (item_id, caller_id)).fetchone()
    return conversations.item_of(row) if row is not None else None


def delete_item(db: sqlite3.Connection, conversation_id: str, caller_id: str, item_id: str) -> bool:
    if not _has_conversation(db, conversation_id, caller_id):
        return False
    return db.execute(_DELETE_ITEM, (conversation_id, item_id)).rowcount > 0


def add_pending_calls(
    db: sqlite3.Connection,
    caller_id: str,
    response_id: str,
    digests: Mapping[str, bytes],
    client_call_ids: Collection[str],
) -> None:
    now = time.time()
    calls = [(caller_id, call_id, now, digest) for call_id, digest in digests.items()]
    paused = [(caller_id, call_id, response_id, now) for call_id in client_call_ids]
    db.executemany(for_sqlite(pending_calls.ADD_PENDING_CALL), calls)
    db.executemany(for_sqlite(pending_calls.ADD_PAUSED_TURN), paused)


def read_pending_calls(db: sqlite3.Connection, caller_id: str, ids: Collection[str]) -> dict[str, PendingCall]:
    sql = for_sqlite(pending_calls.FIND_PENDING_CALL)
    rows = ((call_id, db.execute(sql, (caller_id, call_id)).fetchone()) for call_id in ids)
    return {call_id: pending_calls.pending_call_of(row) for call_id, row in rows if row is not None}


def claim_calls(db: sqlite3.Connection, caller_id: str, ids: Collection[str], response_id: str) -> dict[str, str]:
    rows, now = [(caller_id, call_id) for call_id in ids], time.time()
    db.executemany(for_sqlite(pending_calls.ADD_PENDING_CALL), [(*row, now, None) for row in rows])
    others = pending_calls.claims_of_others(read_pending_calls(db, caller_id, ids).items(), response_id)
    if not others:
        db.executemany(for_sqlite(pending_calls.CLAIM_CALL), [(*row, response_id) for row in rows])
    return others


def release_calls(db: sqlite3.Connection, caller_id: str, response_id: str, ids: Collection[str] | None) -> None:
    if ids is None:
        db.execute(for_sqlite(pending_calls.RELEASE_ALL_CALLS), (caller_id, response_id))
        return
    rows = [(caller_id, call_id, response_id) for call_id in ids]
    db.executemany(for_sqlite(pending_calls.RELEASE_CALL), rows)


def find_paused_responses(db: sqlite3.Connection, caller_id: str, call_id: str) -> list[str]:
    rows = db.execute(for_sqlite(pending_calls.FIND_PAUSED_RESPONSES), (caller_id, call_id)).fetchall()
    return [row[0] for row in rows]


def _has_conversation(db: sqlite3.Connection, conversation_id: str, caller_id: str) -> bool:
    return db.execute(_FIND_CONVERSATION, (conversation_id, caller_id)).fetchone() is not None


def _append_items(db: sqlite3.Connection, conversation_id: str, items: Sequence[ConversationItem]) -> None:
    last = db.execute(for_sqlite(conversations.GET_LAST_POSITION), (conversation_id,)).fetchone()[0]
    rows = [
        (conversation_id, last + offset, item.id, encode_value(item.data)) for offset, item in enumerate(items, start=1)
    ]
    db.executemany(_INSERT_ITEM, rows)
