"""A connection to a SQLite file, made and brought up to date, also when several processes open it at once."""

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

# Of a row that the serving thread writes itself, when it has nothing else to do.
INLINE_WRITE_BYTES = 64 * KIB
INLINE_WRITES_IN_A_ROW = (
    100  # of those; then the writing thread takes one, and tidies up what they have left in the journal
)
# For one of them; a disk that takes longer ...
INLINE_WRITE_SECONDS = 0.02
# ... is left to the writing thread for this long.
INLINE_WRITE_PAUSE = 60.0


Durability = Literal["fast", "safe"]

_BUSY_PAUSE = 0.01
_PRIMARY_CODE = 0xFF  # of SQLite's codes; what is above it says more


def connect_sqlite(path: str, durability: Durability, *, is_for_other_thread: bool = False) -> sqlite3.Connection:
    """`is_for_other_thread`: to another thread, which is then the only one that uses it."""
    if path != ":memory:":
        create_private_file(Path(path))
    connection = sqlite3.connect(
        path, timeout=SQLITE_BUSY_SECONDS, isolation_level=None, check_same_thread=not is_for_other_thread
    )
    try:
        _configure_connection(connection, path, durability)
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
    """Turn the journal over. SQLite does not wait when another connection does the same, so this does."""
    deadline = time.monotonic() + SQLITE_BUSY_SECONDS
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & _PRIMARY_CODE == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > deadline:  # a full disk is no less full for waiting
                raise
            time.sleep(_BUSY_PAUSE)
        else:
            return


def _migrate(db: sqlite3.Connection) -> None:
    """Bring the file up to date, in the transaction that is begun; several processes may try at once."""
    try:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        for step in migrations_after(version):
            for statement in step:
                db.execute(statement)
            version += 1
        db.execute(f"PRAGMA user_version = {version}")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


class InlineWriter:
    """Never waits for another writer, and leaves the long work of the file to the writing thread."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._connection: sqlite3.Connection | None = None
        self._consecutive = 0
        self._paused_until = 0.0

    def attach(self, connection: sqlite3.Connection) -> None:
        """From now on. It may come from another thread, which does not use it any more."""
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        self._connection = connection

    def insert(self, sql: str, values: Sequence[object]) -> bool:
        """Whether one row was added. If not, nothing was, for whatever reason: the writing thread waits or explains."""
        if self._connection is None or sum(len(value) for value in values if type(value) is bytes) > INLINE_WRITE_BYTES:
            return False
        self._consecutive += 1
        if self._consecutive > INLINE_WRITES_IN_A_ROW:
            self._consecutive = 0  # the writing thread looks whether the journal has grown long
            return False
        began = self._clock()
        if began < self._paused_until:
            return False
        try:
            is_added = self._connection.execute(sql, values).rowcount == 1
        except sqlite3.Error:
            return False
        if (now := self._clock()) - began > INLINE_WRITE_SECONDS:
            self._paused_until = now + INLINE_WRITE_PAUSE  # a slow disk must not hold up who comes next
        return is_added

    def pause(self, *, is_over: bool) -> None:
        """Leave all rows to the writing thread, or no longer."""
        self._paused_until = 0.0 if is_over else math.inf

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
