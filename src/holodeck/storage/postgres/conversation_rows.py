"""Rows of conversations, of their items and of pending calls in PostgreSQL.

Every function runs on one connection. `store.PostgresStore` takes it from the pool, and decides whether a function is
repeated after the connection was lost.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

from holodeck.storage.base import Conversation, ConversationContents, ConversationItem, Order, PendingCall
from holodeck.storage.checked_values import encode_optional, encode_value
from holodeck.storage.postgres.pool import Connection, without_nul
from holodeck.storage.sql import conversations, pending_calls

_INSERT_CONVERSATION = "INSERT INTO conversations (id, owner, created_at, metadata) VALUES ($1, $2, $3, $4)"
_SELECT_CONVERSATION = "SELECT id, owner, created_at, metadata FROM conversations WHERE id = $1 AND owner = $2"
_FIND_CONVERSATION = "SELECT 1 FROM conversations WHERE id = $1 AND owner = $2"
_INSERT_ITEM = """
INSERT INTO conversation_items (conversation_id, position, id, data) VALUES ($1, $2, $3, $4)
ON CONFLICT (conversation_id, id) DO NOTHING"""
_SELECT_ITEM = f"""
SELECT id, data FROM conversation_items
WHERE conversation_id = $1 AND id = $3 AND EXISTS ({_FIND_CONVERSATION})"""  # noqa: S608 - no values
_FIND_ITEM = """
SELECT i.id, i.data FROM conversation_items i JOIN conversations c ON c.id = i.conversation_id
WHERE i.id = $1 AND c.owner = $2 ORDER BY c.created_at DESC LIMIT 1"""

UPDATE_CONVERSATION = "UPDATE conversations SET metadata = $3 WHERE id = $1 AND owner = $2"
DELETE_CONVERSATION = "DELETE FROM conversations WHERE id = $1 AND owner = $2"
DELETE_ITEM = f"""
DELETE FROM conversation_items WHERE conversation_id = $1 AND id = $3 AND EXISTS ({_FIND_CONVERSATION})"""  # noqa: S608


async def create_conversation(db: Connection, conversation: Conversation, items: Sequence[ConversationItem]) -> None:
    values = conversations.values_of(conversation)
    async with db.transaction():
        await db.execute(_INSERT_CONVERSATION, *values)
        await _append_items(db, conversation.id, items)


async def read_conversation(db: Connection, conversation_id: str, caller_id: str) -> Conversation | None:
    row = await db.fetchrow(_SELECT_CONVERSATION, without_nul(conversation_id), caller_id)
    return conversations.listed_of(tuple(row)) if row is not None else None


async def list_conversations(
    db: Connection, caller_id: str, *, after: str | None, limit: int, order: Order
) -> list[Conversation] | None:
    position: tuple[object, ...] = ()
    if after is not None:
        found = await db.fetchrow(conversations.GET_LIST_POSITION, without_nul(after), caller_id)
        if found is None:
            return None
        position = tuple(found)
    sql = conversations.page_query(order, is_after=after is not None)
    return [conversations.listed_of(tuple(row)) for row in await db.fetch(sql, caller_id, limit, *position)]


async def lease_conversation(
    db: Connection,
    conversation_id: str,
    caller_id: str,
    expected: ConversationContents,
    response_id: str,
    gateway_id: int,
) -> bool:
    async with db.transaction():
        # The row is locked first, so that the second statement sees what another gateway has just added.
        lease = await db.fetchrow(f"{conversations.GET_LEASE} FOR UPDATE", without_nul(conversation_id), caller_id)
        end = await db.fetchval(conversations.GET_LAST_POSITION, without_nul(conversation_id))
        if not conversations.may_lease(tuple(lease) if lease is not None else None, end, expected, response_id):
            return False
        await db.execute(conversations.LEASE_CONVERSATION, conversation_id, response_id, gateway_id)
        return True


async def add_items(
    db: Connection,
    conversation_id: str,
    caller_id: str,
    items: Sequence[ConversationItem],
    *,
    response_id: str | None,
    pending_calls: bytes | None,
) -> bool:
    async with db.transaction():
        # The row is locked, so that two gateways do not use the same positions.
        lease = await db.fetchrow(f"{conversations.GET_LEASE} FOR UPDATE", without_nul(conversation_id), caller_id)
        if lease is None:
            return False
        await _append_items(db, conversation_id, items)
        if conversations.may_store_pending_calls(tuple(lease), response_id, pending_calls):
            await db.execute(conversations.STORE_PENDING_CALLS, conversation_id, encode_optional(pending_calls))
        return True


async def list_items(
    db: Connection,
    conversation_id: str,
    caller_id: str,
    *,
    after: str | None,
    limit: int,
    order: Order,
    max_bytes: int,
) -> list[ConversationItem] | None:
    if await db.fetchval(_FIND_CONVERSATION, without_nul(conversation_id), caller_id) is None:
        return None
    sql = conversations.items_query(order, is_after=after is not None)
    position = (without_nul(after),) if after is not None else ()
    rows = await db.fetch(sql, without_nul(conversation_id), limit, max_bytes, *position)
    return [conversations.item_of(tuple(row)) for row in rows]


async def read_item(db: Connection, conversation_id: str, caller_id: str, item_id: str) -> ConversationItem | None:
    row = await db.fetchrow(_SELECT_ITEM, without_nul(conversation_id), caller_id, without_nul(item_id))
    return conversations.item_of(tuple(row)) if row is not None else None


async def find_item(db: Connection, item_id: str, caller_id: str) -> ConversationItem | None:
    row = await db.fetchrow(_FIND_ITEM, without_nul(item_id), caller_id)
    return conversations.item_of(tuple(row)) if row is not None else None


async def add_pending_calls(
    db: Connection, caller_id: str, response_id: str, digests: Mapping[str, bytes], client_call_ids: Collection[str]
) -> None:
    now = time.time()
    calls = [(caller_id, without_nul(call_id), now, digest) for call_id, digest in sorted(digests.items())]
    paused = [(caller_id, without_nul(call_id), response_id, now) for call_id in client_call_ids]
    async with db.transaction():
        await db.executemany(pending_calls.ADD_PENDING_CALL, calls)
        await db.executemany(pending_calls.ADD_PAUSED_TURN, paused)


async def read_pending_calls(db: Connection, caller_id: str, ids: Collection[str]) -> dict[str, PendingCall]:
    return await _read_calls(db, pending_calls.FIND_PENDING_CALL, caller_id, ids)


async def claim_calls(db: Connection, caller_id: str, ids: Collection[str], response_id: str) -> dict[str, str]:
    now = time.time()
    async with db.transaction():
        # Sorted, so that two claims of the same calls cannot deadlock.
        rows = [(caller_id, without_nul(call_id)) for call_id in sorted(ids)]
        await db.executemany(pending_calls.ADD_PENDING_CALL, [(*row, now, None) for row in rows])
        found = await _read_calls(db, f"{pending_calls.FIND_PENDING_CALL} FOR UPDATE", caller_id, sorted(ids))
        others = pending_calls.claims_of_others(found.items(), response_id)
        if not others:
            await db.executemany(pending_calls.CLAIM_CALL, [(*row, response_id) for row in rows])
        return others


async def _read_calls(db: Connection, sql: str, caller_id: str, ids: Collection[str]) -> dict[str, PendingCall]:
    found = {}
    for call_id in ids:
        row = await db.fetchrow(sql, caller_id, without_nul(call_id))
        if row is not None:
            found[call_id] = pending_calls.pending_call_of(tuple(row))
    return found


async def _append_items(db: Connection, conversation_id: str, items: Sequence[ConversationItem]) -> None:
    last = await db.fetchval(conversations.GET_LAST_POSITION, conversation_id)
    rows = [
        (conversation_id, last + offset, without_nul(item.id), encode_value(item.data))
        for offset, item in enumerate(items, start=1)
    ]
    await db.executemany(_INSERT_ITEM, rows)
