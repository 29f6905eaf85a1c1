"""The SQLite file of DBOS: created completely or not at all, and waited for until it can be written to."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from dbos import DBOS

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
