"""`Session`: a conversation that goes on from run to run, in memory or stored.

    session = Session.open("support-42")
    await agent.run("My name is Ada.", session=session)
    result = await agent.run("What is my name?", session=session)

A run gets the items of the session as its history. When it has ended, its question and what it added are appended in
one step: all or nothing. A run that failed or was cancelled appends nothing, so that the same question can be asked
again. Runs of one session in one process wait for each other. Where another process has changed a stored session during
a run, the run is not appended and raises `SessionConflictError`.

The store is a SQLite file with the conversations of a user, readable only by that user. Each operation opens the file,
does one transaction and closes it: several processes share the file. A session has a version, which every change
raises; `append` names the version that it was made for, so that a change of another process in the meantime is found
and not overwritten. All methods of the store block.
"""

from __future__ import annotations

import asyncio
import builtins
import os
import sqlite3
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Self, cast
from weakref import WeakValueDictionary

import orjson

from holodeck.agents.event_loops import CrossLoopLock
from holodeck.engine.transcript import RunTranscript
from holodeck.lib.errors import ConfigError, ExecutionError, SessionConflictError, StorageError
from holodeck.lib.ids import new_id
from holodeck.lib.limits import SQLITE_BUSY_SECONDS
from holodeck.lib.record import record
from holodeck.lib.system.files import create_private_file, make_private_folder, user_state_folder, warn_if_waiting
from holodeck.models.events import Event, OutputT, RunFinished
from holodeck.models.items import Item, Message, decode_item, encode_item

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
# Characters of the name of a stored session.
MAX_NAME_CHARS = 200
_APPENDED = frozenset({"completed", "incomplete", "requires_action"})
"""Statuses of runs that are appended."""
_locks: WeakValueDictionary[tuple[Path, str], CrossLoopLock] = WeakValueDictionary()
"""One lock for all objects of one stored session."""
_held: ContextVar[tuple[CrossLoopLock, ...]] = ContextVar("held sessions", default=())
"""Locks of the runs that this code is part of."""


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

    def require_writable(self) -> None:
        """Make the file if there is none. Raises `StorageError` where sessions cannot be stored."""
        with self._open():
            pass

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


class Session:
    """A conversation. `Session()` keeps it in memory; `Session.open` stores it under a name."""

    def __init__(self) -> None:
        self._name = new_id("session")
        self._store: SessionStore | None = None
        self._items: tuple[Item, ...] = ()
        self._lock = CrossLoopLock()

    @classmethod
    def open(cls, name: str, *, store: str | os.PathLike[str] | None = None) -> Self:
        """Return the stored session of this name, which is made by its first run.

        `store`: its file. Absent: the one of this user, which `holodeck chat --session` has as well. Raises
        `ConfigError` for a name that is empty, long or not printable.
        """
        if not name.strip() or len(name) > MAX_NAME_CHARS or not name.isprintable():
            raise ConfigError(f"A session needs a name of 1 to {MAX_NAME_CHARS} printable characters.")
        session = cls()
        session._name, session._store = name, find_store(store)
        key = (session._store.path, name)
        session._lock = _locks.setdefault(key, session._lock)
        return session

    @staticmethod
    def list(*, store: str | os.PathLike[str] | None = None) -> builtins.list[SessionInfo]:
        """Return the stored sessions, the one that was used last first. They are stored until they are deleted."""
        return find_store(store).list_sessions()

    @staticmethod
    def delete(name: str, *, store: str | os.PathLike[str] | None = None) -> None:
        """Delete a stored session. Raises `ExecutionError` if there is none of this name."""
        find_store(store).delete(name)

    @property
    def id(self) -> str:
        """Name of a stored session; a random id of one in memory."""
        return self._name

    @property
    def title(self) -> str:
        """The beginning of the first question; empty before it. Reads the store."""
        return find_title(self.items)

    @property
    def items(self) -> tuple[Item, ...]:
        """The conversation so far: questions, answers, tool calls and their outputs. Reads the store."""
        return self._items if self._store is None else self._store.read(self._name).items

    @property
    def path(self) -> Path | None:
        """File that the session is stored in. None: it is in memory."""
        return None if self._store is None else self._store.path

    def clear(self) -> None:
        """Forget the conversation; the session stays. A run of the session that goes on raises a conflict at its end.

        For a session in memory, such a run is appended to the empty conversation.
        """
        self._items = ()
        if self._store is not None:
            self._store.clear(self._name)

    def __repr__(self) -> str:
        return f"Session({self._name!r})" if self._store is None else f"Session.open({self._name!r})"


@asynccontextmanager
async def use_session(session: Session) -> AsyncIterator[OpenSession]:
    """Wait for other runs of the session in this process, and yield the session as it is then.

    Raises `StorageError`, and `ExecutionError` inside of a run of the same session.
    """
    if session._lock in _held.get():
        raise ExecutionError(
            f"The session '{session.id}' is used by the run that this code is part of, and would wait for its end. "
            "Give the inner run a session of its own."
        )
    async with session._lock.hold():
        if session._store is None:
            yield OpenSession(session, StoredConversation(items=session._items))
        else:
            yield OpenSession(session, await asyncio.to_thread(session._store.read, session.id))


def require_session(value: object) -> None:
    """Raise `ConfigError` for what is no session: a name alone opens none."""
    if not isinstance(value, Session):
        raise ConfigError(f"'session' is a {type(value).__name__}: give a Session, as in Session.open('name').")


async def stream_in_session(
    session: Session,
    question: Sequence[Item],
    open_stream: Callable[[Sequence[Item]], AsyncGenerator[Event[OutputT], None]],
    *,
    by: Answerer,
) -> AsyncGenerator[Event[OutputT], None]:
    """Run a question: `open_stream` starts the run with a history. The run is appended before its last event."""
    async with use_session(session) as opened, aclosing(open_stream(opened.items)) as events:
        # Set only while the run starts its task, which inherits it: the caller's code goes on in this context.
        token = _held.set((*_held.get(), session._lock))
        try:
            first = await anext(events)
        finally:
            _held.reset(token)
        yield first
        transcript = RunTranscript()
        async for event in events:
            transcript.add(cast("Event", event))
            if isinstance(event, RunFinished) and event.result.status in _APPENDED:
                # A call without an output in a run that is not cut waits for an output of the program.
                is_cut = event.result.status == "incomplete"
                added = transcript.build_history() if is_cut else event.result.items
                try:
                    await opened.append((*question, *added), by=by)
                except SessionConflictError as error:
                    raise SessionConflictError(str(error), event.result) from None
            yield event


class OpenSession:
    """A session that no other run of this process uses, with its items."""

    def __init__(self, session: Session, conversation: StoredConversation) -> None:
        self.items = conversation.items
        self._session = session
        self._version = conversation.version

    async def append(self, items: Sequence[Item], *, by: Answerer) -> None:
        """Append items to those that were there at the beginning. Raises `SessionConflictError` and `StorageError`."""
        session = self._session
        if session._store is None:
            session._items = (*session._items, *items)
        else:
            append = partial(session._store.append, session.id, items, version=self._version, by=by)
            self._version = await asyncio.to_thread(append)
        self.items = (*self.items, *items)
