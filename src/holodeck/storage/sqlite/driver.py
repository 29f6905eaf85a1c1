"""Driver of a store in one SQLite file.

`SQLiteDriver` decides on which thread a job runs. It owns two threads, each with a connection: a writer, whose jobs
share transactions, and a reader, which never waits for the writer because the file has a write-ahead log. A request
that is alone inserts its response on the thread of the event loop (`InlineWriter`). A database in memory has one thread
for both.

Writes raise `StorageError` once the file is damaged, and while it is deleted or replaced. `require_usable` and
`check_health`, which a gateway calls regularly, detect that for the other methods. A row that is not found is
reported as missing only after a recent check of the file: see `damage`. A file that has lost its last commits is
noticed when it is opened: see `Tail`.

Durability `fast` (the default) preserves every acknowledged write when the process dies; a loss of power may lose the
last moments, but does not damage the file. `safe` waits for the disk on every transaction.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from holodeck.lib.errors import StorageError
from holodeck.lib.system.files import FILE_REPLACED, ReplacedFileCheck
from holodeck.storage.jobs import Connection, Job
from holodeck.storage.liveness import FileLiveness, SoleLiveness
from holodeck.storage.sqlite.connection import Durability, InlineWriter, SQLiteConnection, connect_sqlite
from holodeck.storage.sqlite.damage import DAMAGED_REASON, FILE_DAMAGED, LOST_REASON, FileCheck, Tail
from holodeck.storage.sqlite.worker import Worker
from holodeck.storage.write_health import STORE_PROBE, WriteHealth, make_probe_data

T = TypeVar("T")

REPLACED_REASON = "the file of the database was deleted or replaced"


class SQLiteDriver:
    """`Driver` of a SQLite file. The threads start, and the file is opened, with the first job."""

    has_writing_queries = False
    search_batch = 1

    def __init__(self, path: Path | str, *, durability: Durability = "fast") -> None:
        self._path = str(path)
        self._durability = durability
        is_in_memory = self._path == ":memory:"
        self._liveness = SoleLiveness() if is_in_memory else FileLiveness(Path(f"{Path(self._path).resolve()}.alive"))
        self.gateway_id = self._liveness.number
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

    def read(self, job: Job[T], *, confirms_missing: bool = False) -> Awaitable[T]:
        return self._read_or_check(job) if confirms_missing else self._reader.run(job)

    def write(
        self,
        job: Job[T],
        *,
        is_one_statement: bool = False,
        is_repeatable: bool = True,
        confirms_missing: bool = False,
        exclusive_to: str | None = None,
    ) -> Awaitable[T]:
        # A commit is never in doubt here, and there is one writer, so that two of the parameters change nothing.
        writing = self._writer.run(job, is_one_statement=is_one_statement)
        return self._confirm_found(writing) if confirms_missing else writing

    def write_statement(self, sql: str, values: tuple[object, ...]) -> Awaitable[int]:
        return self._writer.run(lambda db: db.write_counted(sql, *values), is_one_statement=True)

    def write_inline(self, job: Job[bool], *, is_one_statement: bool) -> bool:
        return self._inline_writer.run(job, is_one_statement=is_one_statement)

    async def require_usable(self) -> None:
        self._file_check.start()
        await self._require_usable(await self._reader.run(self._check_replaced))
        await self._mark_tail()

    async def check_health(self) -> bool:
        await self._require_usable(await self._reader.run(self._check_replaced))
        return True

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

    def _connect(self) -> SQLiteConnection:
        with self._open_lock:
            connection = connect_sqlite(self._path, self._durability)
            connection.define_is_alive(self._liveness.is_alive)
            if self._replaced_check is not None:
                self._replaced_check.remember_identity()
            try:
                self._tail.check_loss(connection)
            except sqlite3.Error:
                connection.close()
                raise
            return connection

    def _open_writer(self) -> SQLiteConnection:
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

    async def _read_or_check(self, job: Job[T]) -> T:
        """Return what a job finds. Raises `StorageError` if that is None and the file is damaged, or has lost rows."""
        found = await self._reader.run(job)
        if found is None:
            await self._require_undamaged()
            if self._tail.loss:
                raise StorageError(self._tail.loss, reason=LOST_REASON)
        return found

    async def _mark_tail(self) -> None:
        """Mark the latest commit at both places, if something was written since the last time."""
        writes = self._writer.batches + self._inline_writer.written
        if writes == self._marked_writes or self._file_check.damage:
            return
        number = await self._writer.run(self._tail.count_mark)
        # The mark itself is one batch.
        self._marked_writes = writes + 1

        async def write_mark(_: Connection) -> None:
            self._tail.write_mark(number)

        await self._reader.run(write_mark)

    async def _confirm_found(self, writing: Awaitable[T]) -> T:
        """Return the outcome of a change. Raises `StorageError` if that is False and the file is damaged."""
        is_found = await writing
        if is_found is False:
            await self._require_undamaged()
        return is_found

    async def _require_undamaged(self) -> None:
        await self._file_check.wait_checked()
        if self._file_check.damage:
            raise StorageError(FILE_DAMAGED, reason=DAMAGED_REASON)

    async def _check_replaced(self, db: Connection) -> bool:
        """Return whether the file was deleted or replaced. A job of the reader's thread, once a second."""
        await db.fetch_row("SELECT 1")
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
        data = make_probe_data()
        await self._writer.run(lambda db: db.write(STORE_PROBE, data), is_one_statement=True)
