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
from holodeck.lib.system.files import FILE_REPLACED, ReplacedFileCheck
from holodeck.storage import item_search
from holodeck.storage.base import (
    Conversation,
    ConversationContents,
    ConversationItem,
    Order,
    PendingCall,
    StoredResponse,
)
from holodeck.storage.liveness import FileLiveness, SoleLiveness
from holodeck.storage.sql import conversations, in_progress, pending_calls, retention
from holodeck.storage.sql.in_progress import for_sqlite
from holodeck.storage.sqlite import sqlite_in_progress
from holodeck.storage.sqlite.connection import Durability, InlineWriter, connect_sqlite
from holodeck.storage.sqlite.damage import FILE_DAMAGED, FileCheck, check_json
from holodeck.storage.sqlite.worker import Worker

_COLUMNS = "id, owner, created_at, status, previous_id, conversation_id, resource, input_items, items, pending, events"
_COLUMN_NAMES = _COLUMNS.split(", ")
_FIRST_JSON = _COLUMN_NAMES.index("resource")
_row_of = attrgetter(*_COLUMN_NAMES)
_UPDATED_COLUMNS = ", ".join(f"{name} = excluded.{name}" for name in (*_COLUMN_NAMES[1:], "keeper"))
_PLACEHOLDERS = ", ".join("?" * (len(_COLUMN_NAMES) + 1))
_INSERT_NEW = f"INSERT INTO responses ({_COLUMNS}, keeper) VALUES ({_PLACEHOLDERS}) ON CONFLICT (id) DO NOTHING"  # noqa: S608
_UPSERT = f"""
INSERT INTO responses ({_COLUMNS}, keeper) VALUES ({_PLACEHOLDERS})
ON CONFLICT (id) DO UPDATE SET {_UPDATED_COLUMNS}"""  # noqa: S608
_INSERT_QUEUED = (
    f"INSERT INTO responses ({_COLUMNS}, keeper, turn) VALUES ({_PLACEHOLDERS}, ?) ON CONFLICT (id) DO NOTHING"  # noqa: S608
)
_SELECT_RESPONSE = f"SELECT {_COLUMNS} FROM responses WHERE id = ?"  # noqa: S608 - names of our own
_SELECT_TEXTS = "SELECT resource, input_items FROM responses WHERE id = ?"
_FIND_ITEM = """
SELECT i.id, i.data FROM conversation_items i JOIN conversations c ON c.id = i.conversation_id
WHERE i.id = ? AND c.owner = ? ORDER BY c.created_at DESC LIMIT 1"""
_READ_CONVERSATION = for_sqlite(conversations.conversation_query("FALSE"))  # files are asked, not SQLite


