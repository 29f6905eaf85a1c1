"""Store of responses and conversations in one SQLite file.

`SQLiteStore` decides on which thread a statement runs; the statements are in `response_rows` and `conversation_rows`.
It owns two threads, each with a connection: a writer, whose jobs share transactions, and a reader, which never waits
for the writer because the file has a write-ahead log. A request that is alone inserts its response on the thread of
the event loop (`InlineWriter`). A database in memory has one thread for both.

Writes raise `StorageError` once the file is damaged, and while it is deleted or replaced. `find_orphans` and
`check_health`, which a gateway calls regularly, detect that for the other methods. A row that is not found is
reported as missing only after a recent check of the file: see `damage`. A file that has lost its last commits is
noticed when it is opened: see `tail`.

Durability `fast` (the default) preserves every acknowledged write when the process dies; a loss of power may lose the
last moments, but does not damage the file. `safe` waits for the disk on every transaction.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from holodeck.lib.errors import StorageError
from holodeck.lib.limits import DEFAULT_CONTEXT_BYTES
from holodeck.lib.system.files import FILE_REPLACED, ReplacedFileCheck
from holodeck.storage.base import (
    Conversation,
    ConversationContents,
    ConversationItem,
    Order,
    PendingCall,
    StoredResponse,
)
from holodeck.storage.liveness import FileLiveness, SoleLiveness
from holodeck.storage.sql import audit_ends, conversations, in_progress, pending_calls, retention
from holodeck.storage.sql import elicitations as elicitation_sql
from holodeck.storage.sql import idempotency_keys as key_sql
from holodeck.storage.sql import runs as run_sql
from holodeck.storage.sql.in_progress import for_sqlite
from holodeck.storage.sql.response_values import size_of, values_of
from holodeck.storage.sqlite import conversation_rows, response_rows
from holodeck.storage.sqlite.connection import INLINE_WRITE_BYTES, Durability, InlineWriter, connect_sqlite
from holodeck.storage.sqlite.damage import DAMAGED_REASON, FILE_DAMAGED, FileCheck
from holodeck.storage.sqlite.elicitations import SQLiteElicitations
from holodeck.storage.sqlite.idempotency_keys import SQLiteIdempotencyKeys
from holodeck.storage.sqlite.run_index import SQLiteRunIndex
from holodeck.storage.sqlite.tail import LOST_REASON, Tail
from holodeck.storage.sqlite.usage import SQLiteUsage
from holodeck.storage.sqlite.worker import Worker
from holodeck.storage.write_health import STORE_PROBE, WriteHealth, make_probe_data

T = TypeVar("T")

REPLACED_REASON = "the file of the database was deleted or replaced"


class SQLiteStore:
    """`ResponseStore` in a SQLite file. The threads start, and the file is opened, with the first call."""

    def __init__(self, path: Path | str, *, durability: Durability = "fast") -> None:
        self._path = str(path)
        self._durability = durability
        is_in_memory = self._path == ":memory:"
        self._liveness = SoleLiveness() if is_in_memory else FileLiveness(Path(f"{Path(self._path).resolve()}.alive"))
        self._file_check = FileCheck(None if is_in_memory else Path(self._path))
        on_damage = self._file_check.report
        self._write_health = WriteHealth(self._probe)
        self._writer = Worker(
            self._open_writer,
            is_writer=True,
            name="storage writer",
            on_damage=on_damage,
            on_failure=self._write_health.report_failure,
        )
        self._inline_writer = InlineWriter()
        # With `safe`, a write waits for the disk, which the event loop must not.
        self._can_write_inline = durability == "fast" and not is_in_memory
        self._tail = Tail(None if is_in_memory else Path(self._path))
        self._marked_writes = 0
        """How many writes there were when the tail was last marked."""
        self._replaced_check = None if is_in_memory else ReplacedFileCheck(Path(self._path))
        self._open_lock = threading.Lock()
        self._reader = self._writer
        if not is_in_memory:
            self._reader = Worker(self._connect, is_writer=False, name="storage reader", on_damage=on_damage)
        self.runs = SQLiteRunIndex(self._reader)
        self.usage = SQLiteUsage(self._reader, self._writer)
        self.idempotency_keys = SQLiteIdempotencyKeys(self._reader, self._writer)
        self.elicitations = SQLiteElicitations(self._reader, self._writer, self._liveness)

    @property
    def gateway_id(self) -> int:
        return self._liveness.number

    @property
    def unavailable_reason(self) -> str:
        failure = self._write_health.failure
        return (
            self._writer.unavailable_reason
            or (FILE_DAMAGED if self._file_check.damage else "")
            or ("" if failure is None else str(failure))
        )

    @property
    def loss(self) -> str:
        return LOST_REASON if self._tail.loss else ""

    async def save(self, record: StoredResponse, *, is_alone: bool = False, is_reserved: bool = False) -> None:
        if is_reserved:
            await self._writer.run(lambda db: response_rows.replace_response(db, record, self.gateway_id))
            return
        if is_alone and self._insert_inline(record):
            return
        is_new = await self._writer.run(
            lambda db: response_rows.insert_response(db, record, self.gateway_id), is_one_statement=record.run is None
        )
        # A new response has no chunks to delete.
        if not is_new:
            await self._writer.run(lambda db: response_rows.replace_response(db, record, self.gateway_id))

    def _insert_inline(self, record: StoredResponse) -> bool:
        """Insert a response on this thread. False: it is too large, or `InlineWriter` cannot."""
        if size_of(record) > INLINE_WRITE_BYTES:
            return False
        also = None if record.run is None else (response_rows.STORE_RUN, run_sql.values_of(record.run))
        return self._inline_writer.insert(response_rows.INSERT_NEW, values_of(record, self.gateway_id), also=also)

    async def reserve(self, record: StoredResponse) -> None:
        await self._writer.run(lambda db: response_rows.reserve_response(db, record, self.gateway_id))

    async def insert_within_quota(self, record: StoredResponse, *, quota: int, is_durable: bool) -> int | None:
        return await self._writer.run(
            lambda db: response_rows.insert_within_quota(
                db, record, self.gateway_id, quota=quota, is_durable=is_durable
            )
        )

    async def count_unfinished(self, caller_id: str) -> int:
        sql = for_sqlite(in_progress.COUNT_UNFINISHED)
        return int(await self._reader.run(lambda db: db.execute(sql, (caller_id,)).fetchone()[0]))

    async def finish(self, record: StoredResponse) -> bool:
        return await self._writer.run(lambda db: response_rows.finish_response(db, record, self.gateway_id))

    async def get(self, response_id: str, caller_id: str) -> StoredResponse | None:
        return await self._read_or_check(lambda db: response_rows.read_response(db, response_id, caller_id))

    async def delete(self, response_id: str, caller_id: str) -> bool:
        return await self._confirm_found(
            self._writer.run(lambda db: response_rows.delete_response(db, response_id, caller_id))
        )

    async def read_context(
        self, response_id: str, caller_id: str, *, max_bytes: int = DEFAULT_CONTEXT_BYTES
    ) -> list[bytes] | None:
        return await self._read_or_check(
            lambda db: response_rows.read_context(db, response_id, caller_id, max_bytes) or None
        )

    async def find_responses_containing(self, ids: Collection[str], caller_id: str) -> list[tuple[bytes, bytes]]:
        return await self._reader.run(lambda db: response_rows.find_responses_containing(db, ids, caller_id))

    async def read_orphans(self) -> list[StoredResponse]:
        return await self._reader.run(lambda db: response_rows.read_orphans(db, self._liveness.is_alive))

    async def find_orphans(self) -> dict[str, int | None]:
        self._file_check.start()
        is_replaced, found = await self._reader.run(
            lambda db: (self._check_replaced(), response_rows.find_orphans(db, self._liveness.is_alive))
        )
        await self._require_usable(is_replaced)
        await self._mark_tail()
        return found

    async def find_unfinished(self, ids: Collection[str]) -> set[str]:
        sql = for_sqlite(in_progress.GET_GATEWAY_ID)
        return await self._reader.run(lambda db: {each for each in ids if db.execute(sql, (each,)).fetchone()})

    async def find_unfinished_before(self, created_before: float) -> dict[str, str]:
        sql = for_sqlite(in_progress.FIND_UNFINISHED_BEFORE)
        return await self._reader.run(lambda db: dict(db.execute(sql, (created_before,)).fetchall()))

    async def find_assigned(self) -> dict[str, str]:
        sql = for_sqlite(in_progress.FIND_ASSIGNED)
        return await self._reader.run(lambda db: dict(db.execute(sql, (self.gateway_id,)).fetchall()))

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
        trace: bytes | None = None,
    ) -> bool:
        return await self._writer.run(
            lambda db: response_rows.append_events(
                db, self.gateway_id, response_id, first_number, events, resource, status, trace
            )
        )

    async def read_events(self, response_id: str, caller_id: str, starting_after: int = -1) -> list[bytes] | None:
        chunks = await self._reader.run(
            lambda db: response_rows.read_chunks(db, response_id, caller_id, starting_after + 1)
        )
        return in_progress.events_after(starting_after, chunks) if chunks else None

    async def request_cancel(self, response_id: str, caller_id: str) -> bool:
        sql = for_sqlite(in_progress.REQUEST_CANCEL)
        return await self._writer.run(lambda db: db.execute(sql, (response_id, caller_id)).rowcount > 0)

    async def read_cancel_requests(self) -> list[str]:
        sql = for_sqlite(in_progress.READ_CANCEL_REQUESTS)
        return [row[0] for row in await self._reader.run(lambda db: db.execute(sql, (self.gateway_id,)).fetchall())]

    async def create_conversation(self, conversation: Conversation, items: Sequence[ConversationItem]) -> None:
        await self._writer.run(lambda db: conversation_rows.create_conversation(db, conversation, items))

    async def get_conversation(self, conversation_id: str, caller_id: str) -> Conversation | None:
        return await self._read_or_check(lambda db: conversation_rows.read_conversation(db, conversation_id, caller_id))

    async def list_conversations(
        self, caller_id: str, *, after: str | None, limit: int, order: Order
    ) -> list[Conversation] | None:
        return await self._read_or_check(
            lambda db: conversation_rows.list_conversations(db, caller_id, after=after, limit=limit, order=order)
        )

    async def update_conversation(self, conversation_id: str, caller_id: str, metadata: bytes) -> bool:
        return await self._confirm_found(
            self._writer.run(lambda db: conversation_rows.update_conversation(db, conversation_id, caller_id, metadata))
        )

    async def delete_conversation(self, conversation_id: str, caller_id: str) -> bool:
        return await self._confirm_found(
            self._writer.run(lambda db: conversation_rows.delete_conversation(db, conversation_id, caller_id))
        )

    async def add_items(
        self,
        conversation_id: str,
        caller_id: str,
        items: Sequence[ConversationItem],
        *,
        response_id: str | None = None,
        pending_calls: bytes | None = None,
    ) -> bool:
        return await self._confirm_found(
            self._writer.run(
                lambda db: conversation_rows.add_items(
                    db, conversation_id, caller_id, items, response_id=response_id, pending_calls=pending_calls
                )
            )
        )

    async def read_conversation(
        self, conversation_id: str, caller_id: str, *, limit: int, max_bytes: int = DEFAULT_CONTEXT_BYTES
    ) -> ConversationContents | None:
        return await self._read_or_check(
            lambda db: conversation_rows.read_contents(
                db,
                conversation_id,
                caller_id,
                limit=limit,
                max_bytes=max_bytes,
                gateway_id=self.gateway_id,
                is_alive=self._liveness.is_alive,
            )
        )

    async def lease_conversation(
        self, conversation_id: str, caller_id: str, expected: ConversationContents, response_id: str
    ) -> bool:
        return await self._writer.run(
            lambda db: conversation_rows.lease_conversation(
                db, conversation_id, caller_id, expected, response_id, self.gateway_id
            )
        )

    async def release_conversation(self, conversation_id: str, caller_id: str, response_id: str) -> None:
        values = (conversation_id, caller_id, response_id)
        await self._writer.run(lambda db: db.execute(for_sqlite(conversations.RELEASE_CONVERSATION), values))

    async def add_pending_calls(
        self, caller_id: str, response_id: str, digests: Mapping[str, bytes], *, client_call_ids: Collection[str] = ()
    ) -> None:
        await self._writer.run(
            lambda db: conversation_rows.add_pending_calls(db, caller_id, response_id, digests, client_call_ids)
        )

    async def read_pending_calls(self, caller_id: str, ids: Collection[str]) -> dict[str, PendingCall]:
        return await self._reader.run(lambda db: conversation_rows.read_pending_calls(db, caller_id, ids))

    async def claim_calls(self, caller_id: str, ids: Collection[str], response_id: str) -> dict[str, str]:
        return await self._writer.run(lambda db: conversation_rows.claim_calls(db, caller_id, ids, response_id))

    async def release_calls(self, caller_id: str, response_id: str, ids: Collection[str] | None = None) -> None:
        await self._writer.run(lambda db: conversation_rows.release_calls(db, caller_id, response_id, ids))

    async def find_paused_responses(self, caller_id: str, call_id: str) -> list[str]:
        return await self._reader.run(lambda db: conversation_rows.find_paused_responses(db, caller_id, call_id))

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
        return await self._read_or_check(
            lambda db: conversation_rows.list_items(
                db, conversation_id, caller_id, after=after, limit=limit, order=order, max_bytes=max_bytes
            )
        )

    async def get_item(self, conversation_id: str, caller_id: str, item_id: str) -> ConversationItem | None:
        return await self._read_or_check(
            lambda db: conversation_rows.read_item(db, conversation_id, caller_id, item_id)
        )

    async def find_item(self, item_id: str, caller_id: str) -> ConversationItem | None:
        return await self._reader.run(lambda db: conversation_rows.find_item(db, item_id, caller_id))

    async def delete_item(self, conversation_id: str, caller_id: str, item_id: str) -> bool:
        return await self._confirm_found(
            self._writer.run(lambda db: conversation_rows.delete_item(db, conversation_id, caller_id, item_id))
        )

    async def read_audit_end(self, file: str) -> tuple[int, str] | None:
        sql = for_sqlite(audit_ends.READ_AUDIT_END)
        row = await self._reader.run(lambda db: db.execute(sql, (file,)).fetchone())
        return None if row is None else (row[0], row[1])

    async def store_audit_end(self, file: str, seq: int, line_hash: str) -> None:
        sql = for_sqlite(audit_ends.STORE_AUDIT_END)
        await self._writer.run(lambda db: db.execute(sql, (file, seq, line_hash)), is_one_statement=True)

    async def delete_older_than(self, before: float) -> int:
        total = 0
        for sql in map(for_sqlite, (*retention.DELETE_OLD, run_sql.DELETE_OLD_RUNS)):

            def delete_batch(db: sqlite3.Connection, sql: str = sql) -> int:
                return db.execute(sql, (before,)).rowcount

            while count := await self._writer.run(delete_batch):
                total += count
        await self._writer.run(lambda db: db.execute(in_progress.DELETE_ORPHAN_CHUNKS))
        await self._writer.run(
            lambda db: [db.execute(for_sqlite(sql), (before,)) for sql in pending_calls.DELETE_OLD_CALLS]
        )
        expired = (for_sqlite(elicitation_sql.DELETE_EXPIRED), (time.time(),))
        await self._writer.run(lambda db: db.execute(*expired))
        expired_keys = (for_sqlite(key_sql.DELETE_EXPIRED), (key_sql.oldest_time(),))
        await self._writer.run(lambda db: db.execute(*expired_keys))
        return total

    async def check_health(self) -> bool:
        row, is_replaced = await self._reader.run(
            lambda db: (db.execute("SELECT 1").fetchone(), self._check_replaced())
        )
        await self._require_usable(is_replaced)
        return row is not None

    async def close(self) -> None:
        """Finish all jobs, close all connections, and release the liveness lock of this gateway."""
        await self._file_check.close()
        await self._write_health.close()
        with suppress(StorageError):
            await self._mark_tail()
        await self._writer.close()
        self._inline_writer.close()
        if self._reader is not self._writer:
            await self._reader.close()
        self._liveness.stop()

    def _connect(self) -> sqlite3.Connection:
        with self._open_lock:
            connection = connect_sqlite(self._path, self._durability)
            if self._replaced_check is not None:
                self._replaced_check.remember_identity()
            try:
                self._tail.check_loss(connection)
            except sqlite3.Error:
                connection.close()
                raise
            return connection

    def _open_writer(self) -> sqlite3.Connection:
        """Open the connection of the writer. This gateway counts as alive before it writes anything."""
        connection = self._connect()
        try:
            self._liveness.start()
        except OSError:
            connection.close()
            raise
        if self._can_write_inline:
            # The inline writer is an optimization; without it the writer inserts all rows.
            with suppress(sqlite3.Error, OSError):
                self._inline_writer.attach(connect_sqlite(self._path, self._durability, is_for_other_thread=True))
        return connection

    async def _read_or_check(self, read: Callable[[sqlite3.Connection], T | None]) -> T | None:
        """What `read` finds. Raises `StorageError` when it finds nothing and the file is damaged, or has lost rows."""
        found = await self._reader.run(read)
        if found is None:
            await self._require_undamaged()
            if self._tail.loss:
                raise StorageError(self._tail.loss, reason=LOST_REASON)
        return found

    async def _mark_tail(self) -> None:
        """Mark the latest commit at both places, if something was written since the last time."""
        writes = self._writer.batches + self._inline_writer.inserted
        if writes == self._marked_writes or self._file_check.damage:
            return
        number = await self._writer.run(self._tail.count_mark)
        # The mark itself is one batch.
        self._marked_writes = writes + 1
        await self._reader.run(lambda db: self._tail.write_mark(number))

    async def _confirm_found(self, change: Awaitable[bool]) -> bool:
        """Whether a change found its row. Raises `StorageError` when it did not and the file is damaged."""
        is_found = await change
        if not is_found:
            await self._require_undamaged()
        return is_found

    async def _require_undamaged(self) -> None:
        await self._file_check.wait_checked()
        if self._file_check.damage:
            raise StorageError(FILE_DAMAGED, reason=DAMAGED_REASON)

    def _check_replaced(self) -> bool:
        """Whether the file was deleted or replaced. Called once a second, on the reader's thread, not for every row."""
        self._tail.check_acknowledged()
        return self._replaced_check is not None and self._replaced_check.check_replaced()

    async def _require_usable(self, is_replaced: bool) -> None:
        """Stop all writes while the file is replaced or damaged, and raise `StorageError`; else allow them again.

        Also raises `StorageError` while writes fail: see `WriteHealth`.
        """
        reason = FILE_REPLACED if is_replaced else FILE_DAMAGED if self._file_check.damage else ""
        if reason != self._writer.unavailable_reason:
            self._writer.unavailable_reason = reason
            self._inline_writer.pause(is_over=not reason)
        if reason:
            raise StorageError(reason, reason=REPLACED_REASON if is_replaced else DAMAGED_REASON)
        await self._write_health.require_writable()

    async def _probe(self) -> None:
        values = (make_probe_data(),)
        await self._writer.run(lambda db: db.execute(for_sqlite(STORE_PROBE), values), is_one_statement=True)
