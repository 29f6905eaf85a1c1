"""The SQLite file of DBOS: created completely or not at all, and waited for until it can be written to.

With Python 3.12 and later, DBOS uses `unixepoch('subsec')`, which is NULL in SQLite before 3.42, the version of Debian
12, so that it stores nothing. `install_clock` adds a replacement to the connections that DBOS opens, and to no others.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from dbos import DBOS
from dbos._sys_db_sqlite import SQLiteSystemDatabase
from sqlalchemy import Engine, event

from holodeck.lib.errors import StorageError
from holodeck.lib.limits import SQLITE_BUSY_SECONDS
from holodeck.lib.system.files import (
    create_private_file,
    draft_of,
    make_private_folder,
    remove_stale_drafts,
    warn_if_waiting,
)

SCHEMA = "holodeck_work"


def prepare_database(url: str) -> None:
    """Create the file of a SQLite URL if it is missing, and wait until it can be written to. Raises `StorageError`."""
    prefix = "sqlite:///"
    if not url.startswith(prefix):
        return
    path = Path(url.removeprefix(prefix))
    try:
        make_private_folder(path.parent)
        remove_stale_drafts(path)
        if not path.exists():
            _create_database(path)
        _wait_writable(path)
    except Exception as error:
        # DBOS wraps errors of the disk and of SQLite in classes of its own.
        raise StorageError(f"Durable runs cannot be kept in {path}: {first_line(error)}") from error


def _wait_writable(path: Path) -> None:
    """Wait until the file can be written to, with a warning. DBOS would wait on the event loop, without any.

    The write-ahead log lets readers continue during a write, and makes a commit a single write to the disk.
    """
    connection = sqlite3.connect(path, timeout=SQLITE_BUSY_SECONDS, isolation_level=None)
    try:
        with warn_if_waiting(path, timeout=SQLITE_BUSY_SECONDS):
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            raise
        raise StorageError("another process keeps it locked. Stop that one.") from None
    finally:
        connection.close()


def _create_database(path: Path) -> None:
    """Create the file completely or not at all: DBOS creates tables one by one, and cannot complete a part of them."""
    with draft_of(path) as draft:
        create_private_file(draft)
        DBOS.migrate(f"sqlite:///{draft}", schema=SCHEMA)
        # Another process may have created the file in the meantime.
        with suppress(FileExistsError):
            os.link(draft, path)


def first_line(error: BaseException | None) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


_FIRST_WITH_FRACTIONS = (3, 42, 0)
# Digits after the decimal point, as in SQLite.
_MILLISECONDS = 3

_create_engine = SQLiteSystemDatabase._create_engine


def install_clock() -> None:
    """Patch DBOS for the rest of the process, where the SQLite of this process needs it. May be called repeatedly."""
    if sqlite3.sqlite_version_info < _FIRST_WITH_FRACTIONS:
        SQLiteSystemDatabase._create_engine = _create_engine_with_clock  # type: ignore[assignment, method-assign] # no hook


def _create_engine_with_clock(
    database: SQLiteSystemDatabase, system_database_url: str, engine_kwargs: dict[str, Any]
) -> Engine:
    engine = _create_engine(database, system_database_url, engine_kwargs)
    event.listen(engine, "connect", _add_clock)
    return engine


def _add_clock(connection: sqlite3.Connection, _record: object) -> None:
    connection.create_function("unixepoch", 1, _unixepoch)


def _unixepoch(modifier: str) -> float | None:
    return round(time.time(), _MILLISECONDS) if modifier == "subsec" else None