class SQLiteStore:
    """One file, one writing thread, one reading thread; a request that is alone writes its response itself."""

    def __init__(self, path: Path | str, *, durability: Durability = "fast") -> None:
        self._path = str(path)
        self._durability = durability
        shared = self._path == ":memory:"
        self._liveness = SoleLiveness() if shared else FileLiveness(Path(f"{Path(self._path).resolve()}.alive"))
        self._file_check = FileCheck(None if shared else Path(self._path))
        on_damage = self._file_check.report
        self._writer = Worker(self._open_writer, is_writer=True, name="storage writer", on_damage=on_damage)
        self._inline_writer = InlineWriter()
        self._can_write_inline = durability == "fast" and not shared  # whoever waits for the disk waits elsewhere
        self._replaced_check = None if shared else ReplacedFileCheck(Path(self._path))
        self._open_lock = threading.Lock()
        self._reader = self._writer
        if not shared:
            self._reader = Worker(self._connect, is_writer=False, name="storage reader", on_damage=on_damage)

    @property
    def gateway_id(self) -> int:
        return self._liveness.number

    @property
    def unavailable_reason(self) -> str:
        return self._writer.unavailable_reason or (FILE_DAMAGED if self._file_check.damage else "")

    def _connect(self) -> sqlite3.Connection:
        with self._open_lock:
            connection = connect_sqlite(self._path, self._durability)
            if self._replaced_check is not None:
                self._replaced_check.remember_identity()
            return connection

    def _open_writer(self) -> sqlite3.Connection:
        """A connection to write with: what this process writes, it is there for."""
        connection = self._connect()
        try:
            self._liveness.start()
        except OSError:
            connection.close()
            raise
        if self._can_write_inline:
            with suppress(sqlite3.Error, OSError):  # it can be done without
                self._inline_writer.attach(connect_sqlite(self._path, self._durability, is_for_other_thread=True))
        return connection

    def _check_replaced(self) -> bool:
        """Whether the file is lost. Looked at every second, and not for every row."""
        return self._replaced_check is not None and self._replaced_check.check_replaced()

    def _require_usable(self, is_replaced: bool) -> None:
        """Write nothing more into a file that is lost or damaged. Raises `StorageError` while it is."""
        refusal = FILE_REPLACED if is_replaced else FILE_DAMAGED if self._file_check.damage else ""
        if refusal != self._writer.unavailable_reason:
            self._writer.unavailable_reason = refusal
            self._inline_writer.pause(is_over=not refusal)
        if refusal:
            raise StorageError(refusal)

    async def _require_undamaged(self) -> None:
        """Raise `StorageError` when what was not found may be there, in a file that is damaged."""
        await self._file_check.wait_checked()
        if self._file_check.damage:
            raise StorageError(FILE_DAMAGED)

    async def _confirm_found(self, change: Awaitable[bool]) -> bool:
        """Whether a change found what it was to change."""
        found = await change
        if not found:
            await self._require_undamaged()
        return found

    async def save(self, record: StoredResponse, *, is_alone: bool = False) -> None:
        values = (*_row_of(record), self.gateway_id)
        if is_alone and self._inline_writer.insert(_INSERT_NEW, values):
            return
        if await self._writer.run(lambda db: db.execute(_INSERT_NEW, values).rowcount, is_one_statement=True):
            return  # it is new, so nothing else is there of it

        def save(db: sqlite3.Connection) -> None:
            db.execute(_UPSERT, values)
            if in_progress.is_finished(record.status):
                db.execute(for_sqlite(in_progress.DELETE_CHUNKS), (record.id,))

        await self._writer.run(save)

    async def insert_within_quota(self, record: StoredResponse, *, quota: int, is_durable: bool) -> int | None:
        values = (*_row_of(record), self.gateway_id)

        def insert(db: sqlite3.Connection) -> int | None:
            standing = db.execute(for_sqlite(in_progress.READ_QUEUE_STATE), (record.owner, record.id)).fetchone()
            turn = in_progress.next_queue_position(standing, quota)
            if turn is not None:
                db.execute(_INSERT_QUEUED, (*values, turn if is_durable else None))
            return turn

        return await self._writer.run(insert)

    async def count_unfinished(self, caller_id: str) -> int:
        sql = for_sqlite(in_progress.COUNT_UNFINISHED)
        return int(await self._reader.run(lambda db: db.execute(sql, (caller_id,)).fetchone()[0]))

    async def finish(self, record: StoredResponse) -> bool:
        values = (*_row_of(record), self.gateway_id)

        def finish(db: sqlite3.Connection) -> bool:
            row = db.execute(for_sqlite(in_progress.GET_GATEWAY_ID), (record.id,)).fetchone()
            if row is None or row[0] != self.gateway_id:
                ended = (record.id, self.gateway_id, record.status, record.resource)
                return db.execute(for_sqlite(in_progress.FIND_FINISHED), ended).fetchone() is not None
            db.execute(_UPSERT, values)
            db.execute(for_sqlite(in_progress.DELETE_CHUNKS), (record.id,))
            return True

        return await self._writer.run(finish)

    async def get(self, response_id: str, caller_id: str) -> StoredResponse | None:
        def read(db: sqlite3.Connection) -> StoredResponse | None:
            row = db.execute(f"{_SELECT_RESPONSE} AND owner = ?", (response_id, caller_id)).fetchone()
            return _response_of(row) if row is not None else None

        found = await self._reader.run(read)
        if found is None:
            await self._require_undamaged()
        return found

    async def delete(self, response_id: str, caller_id: str) -> bool:
        sql = "DELETE FROM responses WHERE id = ? AND owner = ?"

        def remove(db: sqlite3.Connection) -> bool:
            if not db.execute(sql, (response_id, caller_id)).rowcount:
                return False
            db.execute(for_sqlite(in_progress.DELETE_CHUNKS), (response_id,))
            return True

        return await self._confirm_found(self._writer.run(remove))

    async def read_context(
        self, response_id: str, caller_id: str, *, max_bytes: int = DEFAULT_CONTEXT_BYTES
    ) -> list[bytes] | None:
        values = (response_id, caller_id, max_bytes)
        sql, where = for_sqlite(conversations.READ_CONTEXT), f"what comes before {response_id}"
        found = await self._reader.run(lambda db: [check_json(row[0], where) for row in db.execute(sql, values)])
        if not found:
            await self._require_undamaged()
        return found or None

    async def find_responses_containing(self, ids: Collection[str], caller_id: str) -> list[tuple[bytes, bytes]]:
        def find(db: sqlite3.Connection) -> list[tuple[bytes, bytes]]:
            search = item_search.ItemSearch(ids)
            for response_id in item_search.choose_newest(db.execute(for_sqlite(item_search.READ_SIZES), (caller_id,))):
                texts = db.execute(_SELECT_TEXTS, (response_id,)).fetchone()
                if texts is not None:
                    search.search_response(*(check_json(text, response_id) for text in texts))
                if search.is_complete:
                    break
            return search.found

        return await self._reader.run(find)

    async def read_orphans(self) -> list[StoredResponse]:
        def read(db: sqlite3.Connection) -> list[StoredResponse]:
            lost = sqlite_in_progress.find_orphans(db, self._liveness.is_alive)
            rows = (db.execute(_SELECT_RESPONSE, (response_id,)).fetchone() for response_id in lost)
            return [_response_of(row) for row in rows if row is not None]

        return await self._reader.run(read)

    async def find_orphans(self) -> dict[str, int | None]:
        def read(db: sqlite3.Connection) -> tuple[bool, dict[str, int | None]]:
            return self._check_replaced(), sqlite_in_progress.find_orphans(db, self._liveness.is_alive)

        self._file_check.start()
        is_lost, found = await self._reader.run(read)
        self._require_usable(is_lost)
        return found

    async def find_unfinished(self, ids: Collection[str]) -> set[str]:
        sql = for_sqlite(in_progress.GET_GATEWAY_ID)
        return await self._reader.run(lambda db: {each for each in ids if db.execute(sql, (each,)).fetchone()})

    async def assign_gateway(self, response_id: str, gateway_id: int | None = None) -> None:
        values = (response_id, gateway_id or self.gateway_id)
        await self._writer.run(lambda db: db.execute(for_sqlite(in_progress.ASSIGN_GATEWAY), values))

    async def append_events(
        self,
        response_id: str,
        first_number: int,
        events: Sequence[bytes],
        *,
        resource: bytes | None = None,
        status: str | None = None,
    ) -> bool:
        return await self._writer.run(
            lambda db: sqlite_in_progress.append_events(
                db, self.gateway_id, response_id, first_number, events, resource, status
            )
        )

    async def read_events(self, response_id: str, caller_id: str, starting_after: int = -1) -> list[bytes] | None:
        values = (response_id, caller_id, starting_after + 1)
        sql = for_sqlite(in_progress.READ_CHUNKS)

        def read(db: sqlite3.Connection) -> list[tuple[int, bytes | None]]:
            rows = db.execute(sql, values).fetchall()
            return [(first, events if events is None else check_json(events, response_id)) for first, events in rows]

        rows = await self._reader.run(read)
        return in_progress.events_after(starting_after, rows) if rows else None

    async def request_cancel(self, response_id: str, caller_id: str) -> bool:
        sql = for_sqlite(in_progress.REQUEST_CANCEL)
        return await self._writer.run(lambda db: db.execute(sql, (response_id, caller_id)).rowcount > 0)

    async def read_cancel_requests(self) -> list[str]:
        sql = for_sqlite(in_progress.READ_CANCEL_REQUESTS)
        return [row[0] for row in await self._reader.run(lambda db: db.execute(sql, (self.gateway_id,)).fetchall())]

    async def create_conversation(self, conversation: Conversation, items: Sequence[ConversationItem]) -> None:
        values = (conversation.id, conversation.owner, conversation.created_at, conversation.metadata)

        def create(db: sqlite3.Connection) -> None:
            db.execute("INSERT INTO conversations (id, owner, created_at, metadata) VALUES (?, ?, ?, ?)", values)
            _append_items(db, conversation.id, items)

        await self._writer.run(create)

    async def get_conversation(self, conversation_id: str, caller_id: str) -> Conversation | None:
        sql = "SELECT id, owner, created_at, metadata FROM conversations WHERE id = ? AND owner = ?"

        def read(db: sqlite3.Connection) -> Conversation | None:
            row = db.execute(sql, (conversation_id, caller_id)).fetchone()
            if row is None:
                return None
            return Conversation(id=row[0], owner=row[1], created_at=row[2], metadata=check_json(row[3], row[0]))

        found = await self._reader.run(read)
        if found is None:
            await self._require_undamaged()
        return found

    async def update_conversation(self, conversation_id: str, caller_id: str, metadata: bytes) -> bool:
        sql = "UPDATE conversations SET metadata = ? WHERE id = ? AND owner = ?"
        values = (metadata, conversation_id, caller_id)
        return await self._confirm_found(self._writer.run(lambda db: db.execute(sql, values).rowcount > 0))

    async def delete_conversation(self, conversation_id: str, caller_id: str) -> bool:
        sql = "DELETE FROM conversations WHERE id = ? AND owner = ?"
        values = (conversation_id, caller_id)
        return await self._confirm_found(self._writer.run(lambda db: db.execute(sql, values).rowcount > 0))

    async def add_items(
        self,
        conversation_id: str,
        caller_id: str,
        items: Sequence[ConversationItem],
        *,
        response_id: str | None = None,
        pending_calls: bytes | None = None,
    ) -> bool:
        def add(db: sqlite3.Connection) -> bool:
            state = db.execute(for_sqlite(conversations.GET_LEASE), (conversation_id, caller_id)).fetchone()
            if state is None:
                return False
            _append_items(db, conversation_id, items)
            if conversations.may_store_pending_calls(state, response_id, pending_calls):
                db.execute(for_sqlite(conversations.STORE_PENDING_CALLS), (conversation_id, pending_calls))
            return True

        return await self._confirm_found(self._writer.run(add))

    async def read_conversation(
        self, conversation_id: str, caller_id: str, *, limit: int, max_bytes: int = DEFAULT_CONTEXT_BYTES
    ) -> ConversationContents | None:
        def read(db: sqlite3.Connection) -> ConversationContents | None:
            rows = db.execute(_READ_CONVERSATION, (conversation_id, caller_id, limit, max_bytes)).fetchall()
            for row in rows:
                check_json(row[2] or b"", row[1] or conversation_id)  # a conversation in which nothing waits has none
            found = conversations.conversation_of(rows, self.gateway_id)
            if found is None or found.leased_by is None:
                return found
            return replace(found, is_leaseholder_alive=self._liveness.is_alive(rows[0][4]))

        found = await self._reader.run(read)
        if found is None:
            await self._require_undamaged()
        return found

    async def lease_conversation(
        self, conversation_id: str, caller_id: str, expected: ConversationContents, response_id: str
    ) -> bool:
        def lease(db: sqlite3.Connection) -> bool:
            state = db.execute(for_sqlite(conversations.GET_LEASE), (conversation_id, caller_id)).fetchone()
            end = db.execute(for_sqlite(conversations.GET_LAST_POSITION), (conversation_id,)).fetchone()[0]
            if not conversations.may_lease(state, end, expected, response_id):
                return False
            db.execute(for_sqlite(conversations.LEASE_CONVERSATION), (conversation_id, response_id, self.gateway_id))
            return True

        return await self._writer.run(lease)

    async def release_conversation(self, conversation_id: str, caller_id: str, response_id: str) -> None:
        values = (conversation_id, caller_id, response_id)
        await self._writer.run(lambda db: db.execute(for_sqlite(conversations.RELEASE_CONVERSATION), values))

    async def add_pending_calls(
        self, caller_id: str, response_id: str, digests: Mapping[str, bytes], *, client_call_ids: Collection[str] = ()
    ) -> None:
        now = time.time()
        calls = [(caller_id, call_id, now, digest) for call_id, digest in digests.items()]
        paused = [(caller_id, call_id, response_id, now) for call_id in client_call_ids]

        def insert(db: sqlite3.Connection) -> None:
            db.executemany(for_sqlite(pending_calls.ADD_PENDING_CALL), calls)
            db.executemany(for_sqlite(pending_calls.ADD_PAUSED_TURN), paused)

        await self._writer.run(insert)

    async def read_pending_calls(self, caller_id: str, ids: Collection[str]) -> dict[str, PendingCall]:
        return await self._reader.run(lambda db: _read_pending_calls(db, caller_id, ids))

    async def claim_calls(self, caller_id: str, ids: Collection[str], response_id: str) -> dict[str, str]:
        rows, now = [(caller_id, call_id) for call_id in ids], time.time()

        def claim(db: sqlite3.Connection) -> dict[str, str]:
            db.executemany(for_sqlite(pending_calls.ADD_PENDING_CALL), [(*row, now, None) for row in rows])
            others = pending_calls.claims_of_others(_read_pending_calls(db, caller_id, ids).items(), response_id)
            if not others:
                db.executemany(for_sqlite(pending_calls.CLAIM_CALL), [(*row, response_id) for row in rows])
            return others

        return await self._writer.run(claim)

    async def release_calls(self, caller_id: str, response_id: str, ids: Collection[str] | None = None) -> None:
        def release(db: sqlite3.Connection) -> None:
            if ids is None:
                db.execute(for_sqlite(pending_calls.RELEASE_ALL_CALLS), (caller_id, response_id))
            else:
                db.executemany(
                    for_sqlite(pending_calls.RELEASE_CALL), [(caller_id, call_id, response_id) for call_id in ids]
                )

        await self._writer.run(release)

    async def find_paused_responses(self, caller_id: str, call_id: str) -> list[str]:
        sql = for_sqlite(pending_calls.FIND_PAUSED_RESPONSES)
        return [row[0] for row in await self._reader.run(lambda db: db.execute(sql, (caller_id, call_id)).fetchall())]

    async def list_items(
        self,
        conversation_id: str,
        caller_id: str,
        *,
        after: str | None = None,
        limit: int = 100,
        order: Order = "asc",
        max_bytes: int = DEFAULT_CONTEXT_BYTES,
    ) -> list[ConversationItem] | None:
        sql = for_sqlite(conversations.items_query(order, is_after=after is not None))
        values = (conversation_id, limit, max_bytes, *((after,) if after is not None else ()))

        def read(db: sqlite3.Connection) -> list[ConversationItem] | None:
            if not _has_conversation(db, conversation_id, caller_id):
                return None
            return [_item_of(row) for row in db.execute(sql, values)]

        found = await self._reader.run(read)
        if found is None:
            await self._require_undamaged()
        return found

    async def get_item(self, conversation_id: str, caller_id: str, item_id: str) -> ConversationItem | None:
        sql = "SELECT id, data FROM conversation_items WHERE conversation_id = ? AND id = ?"

        def read(db: sqlite3.Connection) -> ConversationItem | None:
            row = (
                db.execute(sql, (conversation_id, item_id)).fetchone()
                if _has_conversation(db, conversation_id, caller_id)
                else None
            )
            return _item_of(row) if row is not None else None

        found = await self._reader.run(read)
        if found is None:
            await self._require_undamaged()
        return found

    async def find_item(self, item_id: str, caller_id: str) -> ConversationItem | None:
        def read(db: sqlite3.Connection) -> ConversationItem | None:
            row = db.execute(_FIND_ITEM, (item_id, caller_id)).fetchone()
            return _item_of(row) if row is not None else None

        return await self._reader.run(read)

    async def delete_item(self, conversation_id: str, caller_id: str, item_id: str) -> bool:
        sql = "DELETE FROM conversation_items WHERE conversation_id = ? AND id = ?"

        def remove(db: sqlite3.Connection) -> bool:
            return (
                _has_conversation(db, conversation_id, caller_id)
                and db.execute(sql, (conversation_id, item_id)).rowcount > 0
            )

        return await self._confirm_found(self._writer.run(remove))

    async def delete_older_than(self, before: float) -> int:
        gone = 0
        for sql in map(for_sqlite, retention.DELETE_OLD):

            def remove(db: sqlite3.Connection, sql: str = sql) -> int:
                return db.execute(sql, (before,)).rowcount

            while count := await self._writer.run(remove):
                gone += count
        await self._writer.run(lambda db: db.execute(in_progress.DELETE_ORPHAN_CHUNKS))
        await self._writer.run(
            lambda db: [db.execute(for_sqlite(sql), (before,)) for sql in pending_calls.DELETE_OLD_CALLS]
        )
        return gone

    async def check_health(self) -> bool:
        row, is_lost = await self._reader.run(lambda db: (db.execute("SELECT 1").fetchone(), self._check_replaced()))
        self._require_usable(is_lost)
        return row is not None

    async def close(self) -> None:
        await self._file_check.close()
        await self._writer.close()
        self._inline_writer.close()
        if self._reader is not self._writer:
            await self._reader.close()
        self._liveness.stop()


