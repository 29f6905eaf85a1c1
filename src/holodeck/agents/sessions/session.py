"""`Session`: a conversation that goes on from run to run, in memory or stored.

    session = Session.open("support-42")
    await agent.run("My name is Ada.", session=session)
    result = await agent.run("What is my name?", session=session)

A run gets the items of the session as its history. When it has ended, its question and what it added are appended in
one step: all or nothing. A run that failed or was cancelled appends nothing, so that the same question can be asked
again. Runs of one session in one process wait for each other. Where another process has changed a stored session during
a run, the run is not appended and raises `SessionConflictError`.
"""

from __future__ import annotations

import asyncio
import builtins
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Self, cast
from weakref import WeakValueDictionary

from holodeck.agents.event_loops.cross_loop_lock import CrossLoopLock
from holodeck.agents.sessions.session_store import (
    Answerer,
    SessionInfo,
    SessionStore,
    StoredConversation,
    find_store,
    find_title,
)
from holodeck.engine.transcript import RunTranscript
from holodeck.lib.errors import ConfigError, ExecutionError, SessionConflictError
from holodeck.lib.ids import new_id
from holodeck.models.events import Event, OutputT, RunFinished
from holodeck.models.items import Item

# Characters of the name of a stored session.
MAX_NAME_CHARS = 200
_APPENDED = frozenset({"completed", "incomplete", "requires_action"})
"""Statuses of runs that are appended."""
_locks: WeakValueDictionary[tuple[Path, str], CrossLoopLock] = WeakValueDictionary()
"""One lock for all objects of one stored session."""
_held: ContextVar[tuple[CrossLoopLock, ...]] = ContextVar("held sessions", default=())
"""Locks of the runs that this code is part of."""


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
