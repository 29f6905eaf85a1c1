"""Responses in one SQLite file: writers that come together share a transaction, readers never wait for them.

`fast` (the default) keeps everything that was acknowledged when the process dies; when the power fails, the last
moments may be lost, but never the file. `safe` waits for the disk on every transaction.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Awaitable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

from holodeck.lib.errors import StorageError
from holodeck.lib.limits import DEFAULT_CONTEXT_BYTES
from holodeck.storage import forgetting, searching, sqlite_unfinished, threads, unfinished, waiting_calls
from holodeck.storage.at_hand import AtHand
from holodeck.storage.damage import DAMAGED, FileCheck, check_json
from holodeck.storage.presence_files import Alone, FilePresence
from holodeck.storage.same_file import LOST, SameFile
from holodeck.storage.sqlite_file import Durability, connected
from holodeck.storage.store import Conversation, ConversationItem, Order, StoredResponse, Thread, WaitingCall
from holodeck.storage.unfinished import for_sqlite
from holodeck.storage.workers import Worker

_COLUMNS = "id, owner, created_at, status, previous_id, conversation_id, resource, input_items, items, pending, events"
_NAMES = _COLUMNS.split(", ")
_FIRST_JSON = _NAMES.index("resource")
_values = attrgetter(*_NAMES)
_NEWER = ", ".join(f"{name} = excluded.{name}" for name in (*_NAMES[1:], "keeper"))
_MARKS = ", ".join("?" * (len(_NAMES) + 1))
_ADD = f"INSERT INTO responses ({_COLUMNS}, keeper) VALUES ({_MARKS}) ON CONFLICT (id) DO NOTHING"  # noqa: S608
_SAVE = f"INSERT INTO responses ({_COLUMNS}, keeper) VALUES ({_MARKS}) ON CONFLICT (id) DO UPDATE SET {_NEWER}"  # noqa: S608
_ENTER = f"INSERT INTO responses ({_COLUMNS}, keeper, turn) VALUES ({_MARKS}, ?) ON CONFLICT (id) DO NOTHING"  # noqa: S608
_GET = f"SELECT {_COLUMNS} FROM responses WHERE id = ?"  # noqa: S608 - names of our own
_TEXTS = "SELECT resource, input_items FROM responses WHERE id = ?"
_FIND_ITEM = """
SELECT i.id, i.data FROM conversation_items i JOIN conversations c ON c.id = i.conversation_id
WHERE i.id = ? AND c.owner = ? ORDER BY c.created_at DESC LIMIT 1"""
_THREAD = for_sqlite(threads.reading("FALSE"))  # files are asked, not SQLite


class SQLiteStore:
    """One file, one writing thread, one reading thread; a request that is alone writes its response itself."""

    def __init__(self, path: Path | str, *, durability: Durability = "fast") -> None:
        self._path = str(path)
        self._durability = durability
        shared = self._path == ":memory:"
        self._presence = Alone() if shared else FilePresence(Path(f"{Path(self._path).resolve()}.alive"))
        self._check = FileCheck(None if shared else Path(self._path))
        on_damage = self._check.report
        self._writer = Worker(self._entered, writes=True, name="storage writer", on_damage=on_damage)
        self._at_hand = AtHand()
        self._has_at_hand = durability == "fast" and not shared  # whoever waits for the disk waits elsewhere
        self._file = None if shared else SameFile(Path(self._path))
        self._opening = threading.Lock()
        self._reader = self._writer
        if not shared:
            self._reader = Worker(self._connect, writes=False, name="storage reader", on_damage=on_damage)

    @property
    def keeper(self) -> int:
        return self._presence.number

    @property
    def refusal(self) -> str:
        return self._writer.refusal or (DAMAGED if self._check.damage else "")

    def _connect(self) -> sqlite3.Connection:
        with self._opening:
            connection = connected(self._path, self._durability)
            if self._file is not None:
                self._file.opened()
            return connection

    def _entered(self) -> sqlite3.Connection:
        """A connection to write with: what this process writes, it is there for."""
        connection = self._connect()
        try:
            self._presence.begin()
        except OSError:
            connection.close()
            raise
        if self._has_at_hand:
            with suppress(sqlite3.Error, OSError):  # it can be done without
                self._at_hand.use(connected(self._path, self._durability, is_handed_on=True))
        return connection

    def _look_at_file(self) -> bool:
        """Whether the file is lost. Looked at every second, and not for every row."""
        return self._file is not None and self._file.is_lost()

    def _heed(self, is_lost: bool) -> None:
        """Write nothing more into a file that is lost or damaged. Raises `StorageError` while it is."""
        refusal = LOST if is_lost else DAMAGED if self._check.damage else ""
        if refusal != self._writer.refusal:
            self._writer.refusal = refusal
            self._at_hand.pause(is_over=not refusal)
        if refusal:
            raise StorageError(refusal)

    async def _confirm_missing(self) -> None:
        """Raise `StorageError` when what was not found may be there, in a file that is damaged."""
        await self._check.wait()
        if self._check.damage:
            raise StorageError(DAMAGED)

    async def _is_there(self, changing: Awaitable[bool]) -> bool:
        """Whether a change found what it was to change."""
        found = await changing
        if not found:
            await self._confirm_missing()
        return found

    async def save(self, record: StoredResponse, *, is_alone: bool = False) -> None:
        values = (*_values(record), self.keeper)
        if is_alone and self._at_hand.add(_ADD, values):
            return
        if await self._writer.run(lambda db: db.execute(_ADD, values).rowcount, is_one_statement=True):
            return  # it is new, so nothing else is there of it

        def save(db: sqlite3.Connection) -> None:
            db.execute(_SAVE, values)
            if unfinished.is_finished(record.status):
                db.execute(for_sqlite(unfinished.DROP_CHUNKS), (record.id,))

        await self._writer.run(save)

    async def enter(self, record: StoredResponse, *, most: int, is_durable: bool) -> int | None:
        values = (*_values(record), self.keeper)

        def enter(db: sqlite3.Connection) -> int | None:
            standing = db.execute(for_sqlite(unfinished.STANDING), (record.owner, record.id)).fetchone()
            turn = unfinished.turn_after(standing, most)
            if turn is not None:
                db.execute(_ENTER, (*values, turn if is_durable else None))
            return turn

        return await self._writer.run(enter)

    async def count_unfinished(self, owner: str) -> int:
        sql = for_sqlite(unfinished.COUNT)
        return int(await self._reader.run(lambda db: db.execute(sql, (owner,)).fetchone()[0]))

    async def finish(self, record: StoredResponse) -> bool:
        values = (*_values(record), self.keeper)

        def finish(db: sqlite3.Connection) -> bool:
            row = db.execute(for_sqlite(unfinished.KEEPER), (record.id,)).fetchone()
            if row is None or row[0] != self.keeper:
                ended = (record.id, self.keeper, record.status, record.resource)
                return db.execute(for_sqlite(unfinished.IS_ENDED), ended).fetchone() is not None
            db.execute(_SAVE, values)
            db.execute(for_sqlite(unfinished.DROP_CHUNKS), (record.id,))
            return True

        return await self._writer.run(finish)

    async def get(self, response_id: str, owner: str) -> StoredResponse | None:
        def read(db: sqlite3.Connection) -> StoredResponse | None:
            row = db.execute(f"{_GET} AND owner = ?", (response_id, owner)).fetchone()
            return _response(row) if row is not None else None

        found = await self._reader.run(read)
        if found is None:
            await self._confirm_missing()
        return found

    async def delete(self, response_id: str, owner: str) -> bool:
        sql = "DELETE FROM responses WHERE id = ? AND owner = ?"

        def remove(db: sqlite3.Connection) -> bool:
            if not db.execute(sql, (response_id, owner)).rowcount:
                return False
            db.execute(for_sqlite(unfinished.DROP_CHUNKS), (response_id,))
            return True

        return await self._is_there(self._writer.run(remove))

    async def context(self, response_id: str, owner: str, *, most: int = DEFAULT_CONTEXT_BYTES) -> list[bytes] | None:
        values = (response_id, owner, most)
        sql, where = for_sqlite(threads.CONTEXT), f"what comes before {response_id}"
        found = await self._reader.run(lambda db: [check_json(row[0], where) for row in db.execute(sql, values)])
        if not found:
            await self._confirm_missing()
        return found or None

    async def with_items(self, ids: Collection[str], owner: str) -> list[tuple[bytes, bytes]]:
        def look(db: sqlite3.Connection) -> list[tuple[bytes, bytes]]:
            search = searching.Search(ids)
            for response_id in searching.near(db.execute(for_sqlite(searching.SIZES), (owner,))):
                texts = db.execute(_TEXTS, (response_id,)).fetchone()
                if texts is not None:
                    search.look(*(check_json(text, response_id) for text in texts))
                if search.is_over:
                    break
            return search.found

        return await self._reader.run(look)

    async def unfinished(self) -> list[StoredResponse]:
        def read(db: sqlite3.Connection) -> list[StoredResponse]:
            lost = sqlite_unfinished.orphans(db, self._presence.is_there)
            rows = (db.execute(_GET, (response_id,)).fetchone() for response_id in lost)
            return [_response(row) for row in rows if row is not None]

        return await self._reader.run(read)

    async def orphans(self) -> dict[str, int | None]:
        def look(db: sqlite3.Connection) -> tuple[bool, dict[str, int | None]]:
            return self._look_at_file(), sqlite_unfinished.orphans(db, self._presence.is_there)

        self._check.begin()
        is_lost, found = await self._reader.run(look)
        self._heed(is_lost)
        return found

    async def in_the_making(self, ids: Collection[str]) -> set[str]:
        sql = for_sqlite(unfinished.KEEPER)
        return await self._reader.run(lambda db: {each for each in ids if db.execute(sql, (each,)).fetchone()})

    async def adopt(self, response_id: str, keeper: int | None = None) -> None:
        values = (response_id, keeper or self.keeper)
        await self._writer.run(lambda db: db.execute(for_sqlite(unfinished.ADOPT), values))

    async def grow(
        self,
        response_id: str,
        first: int,
        events: Sequence[bytes],
        *,
        resource: bytes | None = None,
        status: str | None = None,
    ) -> bool:
        return await self._writer.run(
            lambda db: sqlite_unfinished.grow(db, self.keeper, response_id, first, events, resource, status)
        )

    async def grown(self, response_id: str, owner: str, starting_after: int = -1) -> list[bytes] | None:
        values = (response_id, owner, starting_after + 1)
        sql = for_sqlite(unfinished.GROWN)

        def read(db: sqlite3.Connection) -> list[tuple[int, bytes | None]]:
            rows = db.execute(sql, values).fetchall()
            return [(first, events if events is None else check_json(events, response_id)) for first, events in rows]

        rows = await self._reader.run(read)
        return unfinished.events_after(starting_after, rows) if rows else None

    async def ask_cancel(self, response_id: str, owner: str) -> bool:
        sql = for_sqlite(unfinished.ASK_CANCEL)
        return await self._writer.run(lambda db: db.execute(sql, (response_id, owner)).rowcount > 0)

    async def cancels(self) -> list[str]:
        sql = for_sqlite(unfinished.CANCELS)
        return [row[0] for row in await self._reader.run(lambda db: db.execute(sql, (self.keeper,)).fetchall())]

    async def create_conversation(self, conversation: Conversation, items: Sequence[ConversationItem]) -> None:
        values = (conversation.id, conversation.owner, conversation.created_at, conversation.metadata)

        def create(db: sqlite3.Connection) -> None:
            db.execute("INSERT INTO conversations (id, owner, created_at, metadata) VALUES (?, ?, ?, ?)", values)
            _append(db, conversation.id, items)

        await self._writer.run(create)

    async def conversation(self, conversation_id: str, owner: str) -> Conversation | None:
        sql = "SELECT id, owner, created_at, metadata FROM conversations WHERE id = ? AND owner = ?"

        def read(db: sqlite3.Connection) -> Conversation | None:
            row = db.execute(sql, (conversation_id, owner)).fetchone()
            if row is None:
                return None
            return Conversation(id=row[0], owner=row[1], created_at=row[2], metadata=check_json(row[3], row[0]))

        found = await self._reader.run(read)
        if found is None:
            await self._confirm_missing()
        return found

    async def update_conversation(self, conversation_id: str, owner: str, metadata: bytes) -> bool:
        sql = "UPDATE conversations SET metadata = ? WHERE id = ? AND owner = ?"
        values = (metadata, conversation_id, owner)
        return await self._is_there(self._writer.run(lambda db: db.execute(sql, values).rowcount > 0))

    async def delete_conversation(self, conversation_id: str, owner: str) -> bool:
        sql = "DELETE FROM conversations WHERE id = ? AND owner = ?"
        values = (conversation_id, owner)
        return await self._is_there(self._writer.run(lambda db: db.execute(sql, values).rowcount > 0))

    async def add_items(
        self,
        conversation_id: str,
        owner: str,
        items: Sequence[ConversationItem],
        *,
        by: str | None = None,
        waiting: bytes | None = None,
    ) -> bool:
        def add(db: sqlite3.Connection) -> bool:
            state = db.execute(for_sqlite(threads.STATE), (conversation_id, owner)).fetchone()
            if state is None:
                return False
            _append(db, conversation_id, items)
            if threads.may_leave(state, by, waiting):
                db.execute(for_sqlite(threads.LEAVE), (conversation_id, waiting))
            return True

        return await self._is_there(self._writer.run(add))

    async def thread(
        self, conversation_id: str, owner: str, *, limit: int, most: int = DEFAULT_CONTEXT_BYTES
    ) -> Thread | None:
        def read(db: sqlite3.Connection) -> Thread | None:
            rows = db.execute(_THREAD, (conversation_id, owner, limit, most)).fetchall()
            for row in rows:
                check_json(row[2] or b"", row[1] or conversation_id)  # a conversation in which nothing waits has none
            found = threads.thread_of(rows, self.keeper)
            if found is None or found.taken_by is None:
                return found
            return replace(found, is_taker_there=self._presence.is_there(rows[0][4]))

        found = await self._reader.run(read)
        if found is None:
            await self._confirm_missing()
        return found

    async def take(self, conversation_id: str, owner: str, seen: Thread, taker: str) -> bool:
        def take(db: sqlite3.Connection) -> bool:
            state = db.execute(for_sqlite(threads.STATE), (conversation_id, owner)).fetchone()
            end = db.execute(for_sqlite(threads.END), (conversation_id,)).fetchone()[0]
            if not threads.may_take(state, end, seen, taker):
                return False
            db.execute(for_sqlite(threads.TAKE), (conversation_id, taker, self.keeper))
            return True

        return await self._writer.run(take)

    async def give_back(self, conversation_id: str, owner: str, taker: str) -> None:
        values = (conversation_id, owner, taker)
        await self._writer.run(lambda db: db.execute(for_sqlite(threads.GIVE_BACK), values))

    async def remember_calls(
        self, owner: str, response_id: str, digests: Mapping[str, bytes], *, turn: Collection[str] = ()
    ) -> None:
        now = time.time()
        calls = [(owner, call_id, now, digest) for call_id, digest in digests.items()]
        paused = [(owner, call_id, response_id, now) for call_id in turn]

        def remember(db: sqlite3.Connection) -> None:
            db.executemany(for_sqlite(waiting_calls.REMEMBER), calls)
            db.executemany(for_sqlite(waiting_calls.PAUSE), paused)

        await self._writer.run(remember)

    async def waiting_calls(self, owner: str, ids: Collection[str]) -> dict[str, WaitingCall]:
        return await self._reader.run(lambda db: _waiting(db, owner, ids))

    async def take_calls(self, owner: str, ids: Collection[str], taker: str) -> dict[str, str]:
        rows, now = [(owner, call_id) for call_id in ids], time.time()

        def take(db: sqlite3.Connection) -> dict[str, str]:
            db.executemany(for_sqlite(waiting_calls.REMEMBER), [(*row, now, None) for row in rows])
            others = waiting_calls.taken_by_others(_waiting(db, owner, ids).items(), taker)
            if not others:
                db.executemany(for_sqlite(waiting_calls.TAKE), [(*row, taker) for row in rows])
            return others

        return await self._writer.run(take)

    async def return_calls(self, owner: str, taker: str, ids: Collection[str] | None = None) -> None:
        def give(db: sqlite3.Connection) -> None:
            if ids is None:
                db.execute(for_sqlite(waiting_calls.RETURN_ALL), (owner, taker))
            else:
                db.executemany(for_sqlite(waiting_calls.RETURN), [(owner, call_id, taker) for call_id in ids])

        await self._writer.run(give)

    async def paused_in(self, owner: str, call_id: str) -> list[str]:
        sql = for_sqlite(waiting_calls.PAUSED_IN)
        return [row[0] for row in await self._reader.run(lambda db: db.execute(sql, (owner, call_id)).fetchall())]

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
        sql = for_sqlite(threads.page(order, is_after=after is not None))
        values = (conversation_id, limit, most, *((after,) if after is not None else ()))

        def read(db: sqlite3.Connection) -> list[ConversationItem] | None:
            if not _owns(db, conversation_id, owner):
                return None
            return [_item(row) for row in db.execute(sql, values)]

        found = await self._reader.run(read)
        if found is None:
            await self._confirm_missing()
        return found

    async def item(self, conversation_id: str, owner: str, item_id: str) -> ConversationItem | None:
        sql = "SELECT id, data FROM conversation_items WHERE conversation_id = ? AND id = ?"

        def read(db: sqlite3.Connection) -> ConversationItem | None:
            row = db.execute(sql, (conversation_id, item_id)).fetchone() if _owns(db, conversation_id, owner) else None
            return _item(row) if row is not None else None

        found = await self._reader.run(read)
        if found is None:
            await self._confirm_missing()
        return found

    async def find_item(self, item_id: str, owner: str) -> ConversationItem | None:
        def read(db: sqlite3.Connection) -> ConversationItem | None:
            row = db.execute(_FIND_ITEM, (item_id, owner)).fetchone()
            return _item(row) if row is not None else None

        return await self._reader.run(read)

    async def delete_item(self, conversation_id: str, owner: str, item_id: str) -> bool:
        sql = "DELETE FROM conversation_items WHERE conversation_id = ? AND id = ?"

        def remove(db: sqlite3.Connection) -> bool:
            return _owns(db, conversation_id, owner) and db.execute(sql, (conversation_id, item_id)).rowcount > 0

        return await self._is_there(self._writer.run(remove))

    async def forget(self, before: float) -> int:
        gone = 0
        for sql in map(for_sqlite, forgetting.FORGET):

            def remove(db: sqlite3.Connection, sql: str = sql) -> int:
                return db.execute(sql, (before,)).rowcount

            while count := await self._writer.run(remove):
                gone += count
        await self._writer.run(lambda db: db.execute(unfinished.DROP_LEFT_CHUNKS))
        await self._writer.run(lambda db: [db.execute(for_sqlite(sql), (before,)) for sql in waiting_calls.FORGET])
        return gone

    async def is_healthy(self) -> bool:
        row, is_lost = await self._reader.run(lambda db: (db.execute("SELECT 1").fetchone(), self._look_at_file()))
        self._heed(is_lost)
        return row is not None

    async def close(self) -> None:
        await self._check.close()
        await self._writer.close()
        self._at_hand.close()
        if self._reader is not self._writer:
            await self._reader.close()
        self._presence.end()


def _waiting(db: sqlite3.Connection, owner: str, ids: Collection[str]) -> dict[str, WaitingCall]:
    sql = for_sqlite(waiting_calls.FIND)
    rows = ((call_id, db.execute(sql, (owner, call_id)).fetchone()) for call_id in ids)
    return {call_id: waiting_calls.call_of(row) for call_id, row in rows if row is not None}


def _owns(db: sqlite3.Connection, conversation_id: str, owner: str) -> bool:
    sql = "SELECT 1 FROM conversations WHERE id = ? AND owner = ?"
    return db.execute(sql, (conversation_id, owner)).fetchone() is not None


def _append(db: sqlite3.Connection, conversation_id: str, items: Sequence[ConversationItem]) -> None:
    sql = "SELECT COALESCE(MAX(position), 0) FROM conversation_items WHERE conversation_id = ?"
    last = db.execute(sql, (conversation_id,)).fetchone()[0]
    db.executemany(
        "INSERT INTO conversation_items (conversation_id, position, id, data) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (conversation_id, id) DO NOTHING",
        [(conversation_id, last + offset, item.id, item.data) for offset, item in enumerate(items, start=1)],
    )


def _item(row: tuple[str, object]) -> ConversationItem:
    return ConversationItem(id=row[0], data=check_json(row[1], row[0]))


def _response(row: tuple[object, ...]) -> StoredResponse:
    """Raises `sqlite3.DatabaseError` for a row that is not as it was written."""
    for value in row[_FIRST_JSON:]:
        check_json(value, str(row[0]))
    return StoredResponse(**dict(zip(_NAMES, row, strict=True)))  # type: ignore[arg-type] # by column
