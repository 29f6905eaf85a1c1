"""Responses in PostgreSQL, so that several gateways share them. It is restarted under us without losing what we said.

How safe an acknowledged write is against a loss of power is the server's own `synchronous_commit`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from holodeck.lib.errors import StorageError
from holodeck.lib.limits import DEFAULT_CONTEXT_BYTES, POSTGRES_TIMEOUT, SEARCH_BATCH
from holodeck.storage import forgetting, searching, threads, unfinished, waiting_calls
from holodeck.storage.pool import Connection, PostgresPool
from holodeck.storage.presence import IS_THERE
from holodeck.storage.store import Conversation, ConversationItem, Order, StoredResponse, Thread, WaitingCall
from holodeck.storage.unfinished import IS_UNFINISHED

_NAMES = (
    *("id", "owner", "created_at", "status", "previous_id", "conversation_id"),
    *("resource", "input_items", "items", "pending", "events"),
)
_COLUMNS = ", ".join(_NAMES)
_MARKS = ", ".join(f"${number}" for number in range(1, len(_NAMES) + 2))
_NEWER = ", ".join(f"{name} = EXCLUDED.{name}" for name in (*_NAMES[1:], "keeper"))
_INSERT = f"INSERT INTO responses ({_COLUMNS}, keeper) VALUES ({_MARKS}) ON CONFLICT (id) DO"  # noqa: S608
_ENTER = f"""
INSERT INTO responses ({_COLUMNS}, keeper, turn) VALUES ({_MARKS}, ${len(_NAMES) + 2}) ON CONFLICT (id) DO NOTHING"""  # noqa: S608
ENTRANCES = 0x686F6C71  # "holq": apart from every other advisory lock in the database
_ONE_BY_ONE = f"SELECT pg_advisory_xact_lock({ENTRANCES}, hashtext($1))"
"""The requests of an owner are let in one after the other, wherever they come: else all would count the same."""
_GET = f"SELECT {_COLUMNS} FROM responses WHERE id = $1 AND owner = $2"  # noqa: S608 - names of our own
_IS_LOST = f"{IS_UNFINISHED} AND NOT {IS_THERE}"
_TEXTS = "SELECT id, resource, input_items FROM responses WHERE id = ANY($1)"
_FIND_ITEM = """
SELECT i.id, i.data FROM conversation_items i JOIN conversations c ON c.id = i.conversation_id
WHERE i.id = $1 AND c.owner = $2 ORDER BY c.created_at DESC LIMIT 1"""
_ADD = """
INSERT INTO conversation_items (conversation_id, position, id, data) VALUES ($1, $2, $3, $4)
ON CONFLICT (conversation_id, id) DO NOTHING"""
_THREAD = threads.reading(IS_THERE)
_OWNED = "SELECT 1 FROM conversations WHERE id = $1 AND owner = $2"


class PostgresStore:
    """One pool of connections. Reads and saves are repeated when the server was lost under them."""

    def __init__(self, url: str) -> None:
        self._pool = PostgresPool(url)
        self._entrances: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def keeper(self) -> int:
        return self._pool.presence.number

    @property
    def refusal(self) -> str:
        return ""  # a server is asked

    async def save(self, record: StoredResponse, *, is_alone: bool = False) -> None:
        values = (*(getattr(record, name) for name in _NAMES), self.keeper)

        async def save(db: Connection) -> None:
            if not unfinished.is_finished(record.status):
                await db.execute(f"{_INSERT} UPDATE SET {_NEWER}", *values)
            # One that is finished when it is first kept, as most are, never had chunks: one statement is enough.
            elif _changed(await db.execute(f"{_INSERT} NOTHING", *values)) == 0:
                async with db.transaction():
                    await db.execute(f"{_INSERT} UPDATE SET {_NEWER}", *values)
                    await db.execute(unfinished.DROP_CHUNKS, record.id)

        await self._pool.run(save, is_repeatable=True)

    async def enter(self, record: StoredResponse, *, most: int, is_durable: bool) -> int | None:
        values = (*(getattr(record, name) for name in _NAMES), self.keeper)

        async def enter(db: Connection) -> int | None:
            async with db.transaction():
                await db.execute(_ONE_BY_ONE, record.owner)
                turn = unfinished.turn_after(await db.fetchrow(unfinished.STANDING, record.owner, record.id), most)
                if turn is not None:
                    await db.execute(_ENTER, *values, turn if is_durable else None)
                return turn

        async with self._entrance(record.owner):
            return await self._pool.run(enter, is_repeatable=True)

    async def count_unfinished(self, owner: str) -> int:
        return int(await self._pool.run(lambda db: db.fetchval(unfinished.COUNT, owner), is_repeatable=True))

    @asynccontextmanager
    async def _entrance(self, owner: str) -> AsyncIterator[None]:
        """Requests of an owner wait for each other here, and not with all the connections that others need."""
        lock = self._entrances.setdefault(owner, asyncio.Lock())
        try:
            async with asyncio.timeout(POSTGRES_TIMEOUT):
                await lock.acquire()
        except TimeoutError:
            raise StorageError("The database cannot be used: it does not answer those who came before.") from None
        try:
            yield
        finally:
            lock.release()

    async def finish(self, record: StoredResponse) -> bool:
        values = (*(getattr(record, name) for name in _NAMES), self.keeper)

        async def finish(db: Connection) -> bool:
            async with db.transaction():
                row = await db.fetchrow(f"{unfinished.KEEPER} FOR UPDATE", record.id)
                if row is None or row["keeper"] != self.keeper:
                    ended = (record.id, self.keeper, record.status, record.resource)
                    return await db.fetchval(unfinished.IS_ENDED, *ended) is not None
                await db.execute(f"{_INSERT} UPDATE SET {_NEWER}", *values)
                await db.execute(unfinished.DROP_CHUNKS, record.id)
                return True

        return await self._pool.run(finish, is_repeatable=True)

    async def get(self, response_id: str, owner: str) -> StoredResponse | None:
        row = await self._pool.run(lambda db: db.fetchrow(_GET, _key(response_id), owner), is_repeatable=True)
        return StoredResponse(**row) if row is not None else None

    async def delete(self, response_id: str, owner: str) -> bool:
        key = _key(response_id)

        async def remove(db: Connection) -> bool:
            async with db.transaction():
                # The response first: whoever is about to add a chunk to it waits, and then finds it gone.
                done = await db.execute("DELETE FROM responses WHERE id = $1 AND owner = $2", key, owner)
                if not _changed(done):
                    return False
                await db.execute(unfinished.DROP_CHUNKS, key)
                return True

        return await self._pool.run(remove, is_repeatable=False)

    async def context(self, response_id: str, owner: str, *, most: int = DEFAULT_CONTEXT_BYTES) -> list[bytes] | None:
        values = (_key(response_id), owner, most)
        rows = await self._pool.run(lambda db: db.fetch(threads.CONTEXT, *values), is_repeatable=True)
        return [row[0] for row in rows] or None

    async def with_items(self, ids: Collection[str], owner: str) -> list[tuple[bytes, bytes]]:
        async def look(db: Connection) -> list[tuple[bytes, bytes]]:
            search = searching.Search(ids)
            chosen = searching.near(map(tuple, await db.fetch(searching.SIZES, owner)))
            while chosen and not search.is_over:
                batch, chosen = chosen[:SEARCH_BATCH], chosen[SEARCH_BATCH:]
                texts = {row[0]: (row[1], row[2]) for row in await db.fetch(_TEXTS, batch)}
                for response_id in batch:
                    search.look(*texts.get(response_id, (b"", b"")))
            return search.found

        return await self._pool.run(look, is_repeatable=True)

    async def unfinished(self) -> list[StoredResponse]:
        """Those of gateways that are gone; another that is alive finishes its own."""
        sql = f"SELECT {_COLUMNS} FROM responses WHERE {_IS_LOST}"  # noqa: S608 - names of our own
        rows = await self._pool.run(lambda db: db.fetch(sql), is_repeatable=True)
        return [StoredResponse(**row) for row in rows]

    async def orphans(self) -> dict[str, int | None]:
        sql = f"SELECT id, keeper FROM responses WHERE {_IS_LOST}"  # noqa: S608 - names of our own
        return dict(await self._pool.run(lambda db: db.fetch(sql), is_repeatable=True))

    async def in_the_making(self, ids: Collection[str]) -> set[str]:
        sql = f"SELECT id FROM responses WHERE id = ANY($1) AND {IS_UNFINISHED}"  # noqa: S608 - names of our own
        rows = await self._pool.run(lambda db: db.fetch(sql, list(ids)), is_repeatable=True)
        return {row[0] for row in rows}

    async def adopt(self, response_id: str, keeper: int | None = None) -> None:
        await self._change(unfinished.ADOPT, _key(response_id), keeper or self.keeper, is_repeatable=True)

    async def grow(
        self,
        response_id: str,
        first: int,
        events: Sequence[bytes],
        *,
        resource: bytes | None = None,
        status: str | None = None,
    ) -> bool:
        async def grow(db: Connection) -> bool:
            async with db.transaction():
                return await _grow(db, self.keeper, _key(response_id), first, events, resource, status)

        return await self._pool.run(grow, is_repeatable=True)

    async def grown(self, response_id: str, owner: str, starting_after: int = -1) -> list[bytes] | None:
        values = (_key(response_id), owner, starting_after + 1)
        rows = await self._pool.run(lambda db: db.fetch(unfinished.GROWN, *values), is_repeatable=True)
        return unfinished.events_after(starting_after, rows) if rows else None

    async def ask_cancel(self, response_id: str, owner: str) -> bool:
        return await self._change(unfinished.ASK_CANCEL, _key(response_id), owner, is_repeatable=True) > 0

    async def cancels(self) -> list[str]:
        rows = await self._pool.run(lambda db: db.fetch(unfinished.CANCELS, self.keeper), is_repeatable=True)
        return [row[0] for row in rows]

    async def create_conversation(self, conversation: Conversation, items: Sequence[ConversationItem]) -> None:
        values = (conversation.id, conversation.owner, conversation.created_at, conversation.metadata)
        sql = "INSERT INTO conversations (id, owner, created_at, metadata) VALUES ($1, $2, $3, $4)"

        async def create(db: Connection) -> None:
            async with db.transaction():
                await db.execute(sql, *values)
                await _append(db, conversation.id, items)

        await self._pool.run(create, is_repeatable=False)

    async def conversation(self, conversation_id: str, owner: str) -> Conversation | None:
        sql = "SELECT id, owner, created_at, metadata FROM conversations WHERE id = $1 AND owner = $2"
        row = await self._pool.run(lambda db: db.fetchrow(sql, _key(conversation_id), owner), is_repeatable=True)
        return Conversation(**row) if row is not None else None

    async def update_conversation(self, conversation_id: str, owner: str, metadata: bytes) -> bool:
        sql = "UPDATE conversations SET metadata = $3 WHERE id = $1 AND owner = $2"
        return await self._change(sql, _key(conversation_id), owner, metadata, is_repeatable=True) > 0

    async def delete_conversation(self, conversation_id: str, owner: str) -> bool:
        sql = "DELETE FROM conversations WHERE id = $1 AND owner = $2"
        return await self._change(sql, _key(conversation_id), owner) > 0

    async def add_items(
        self,
        conversation_id: str,
        owner: str,
        items: Sequence[ConversationItem],
        *,
        by: str | None = None,
        waiting: bytes | None = None,
    ) -> bool:
        async def add(db: Connection) -> bool:
            async with db.transaction():
                # The row is locked, so that batches of two gateways do not take the same positions.
                state = await db.fetchrow(f"{threads.STATE} FOR UPDATE", _key(conversation_id), owner)
                if state is None:
                    return False
                await _append(db, conversation_id, items)
                if threads.may_leave(tuple(state), by, waiting):
                    await db.execute(threads.LEAVE, conversation_id, waiting)
                return True

        return await self._pool.run(add, is_repeatable=False)

    async def thread(
        self, conversation_id: str, owner: str, *, limit: int, most: int = DEFAULT_CONTEXT_BYTES
    ) -> Thread | None:
        values = (_key(conversation_id), owner, limit, most)
        rows = await self._pool.run(lambda db: db.fetch(_THREAD, *values), is_repeatable=True)
        return threads.thread_of(map(tuple, rows), self.keeper)

    async def take(self, conversation_id: str, owner: str, seen: Thread, taker: str) -> bool:
        async def take(db: Connection) -> bool:
            async with db.transaction():
                # The row first: what another adds meanwhile is seen by the statement after it.
                state = await db.fetchrow(f"{threads.STATE} FOR UPDATE", _key(conversation_id), owner)
                end = await db.fetchval(threads.END, _key(conversation_id))
                if not threads.may_take(tuple(state) if state is not None else None, end, seen, taker):
                    return False
                await db.execute(threads.TAKE, conversation_id, taker, self.keeper)
                return True

        return await self._pool.run(take, is_repeatable=True)

    async def give_back(self, conversation_id: str, owner: str, taker: str) -> None:
        await self._change(threads.GIVE_BACK, _key(conversation_id), owner, taker, is_repeatable=True)

    async def remember_calls(
        self, owner: str, response_id: str, digests: Mapping[str, bytes], *, turn: Collection[str] = ()
    ) -> None:
        now = time.time()
        calls = [(owner, _key(call_id), now, digest) for call_id, digest in sorted(digests.items())]
        paused = [(owner, _key(call_id), response_id, now) for call_id in turn]

        async def remember(db: Connection) -> None:
            async with db.transaction():
                await db.executemany(waiting_calls.REMEMBER, calls)
                await db.executemany(waiting_calls.PAUSE, paused)

        await self._pool.run(remember, is_repeatable=True)

    async def waiting_calls(self, owner: str, ids: Collection[str]) -> dict[str, WaitingCall]:
        return await self._pool.run(lambda db: _waiting(db, waiting_calls.FIND, owner, ids), is_repeatable=True)

    async def take_calls(self, owner: str, ids: Collection[str], taker: str) -> dict[str, str]:
        now = time.time()

        async def take(db: Connection) -> dict[str, str]:
            async with db.transaction():
                # In order, so that two that want the same calls wait for each other here and not crosswise.
                rows = [(owner, _key(call_id)) for call_id in sorted(ids)]
                await db.executemany(waiting_calls.REMEMBER, [(*row, now, None) for row in rows])
                found = await _waiting(db, f"{waiting_calls.FIND} FOR UPDATE", owner, sorted(ids))
                others = waiting_calls.taken_by_others(found.items(), taker)
                if not others:
                    await db.executemany(waiting_calls.TAKE, [(*row, taker) for row in rows])
                return others

        return await self._pool.run(take, is_repeatable=True)

    async def return_calls(self, owner: str, taker: str, ids: Collection[str] | None = None) -> None:
        if ids is None:
            await self._change(waiting_calls.RETURN_ALL, owner, taker, is_repeatable=True)
            return
        rows = [(owner, _key(call_id), taker) for call_id in sorted(ids)]
        await self._pool.run(lambda db: db.executemany(waiting_calls.RETURN, rows), is_repeatable=True)

    async def paused_in(self, owner: str, call_id: str) -> list[str]:
        values = (owner, _key(call_id))
        rows = await self._pool.run(lambda db: db.fetch(waiting_calls.PAUSED_IN, *values), is_repeatable=True)
        return [row[0] for row in rows]

    async def items(
        self,
        conversation_id: str,
        owner: str,
        *,
        after: str | None = None,
        limit: int = 100,
        order: Order = "asc",
        most: int = DEFAULT_CONTEXT_BYTES,
    ) -> list[ConversationItem] | None:
        sql = threads.page(order, is_after=after is not None)
        values = (_key(conversation_id), limit, most, *((_key(after),) if after is not None else ()))

        async def read(db: Connection) -> list[ConversationItem] | None:
            if await db.fetchval(_OWNED, _key(conversation_id), owner) is None:
                return None
            return [ConversationItem(**row) for row in await db.fetch(sql, *values)]

        return await self._pool.run(read, is_repeatable=True)

    async def item(self, conversation_id: str, owner: str, item_id: str) -> ConversationItem | None:
        sql = f"SELECT id, data FROM conversation_items WHERE conversation_id = $1 AND id = $3 AND EXISTS ({_OWNED})"  # noqa: S608
        values = (_key(conversation_id), owner, _key(item_id))
        row = await self._pool.run(lambda db: db.fetchrow(sql, *values), is_repeatable=True)
        return ConversationItem(**row) if row is not None else None

    async def find_item(self, item_id: str, owner: str) -> ConversationItem | None:
        row = await self._pool.run(lambda db: db.fetchrow(_FIND_ITEM, _key(item_id), owner), is_repeatable=True)
        return ConversationItem(**row) if row is not None else None

    async def delete_item(self, conversation_id: str, owner: str, item_id: str) -> bool:
        sql = f"DELETE FROM conversation_items WHERE conversation_id = $1 AND id = $3 AND EXISTS ({_OWNED})"  # noqa: S608
        return await self._change(sql, _key(conversation_id), owner, _key(item_id)) > 0

    async def forget(self, before: float) -> int:
        gone = 0
        for sql in forgetting.FORGET:
            while count := await self._change(sql, before, is_repeatable=True):
                gone += count
        await self._change(unfinished.DROP_LEFT_CHUNKS, is_repeatable=True)
        for statement in waiting_calls.FORGET:
            await self._change(statement, before, is_repeatable=True)
        return gone

    async def is_healthy(self) -> bool:
        answer: int = await self._pool.run(lambda db: db.fetchval("SELECT 1"), is_repeatable=True, attempts=1)
        return answer == 1

    async def close(self) -> None:
        await self._pool.close()

    async def _change(self, sql: str, *values: object, is_repeatable: bool = False) -> int:
        """How many rows a statement has changed. A delete is not repeated: it would say that there was nothing."""
        return _changed(await self._pool.run(lambda db: db.execute(sql, *values), is_repeatable=is_repeatable))


def _changed(done: str) -> int:
    """How many rows, from what the server says when it is done: `INSERT 0 1`."""
    return int(done.rpartition(" ")[2])


async def _grow(
    db: Connection,
    keeper: int,
    response_id: str,
    first: int,
    events: Sequence[bytes],
    resource: bytes | None,
    status: str | None,
) -> bool:
    # The row is locked: another writer waits here, and then finds what this one has added.
    row = await db.fetchrow(f"{unfinished.KEEPER} FOR UPDATE", response_id)
    if row is None:
        return False
    chunk = (response_id, first, len(events), unfinished.joined(events))
    end = await db.fetchval(unfinished.END, response_id) or 0
    if first != end:
        return row["keeper"] == keeper and await db.fetchval(unfinished.CHUNK, *chunk) is not None
    if events:
        await db.execute(unfinished.ADD_CHUNK, *chunk)
    if (row["keeper"], resource, status) != (keeper, None, None):
        await db.execute(unfinished.UPDATE, response_id, resource, status, keeper)
    return True


async def _waiting(db: Connection, sql: str, owner: str, ids: Collection[str]) -> dict[str, WaitingCall]:
    found = {}
    for call_id in ids:
        row = await db.fetchrow(sql, owner, _key(call_id))
        if row is not None:
            found[call_id] = waiting_calls.call_of(tuple(row))
    return found


async def _append(db: Connection, conversation_id: str, items: Sequence[ConversationItem]) -> None:
    sql = "SELECT COALESCE(MAX(position), 0) FROM conversation_items WHERE conversation_id = $1"
    last = await db.fetchval(sql, conversation_id)
    rows = [(conversation_id, last + offset, _key(item.id), item.data) for offset, item in enumerate(items, start=1)]
    await db.executemany(_ADD, rows)


def _key(text: str) -> str:
    """An id as somebody asks for it. PostgreSQL has no text with NUL in it, so nothing has such an id."""
    return text.replace("\0", "\ufffd")
