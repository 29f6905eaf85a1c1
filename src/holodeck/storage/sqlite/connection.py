"""Connections to a SQLite file: opened, configured and migrated; and writes on the event loop's own thread.

`SQLiteConnection` is the `Connection` of a job. Its statements are coroutines that never suspend, so that one `send`
runs a whole job, on the thread that owns the connection.

Several processes may open, and migrate, the same file at once: `connect_sqlite` waits up to `SQLITE_BUSY_SECONDS` for
the others.

`InlineWriter` is an optimization for a gateway with one request at a time: waking the writer thread costs more than
the insert of a small row. It never waits for a lock, and never checkpoints the write-ahead log, so that it blocks the
event loop for the time of one small write only. What it cannot write, the writer thread does.
"""

from __future__ import annotations

import math
import re
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import orjson

from holodeck.lib.limits import SQLITE_BUSY_SECONDS
from holodeck.lib.system.files import create_private_file, warn_if_waiting
from holodeck.storage.jobs import Job, Row
from holodeck.storage.migrations import migrations_after

# Inline writes in a row; the next goes to the writer thread, whose connection checkpoints the write-ahead log.
INLINE_WRITES_IN_A_ROW = 100
# Seconds that an inline write may take. After a slower one the disk counts as slow ...
INLINE_WRITE_SECONDS = 0.02
# ... and all rows go to the writer thread for this many seconds.
INLINE_WRITE_PAUSE = 60.0

Durability = Literal["fast", "safe"]
"""`fast`: a commit survives the end of the process. `safe`: it waits for the disk, and survives a loss of power."""

# Seconds between two attempts to switch the journal mode while another connection does the same.
_BUSY_PAUSE = 0.01
# The low byte of an extended error code of SQLite is the primary code.
_PRIMARY_CODE = 0xFF
JOB_SUSPENDED = "A job of the storage waited for something else than its database."
# What SQLite writes in another way than PostgreSQL. It has one writer, so that no row is locked; its LIKE is ILIKE.
_REPLACEMENTS = (
    (" FOR UPDATE", ""),
    (" ILIKE ", " LIKE "),
    ("strpos(", "instr("),
    (" BYTEA", " BLOB"),
    ("= ANY($1)", "IN (SELECT value FROM json_each($1))"),
)


@cache
def for_sqlite(sql: str) -> str:
    """Return a statement in the dialect of SQLite, with `?1` for `$1`."""
    for theirs, ours in _REPLACEMENTS:
        sql = sql.replace(theirs, ours)
    return re.sub(r"\$(\d)", r"?\1", sql)


class SQLiteConnection(sqlite3.Connection):
    """A connection on which jobs run.

    All rows of a query are fetched at once: an open statement in the traceback of an error would keep the reader at an
    old state of the database.
    """

    function_error: Exception | None = None
    """What a function of ours has raised. SQLite itself tells only that one has."""

    def define_is_alive(self, is_alive: Callable[[int], bool]) -> None:
        """Define the function of SQL that says whether a gateway is alive."""

        def check(gateway_id: int | None) -> bool:
            try:
                return gateway_id is not None and is_alive(gateway_id)
            except Exception as error:
                self.function_error = error
                raise

        self.create_function("is_alive", 1, check)

    async def fetch_row(self, sql: str, /, *values: object) -> Row | None:
        row: Row | None = self.execute(for_sqlite(sql), values).fetchone()
        return row

    async def fetch_rows(self, sql: str, /, *values: object) -> list[Row]:
        return self.execute(for_sqlite(sql), values).fetchall()

    async def write(self, sql: str, /, *values: object) -> None:
        self.execute(for_sqlite(sql), values)

    async def write_counted(self, sql: str, /, *values: object) -> int:
        return self.execute(for_sqlite(sql), values).rowcount

    async def write_many(self, sql: str, rows: Iterable[Sequence[object]], /) -> None:
        self.executemany(for_sqlite(sql), rows)

    def array(self, texts: Collection[str], /) -> object:
        return orjson.dumps(list(texts)).decode()


