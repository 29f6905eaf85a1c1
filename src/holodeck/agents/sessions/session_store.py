"""Stored sessions: a SQLite file with the conversations of a user, readable only by that user.

Each operation opens the file, does one transaction and closes it: several processes share the file. A session has a
version, which every change raises; `append` names the version that it was made for, so that a change of another
process in the meantime is found and not overwritten. All methods block.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import orjson

from holodeck.lib.errors import ExecutionError, SessionConflictError, StorageError
from holodeck.lib.limits import SQLITE_BUSY_SECONDS
from holodeck.lib.record import record
from holodeck.lib.system.files import create_private_file, make_private_folder, user_state_folder, warn_if_waiting
from holodeck.models.items import Item, Message
from holodeck.models.items_json import decode_item, encode_item

STORE_FILE = "sessions.db"
# Characters of the first question that are the title of a session: a row of a table stays a line.
MAX_TITLE_CHARS = 80
_SCHEMA_VERSION = 1
# The low byte of an extended error code of SQLite is the primary code.
_PRIMARY_CODE = 0xFF
_SCHEMA = (
    """CREATE TABLE sessions (
    name TEXT PRIMARY KEY, agent TEXT NOT NULL, file TEXT NOT NULL, title TEXT NOT NULL,
    version INTEGER NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE items (
    session TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE, position INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (session, position)) WITHOUT ROWID""",
)


@record
class SessionInfo:
    """One stored session, without its items."""

    id: str
    """Name of the session."""
    title: str
    """The beginning of its first question."""
    agent: str
    """Name of the agent that answered last."""
    file: str
    """File of that agent; empty for one that was made in code."""
    items: int
    """Number of its items: questions, answers, tool calls and their outputs."""
    created_at: float
    """Seconds since 1970."""
    updated_at: float
    """Seconds since 1970."""


@record
class StoredConversation:
    """The items of a session, and the version that they belong to. A session that is not stored yet has version 0."""

    items: tuple[Item, ...] = ()
    version: int = 0


@record
class Answerer:
    """The agent that answers a question of a session, as the list of sessions names it."""

    agent: str = ""
    file: str = ""


class SessionStore:
    """The sessions in one file. Making the object opens nothing; the file is created by the first `append`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> StoredConversation:
        """Return a session; an empty one if there is none of this name. Raises `StorageError`."""
        if not self.path.exists():
            return StoredConversation()
        with self._open() as connection:
            row = connection.execute("SELECT version FROM sessions WHERE name = ?", (name,)).fetchone()
            rows = connection.execute("SELECT data FROM items WHERE session = ? ORDER BY position", (name,)).fetchall()
        try:
            items = tuple(decode_item(orjson.loads(data)) for (data,) in rows)
        except (LookupError, TypeError, ValueError):
            raise StorageError(
                f"The session '{name}' in {self.path} is damaged, and was not used. Restore a copy of the file, or "
                f"remove the session with: holodeck sessions delete {name}"
            ) from None
        return StoredConversation(items=items, version=row[0] if row else 0)

    def append(self, name: str, items: Sequence[Item], *, version: int, by: Answerer) -> int:
        """Add items after those of this version, and return the new version.

        Raises `SessionConflictError` if the session has another version by now, and `StorageError`. Nothing is added
        then.
        """
        now, new_version = time.time(), _next_version(version)
        with self._open() as connection:
            row = connection.execute("SELECT version FROM sessions WHERE name = ?", (name,)).fetchone()
            self._require_version(name, row[0] if row else 0, version)
            connection.execute(
                "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET agent = ?2, "
                "file = ?3, title = CASE title WHEN '' THEN ?4 ELSE title END, version = ?5, updated_at = ?7",
                (name, by.agent, by.file, find_title(items), new_version, now, now),
            )
            (start,) = connection.execute(
                "SELECT COALESCE(MAX(position) + 1, 0) FROM items WHERE session = ?", (name,)
            ).fetchone()
            connection.executemany(
                "INSERT INTO items VALUES (?, ?, ?)",
                [(name, start + at, orjson.dumps(encode_item(item))) for at, item in enumerate(items)],
            )
        return new_version

    def clear(self, name: str) -> None:
        """Remove the items of a session. The session stays, without a title."""
        if not self.path.exists():
            return
        with self._open() as connection:
            connection.execute("DELETE FROM items WHERE session = ?", (name,))
            row = connection.execute("SELECT version FROM sessions WHERE name = ?", (name,)).fetchone()
            if row:
                connection.execute(
                    "UPDATE sessions SET version = ?, title = '', updated_at = ? WHERE name = ?",
                    (_next_version(row[0]), time.time(), name),
                )

    def list_sessions(self, *, file: str | None = None) -> list[SessionInfo]:
        """Return all sessions, the one that was used last first. `file`: only those of the agent in this file."""
        if not self.path.exists():
            return []
        with self._open() as connection:
            rows = connection.execute(
                "SELECT name, title, agent, file, (SELECT COUNT(*) FROM items WHERE session = name), created_at, "
                "updated_at FROM sessions WHERE ?1 IS NULL OR file = ?1 ORDER BY updated_at DESC, name",
                (file,),
            ).fetchall()
        return [
            SessionInfo(id=name, title=title, agent=agent, file=of, items=count, created_at=created, updated_at=updated)
            for name, title, agent, of, count, created, updated in rows
        ]

    def delete(self, name: str) -> None:
        """Delete a session. Raises `ExecutionError` if there is none of this name, and `StorageError`."""
        deleted = 0
        if self.path.exists():
            with self._open() as connection:
                connection.execute("DELETE FROM items WHERE session = ?", (name,))
                deleted = connection.execute("DELETE FROM sessions WHERE name = ?", (name,)).rowcount
        if not deleted:
            raise ExecutionError(f"There is no session '{name}' in {self.path}. See: holodeck sessions list")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Run the block in one transaction, which excludes other processes. Raises `StorageError`."""
        try:
            make_private_folder(self.path.parent)
            create_private_file(self.path)
        except OSError as error:
            raise StorageError(f"Sessions cannot be stored in {self.path}: {error.strerror}.") from None
        try:
            connection = sqlite3.connect(self.path, timeout=SQLITE_BUSY_SECONDS, isolation_level=None)
        except sqlite3.Error as error:
            raise self._explain_error(error) from None
        try:
            connection.execute("PRAGMA cell_size_check = ON")
            with warn_if_waiting(self.path, timeout=SQLITE_BUSY_SECONDS):
                connection.execute("BEGIN IMMEDIATE")
            self._migrate(connection)
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._explain_error(error) from None
        finally:
            # Rolls back a transaction that is not committed.
            connection.close()

    def _migrate(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > _SCHEMA_VERSION:
            raise StorageError(f"The sessions in {self.path} were stored by a newer HoloDeck. Use that one.")
        if version < _SCHEMA_VERSION:
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")

    def _require_version(self, name: str, stored: int, expected: int) -> None:
        if stored != expected:
            raise SessionConflictError(
                f"Another process has changed the session '{name}' in {self.path} while this run went on. The run was "
                "not added to it, and what the other has stored is as it was. Ask again to go on from there."
            )

    def _explain_error(self, error: sqlite3.Error) -> StorageError:
        code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
        if code == sqlite3.SQLITE_BUSY:
            return StorageError(f"The sessions in {self.path} are locked by another process. Stop that one.")
        if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
            return StorageError(
                f"The file of sessions {self.path} is damaged ({error}). Restore a copy of it, or move it away to "
                "begin with an empty one."
            )
        return StorageError(f"The sessions in {self.path} cannot be used: {error}.")


def find_store(path: str | os.PathLike[str] | None = None) -> SessionStore:
    """Return the store in a file, or that of the user: `sessions.db` in `user_state_folder`."""
    return SessionStore(user_state_folder(os.environ) / STORE_FILE if path is None else Path(path).absolute())


def _next_version(version: int) -> int:
    # Not counted from 1: a session that was deleted and made again must not have a version of the deleted one.
    return max(version + 1, time.time_ns())


def find_title(items: Sequence[Item]) -> str:
    """Return the beginning of the first question, on one line; empty if there is none."""
    question = next((item.text for item in items if isinstance(item, Message) and item.role == "user"), "")
    words = " ".join(question.split())
    return words if len(words) <= MAX_TITLE_CHARS else words[: MAX_TITLE_CHARS - 3].rstrip() + "..."
