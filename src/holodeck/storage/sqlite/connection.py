"""Connections to a SQLite file: opened, configured and migrated; and writes on the event loop's own thread.

Several processes may open, and migrate, the same file at once: `connect_sqlite` waits up to `SQLITE_BUSY_SECONDS` for
the others.

`InlineWriter` is an optimization for a gateway with one request at a time: waking the writer thread costs more than
the insert of a small row. It never waits for a lock, and never checkpoints the write-ahead log, so that it blocks the
event loop for the time of one small write only. Where it cannot insert, the writer thread does.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from holodeck.lib.limits import KIB, SQLITE_BUSY_SECONDS
from holodeck.lib.system.files import create_private_file, warn_if_waiting
from holodeck.storage.migrations import migrations_after

# Largest row that is written on the event loop's thread: a larger one would block it for too long.
INLINE_WRITE_BYTES = 64 * KIB
# Inline writes in a row; the next goes to the writer thread, whose connection checkpoints the write-ahead log.
INLINE_WRITES_IN_A_ROW = 100
# Seconds that an inline write may take. After a slower one the disk counts as slow ...
INLINE_WRITE_SECONDS = 0.02
# ... and all rows go to the writer thread for this many seconds.
INLINE_WRITE_PAUSE = 60.0

Statement = tuple[str, Sequence[object]]
"""SQL and its values."""
Durability = Literal["fast", "safe"]
"""`fast`: a commit survives the end of the process. `safe`: it waits for the disk, and survives a loss of power."""

# Seconds between two attempts to switch the journal mode while another connection does the same.
_BUSY_PAUSE = 0.01
# The low byte of an extended error code of SQLite is the primary code.
_PRIMARY_CODE = 0xFF


def connect_sqlite(path: str, durability: Durability, *, is_for_other_thread: bool = False) -> sqlite3.Connection:
    """Open a file and migrate it. Raises `sqlite3.Error`, `OSError`, or `StorageError` for a newer schema.

    `is_for_other_thread`: the connection is handed over to another thread, which is then the only one that uses it.
    """
    if path != ":memory:":
        create_private_file(Path(path))
    connection = sqlite3.connect(
        path, timeout=SQLITE_BUSY_SECONDS, isolation_level=None, check_same_thread=not is_for_other_thread
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


def _configure_connection(connection: sqlite3.Connection, path: str, durability: Durability) -> None:
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
        for migration in migrations_after(version):
            for statement in migration:
                db.execute(statement)
            version += 1
        db.execute(f"PRAGMA user_version = {version}")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


class InlineWriter:
    """Inserts small rows on the calling thread, with a connection of its own. Does nothing before `attach`."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._connection: sqlite3.Connection | None = None
        self._consecutive = 0
        self._paused_until = 0.0
        self.inserted = 0
        """How many rows it has inserted."""

    def attach(self, connection: sqlite3.Connection) -> None:
        """Use this connection, which the writer closes. The thread that opened it does not use it any more."""
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        self._connection = connection

    def insert(self, sql: str, values: Sequence[object], *, also: Statement | None = None) -> bool:
        """Insert one row, and return whether it was inserted. `also`: executed in the same transaction if it was.

        Returns False for every error, and for a row that the writer thread has to insert: that thread waits for locks
        and reports errors. Nothing was written then.
        """
        if self._connection is None or sum(len(value) for value in values if type(value) is bytes) > INLINE_WRITE_BYTES:
            return False
        self._consecutive += 1
        if self._consecutive > INLINE_WRITES_IN_A_ROW:
            self._consecutive = 0
            return False
        started_at = self._clock()
        if started_at < self._paused_until:
            return False
        try:
            is_added = _execute_both(self._connection, (sql, values), also)
        except sqlite3.Error:
            return False
        if (now := self._clock()) - started_at > INLINE_WRITE_SECONDS:
            self._paused_until = now + INLINE_WRITE_PAUSE
        self.inserted += is_added
        return is_added

    def pause(self, *, is_over: bool) -> None:
        """Insert nothing until called again with `is_over`."""
        self._paused_until = 0.0 if is_over else math.inf

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _execute_both(db: sqlite3.Connection, first: Statement, also: Statement | None) -> bool:
    """Execute a statement, and another one if it changed a row; both or none. Returns whether it changed one."""
    if also is None:
        return db.execute(*first).rowcount == 1
    db.execute("BEGIN IMMEDIATE")
    try:
        is_changed = db.execute(*first).rowcount == 1
        if is_changed:
            db.execute(*also)
        db.execute("COMMIT")
    except sqlite3.Error:
        # SQLite itself may have rolled back already.
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return is_changed