def connect_sqlite(path: str, durability: Durability, *, is_for_other_thread: bool = False) -> SQLiteConnection:
    """Open a file and migrate it. Raises `sqlite3.Error`, `OSError`, or `StorageError` for a newer schema.

    `is_for_other_thread`: the connection is handed over to another thread, which is then the only one that uses it.
    """
    if path != ":memory:":
        create_private_file(Path(path))
    connection = sqlite3.connect(
        path,
        timeout=SQLITE_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=not is_for_other_thread,
        factory=SQLiteConnection,
    )
    try:
        _configure_connection(connection, path, durability)
    except UnicodeDecodeError:
        connection.close()
        # The message of SQLite quotes the schema, which is damaged.
        raise sqlite3.DatabaseError("malformed database schema") from None
    except BaseException:
        connection.close()
        raise
    return connection


def _configure_connection(connection: SQLiteConnection, path: str, durability: Durability) -> None:
    with warn_if_waiting(path, timeout=SQLITE_BUSY_SECONDS):
        _use_wal(connection)
    connection.execute(f"PRAGMA synchronous = {'FULL' if durability == 'safe' else 'NORMAL'}")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA cell_size_check = ON")
    with warn_if_waiting(path, timeout=SQLITE_BUSY_SECONDS):
        connection.execute("BEGIN IMMEDIATE")
    _migrate(connection)


def _use_wal(db: sqlite3.Connection) -> None:
    """Switch to the write-ahead log. SQLite's busy timeout does not cover the switch, so the wait is here."""
    deadline = time.monotonic() + SQLITE_BUSY_SECONDS
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & _PRIMARY_CODE == sqlite3.SQLITE_BUSY
            # Waiting does not help against other errors, such as a full disk.
            if not is_busy or time.monotonic() > deadline:
                raise
            time.sleep(_BUSY_PAUSE)
        else:
            return


def _migrate(db: sqlite3.Connection) -> None:
    """Apply missing migrations in the open transaction, which excludes other processes, and commit it."""
    try:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        missing = migrations_after(version)
        for migration in missing:
            for statement in migration:
                db.execute(for_sqlite(statement))
        # A current database is only read: its disk may be full.
        if missing:
            db.execute(f"PRAGMA user_version = {version + len(missing)}")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


class InlineWriter:
    """Runs small jobs on the calling thread, with a connection of its own. Does nothing before `attach`."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._connection: SQLiteConnection | None = None
        self._consecutive = 0
        self._paused_until = 0.0
        self.written = 0
        """How many jobs have written something."""

    def attach(self, connection: SQLiteConnection) -> None:
        """Use this connection, which the writer closes. The thread that opened it does not use it any more."""
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        self._connection = connection

    def run(self, job: Job[bool], *, is_one_statement: bool = False) -> bool:
        """Run a job that writes little, and return whether it has written anything: its outcome.

        Returns False for every error, and for a job that the writer thread has to run: that thread waits for locks
        and reports errors. Nothing was written then.
        """
        if self._connection is None:
            return False
        self._consecutive += 1
        if self._consecutive > INLINE_WRITES_IN_A_ROW:
            self._consecutive = 0
            return False
        started_at = self._clock()
        if started_at < self._paused_until:
            return False
        db = self._connection
        try:
            if not is_one_statement:
                db.execute("BEGIN IMMEDIATE")
            try:
                job(db).__await__().send(None)
            except StopIteration as end:
                is_written: bool = end.value
            else:
                raise RuntimeError(JOB_SUSPENDED)
            if not is_one_statement:
                db.execute("COMMIT")
        except sqlite3.Error:
            return False
        finally:
            # After an error, unless SQLite itself has rolled back already.
            if db.in_transaction:
                db.execute("ROLLBACK")
        if (now := self._clock()) - started_at > INLINE_WRITE_SECONDS:
            self._paused_until = now + INLINE_WRITE_PAUSE
        self.written += is_written
        return is_written

    def pause(self, *, is_over: bool) -> None:
        """Write nothing until called again with `is_over`."""
        self._paused_until = 0.0 if is_over else math.inf

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