def _read_pending_calls(db: sqlite3.Connection, caller_id: str, ids: Collection[str]) -> dict[str, PendingCall]:
    sql = for_sqlite(pending_calls.FIND_PENDING_CALL)
    rows = ((call_id, db.execute(sql, (caller_id, call_id)).fetchone()) for call_id in ids)
    return {call_id: pending_calls.pending_call_of(row) for call_id, row in rows if row is not None}


def _has_conversation(db: sqlite3.Connection, conversation_id: str, caller_id: str) -> bool:
    sql = "SELECT 1 FROM conversations WHERE id = ? AND owner = ?"
    return db.execute(sql, (conversation_id, caller_id)).fetchone() is not None


def _append_items(db: sqlite3.Connection, conversation_id: str, items: Sequence[ConversationItem]) -> None:
    sql = "SELECT COALESCE(MAX(position), 0) FROM conversation_items WHERE conversation_id = ?"
    last = db.execute(sql, (conversation_id,)).fetchone()[0]
    db.executemany(
        "INSERT INTO conversation_items (conversation_id, position, id, data) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (conversation_id, id) DO NOTHING",
        [(conversation_id, last + offset, item.id, item.data) for offset, item in enumerate(items, start=1)],
    )


def _item_of(row: tuple[str, object]) -> ConversationItem:
    return ConversationItem(id=row[0], data=check_json(row[1], row[0]))


def _response_of(row: tuple[object, ...]) -> StoredResponse:
    """Raises `sqlite3.DatabaseError` for a row that is not as it was written."""
    for value in row[_FIRST_JSON:]:
        check_json(value, str(row[0]))
    return StoredResponse(**dict(zip(_COLUMN_NAMES, row, strict=True)))  # type: ignore[arg-type] # by column
