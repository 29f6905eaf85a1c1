"""Driver of a store in one SQLite file.

`SQLiteDriver` decides on which thread a job runs. It owns two threads, each with a connection: a writer, whose jobs
share transactions, and a reader, which never waits for the writer because the file has a write-ahead log. A request
that is alone inserts its response on the thread of the event loop (`InlineWriter`). A database in memory has one thread
for both.

A `Worker` is one of these threads. Jobs (see `holodeck.storage.jobs`) run in the order in which `Worker.run` was
called; callers await the results on their own event loops. The jobs of a writer that are queued at the same time share
a transaction. If one of them fails, the transaction is rolled back and all of them run again, each in a savepoint, so
that only the failed one is undone: savepoints for every job would cost about a tenth of a small write. So a job may run
twice. The results are delivered after the commit. Where the commit itself fails, or SQLite rolls back everything, all
jobs of the batch fail with the same `StorageError`.

Writes raise `StorageError` once the file is damaged, and while it is deleted or replaced. `require_usable` and
`check_health`, which a gateway calls regularly, detect that for the other methods. A row that is not found is
reported as missing only after a recent check of the file: see `damage`. A file that has lost its last commits is
noticed when it is opened: see `Tail`.

Durability `fast` (the default) preserves every acknowledged write when the process dies; a loss of power may lose the
last moments, but does not damage the file. `safe` waits for the disk on every transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from holodeck.lib.errors import StorageError
from holodeck.lib.system.files import FILE_REPLACED, ReplacedFileCheck
from holodeck.storage.jobs import Connection, DamagedValueError, Job
from holodeck.storage.liveness import FileLiveness, SoleLiveness
from holodeck.storage.sqlite.connection import JOB_SUSPENDED, Durability, InlineWriter, SQLiteConnection, connect_sqlite
from holodeck.storage.sqlite.damage import DAMAGED_REASON, FILE_DAMAGED, LOST_REASON, FileCheck, Tail, is_damage
from holodeck.storage.write_health import STORE_PROBE, WriteHealth, make_probe_data

# Queued jobs after which no more are collected for a transaction: the first of them waits for all.
GROUP_COMMIT_JOBS = 64
QueuedJob = tuple[Job[Any], bool, asyncio.AbstractEventLoop, "asyncio.Future[Any]"]

_CHECK_OWNER = (
    "Check its owner and the folder's, and 'storage.url', which names it: absent, it is beside the gateway's file."
)
_REASONS = (
    ("full", "the disk is full. Make room; nothing was half written."),
    ("readonly", f"the file is read-only. {_CHECK_OWNER}"),
    ("read-only", f"the file is read-only. {_CHECK_OWNER}"),
    ("permission denied", f"this user may not write there. {_CHECK_OWNER}"),
    ("locked", "another process keeps it locked. Stop that one, or use PostgreSQL for several gateways."),
    ("not a database", "the file is not a database. Move it away, or use another path."),
    ("unable to open", "the file cannot be opened. Check the path and its owner."),
    ("disk i/o error", "the disk reports an error."),
)


def _ignore(report: object) -> None:
    pass


class Worker:
    """Runs jobs in order on one thread, which starts with the first job and ends with `close`."""

    def __init__(
        self,
        connect: Callable[[], SQLiteConnection],
        *,
        is_writer: bool,
        name: str,
        on_damage: Callable[[str], None] = _ignore,
        on_failure: Callable[[StorageError], None] = _ignore,
    ) -> None:
        """Take the callbacks, which are called on the worker's thread. `on_damage` gets SQLite's text of the damage.

        `on_failure` gets every other error of SQLite and of the system that is not about the values of a job.
        """
        self._on_damage = on_damage
        self._on_failure = on_failure
        self._connect = connect
        self._is_writer = is_writer
        self.unavailable_reason = ""
        """While it is set, every job fails with a `StorageError` of this text."""
        self.batches = 0
        """How many batches were run without an error of the whole batch."""
        self._name = name
        self._jobs: queue.SimpleQueue[list[QueuedJob] | None] = queue.SimpleQueue()
        self._new_jobs: list[QueuedJob] = []
        self._thread: threading.Thread | None = None

    async def run(self, job: Job[T], *, is_one_statement: bool = False) -> T:
        """Run a job on the connection, and return its result. What a writer's job wrote is committed then.

        Raises `StorageError` for errors of SQLite and of the system, and any other exception of the job as it is.
        A caller that is cancelled does not stop its job.
        `is_one_statement`: the job is atomic by itself, so that it needs no transaction when it is alone.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._run_thread, name=self._name, daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if not self._new_jobs or self._new_jobs[-1][2] is not loop:
            # Waking the thread costs more than a job, so the jobs of one iteration of the loop are sent together.
            loop.call_soon(self._send_jobs)
        self._new_jobs.append((job, is_one_statement, loop, future))
        result: T = await future
        return result

    async def close(self) -> None:
        """Finish all jobs, and wait until the thread has closed its connection."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._send_jobs()
            self._jobs.put(None)
            await asyncio.to_thread(thread.join)

    def _send_jobs(self) -> None:
        jobs, self._new_jobs = self._new_jobs, []
        if jobs:
            self._jobs.put(jobs)

    def _run_thread(self) -> None:
        connection: SQLiteConnection | None = None
        jobs: list[QueuedJob] | None = []
        while jobs is not None:
            jobs = self._jobs.get()
            batch = jobs or []
            while jobs is not None and self._is_writer and len(batch) < GROUP_COMMIT_JOBS:
                try:
                    jobs = self._jobs.get_nowait()
                except queue.Empty:
                    break
                batch += jobs or []
            if not batch:
                continue
            try:
                connection = self._require_connection(connection)
                outcomes = self._run_batch(connection, batch)
                self.batches += 1
            except (sqlite3.Error, OSError, StorageError) as error:
                outcomes = [self._to_storage_error(error)] * len(batch)
            except Exception as error:
                # Without this thread, every later caller would wait for ever.
                outcomes = [error] * len(batch)
            _deliver_outcomes(batch, outcomes)
        if connection is not None:
            connection.close()

    def _require_connection(self, connection: SQLiteConnection | None) -> SQLiteConnection:
        if self.unavailable_reason:
            raise StorageError(self.unavailable_reason)
        return connection or self._connect()

    def _run_batch(self, db: SQLiteConnection, batch: list[QueuedJob]) -> list[Any]:
        if not self._is_writer:
            return [self._run_job(db, job) for job, *_ in batch]
        if len(batch) == 1 and batch[0][1]:
            return [self._run_job(db, batch[0][0])]
        db.execute("BEGIN IMMEDIATE")
        try:
            outcomes = self._run_to_first_failure(db, batch)
            if len(outcomes) < len(batch):
                if db.in_transaction:
                    db.execute("ROLLBACK")
                db.execute("BEGIN IMMEDIATE")
                outcomes = self._run_in_savepoints(db, batch)
            db.execute("COMMIT")
        except Exception:
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            raise
        return outcomes

    def _run_to_first_failure(self, db: SQLiteConnection, batch: list[QueuedJob]) -> list[Any]:
        """Return the outcomes of the jobs before the first one that fails, which may have written a part."""
        outcomes = []
        for job, *_ in batch:
            outcome = self._run_job(db, job)
            if isinstance(outcome, Exception):
                break
            outcomes.append(outcome)
        return outcomes

    def _run_job(self, db: SQLiteConnection, job: Job[Any]) -> Any:
        try:
            job(db).__await__().send(None)
        except StopIteration as end:
            return end.value
        except Exception as error:
            cause, db.function_error = db.function_error or error, None
            # A bug in a job is raised in its caller; the thread continues with the other jobs.
            is_bug = not isinstance(cause, sqlite3.Error | OSError | DamagedValueError)
            return cause if is_bug else self._to_storage_error(cause)
        return RuntimeError(JOB_SUSPENDED)

    def _run_in_savepoints(self, db: SQLiteConnection, batch: list[QueuedJob]) -> list[Any]:
        """Run each job of a batch by itself in the open transaction, so that the failure of one undoes that one."""
        outcomes = []
        for job, *_ in batch:
            db.execute("SAVEPOINT job")
            outcome = self._run_job(db, job)
            if isinstance(outcome, StorageError) and not db.in_transaction:
                # SQLite has rolled back the whole transaction, for example because the disk is full.
                raise outcome
            if db.in_transaction:
                db.execute("ROLLBACK TO job" if isinstance(outcome, Exception) else "RELEASE job")
            outcomes.append(outcome)
        return outcomes

    def _to_storage_error(self, error: Exception) -> StorageError:
        if isinstance(error, DamagedValueError):
            self._on_damage(str(error))
            return error
        if is_damage(error):
            self._on_damage(str(error).partition(" with text")[0])
            return StorageError(FILE_DAMAGED, reason=DAMAGED_REASON)
        failure = _storage_error_of(error)
        # A value that one statement cannot store says nothing about the next one.
        if not self.unavailable_reason and not isinstance(error, sqlite3.IntegrityError | sqlite3.DataError):
            self._on_failure(failure)
        return failure


def _deliver_outcomes(batch: list[QueuedJob], outcomes: list[Any]) -> None:
    """Resolve the futures of a batch, waking each event loop once."""
    outcomes_by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for (*_, loop, future), outcome in zip(batch, outcomes, strict=True):
        outcomes_by_loop.setdefault(loop, []).append((future, outcome))
    for loop, loop_outcomes in outcomes_by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve_futures, loop_outcomes)
        except RuntimeError:
            # A closed loop has no caller that waits.
            continue


def _resolve_futures(outcomes: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, outcome in outcomes:
        # The caller may have been cancelled.
        if future.done():
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
            # Marks the exception as retrieved: a caller that is cancelled now does not retrieve it.
            future.exception()
        else:
            future.set_result(outcome)


def _storage_error_of(error: Exception) -> StorageError:
    if isinstance(error, StorageError):
        return error
    # `strerror` and not `str` of an OSError: that contains the path.
    text = (error.strerror or "" if isinstance(error, OSError) else str(error)).lower()
    reason = next((reason for key, reason in _REASONS if key in text), f"{text}.")
    return StorageError(f"The database cannot be used: {reason}", reason=reason.partition(".")[0])


T = TypeVar("T")

REPLACED_REASON = "the file of the database was deleted or replaced"


class SQLiteDriver:
    """`Driver` of a SQLite file. The threads start, and the file is opened, with the first job."""

    has_writing_queries = False
    search_batch = 1
    checks_before_takeover = 1

    def __init__(self, path: Path | str, *, durability: Durability = "fast") -> None:
        self._path = str(path)
        self._durability = durability
        is_in_memory = self._path == ":memory:"
        self.is_shared = not is_in_memory
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
