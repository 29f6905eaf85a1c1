"""The sessions of MCP clients over HTTP, up to protocol version 2025-11-25.

A session belongs to the caller that began it and to the path at which it did: it is not found by another caller or at
another path. It ends when its client deletes it, when it was not used for `IDLE_SECONDS`, or when its caller has more
than `MAX_PER_CALLER` (the one that was used longest ago ends). A request goes on without its connection: the client can
come back for the rest of its stream. A stream is dropped `SENT_SECONDS` after all of it was written, or
`UNSENT_SECONDS` after its end if its client has left before; and earlier if its memory is needed.

With a database that other gateways share, each session also has a row there, which is written when it begins, when it
ends, and when its client changes what belongs to it. Its requests need no statement. A session that its gateway
releases, or whose gateway dies, lives on: the next gateway that is asked restores it from its row. What runs in it and
its streams are in the process that holds it, and end with that.
"""

from __future__ import annotations

import asyncio
import secrets
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Collection, Container

import orjson

from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.mcp_endpoint.event_stream import EventStream, StreamMemory
from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.lib.tasks import TaskSet
from holodeck.mcp_server.legacy_session import LegacySession
from holodeck.mcp_server.list_changes import ListChanges
from holodeck.mcp_server.methods import Methods
from holodeck.mcp_server.running_requests import RunningRequests
from holodeck.mcp_server.view import View
from holodeck.storage.mcp_sessions import SESSION_SECONDS, MCPSessionStore, StoredMCPSession
from holodeck.tools.mcp.protocol.jsonrpc import RequestId

# Sessions of one caller, and of all callers: many clients never delete theirs.
MAX_PER_CALLER = 256
MAX_SESSIONS = 10_000
# Seconds without a request or an open stream after which a session ends.
IDLE_SECONDS = SESSION_SECONDS
# Seconds between two looks for sessions that are idle.
SWEEP_INTERVAL = 60.0
# Seconds between two looks at the rows of the sessions of this gateway: to record that they are used, and to notice
# that another gateway has taken one over while this one could not reach the database.
WATCH_SECONDS = 10.0
# Streams of finished requests that a session keeps for a client that lost its connection.
MAX_FINISHED_STREAMS = 32
# Seconds for which a stream is kept whose events were all written: a client that did not get the last ones comes back
# after `RETRY_MS`.
SENT_SECONDS = 30.0
# Seconds for which the answer to a client that has lost its connection is kept.
UNSENT_SECONDS = 300.0
# Seconds for sessions to end when the gateway does.
CLOSE_TIMEOUT = 10.0

# The first version in which the first event of a stream may be empty.
_ANNOUNCED_SINCE = "2025-11-25"
# Characters of the id of a request in the id of its stream. A longer one is left out.
_MAX_ID_CHARS = 100


class EndpointSession:
    """One session with its streams and the requests that are being answered."""

    def __init__(
        self, session_id: str, methods: Methods, changes: ListChanges, view: View, memory: StreamMemory, epoch: int = 0
    ) -> None:
        """`epoch`: how often it was taken over."""
        self.id = session_id
        self.epoch = epoch
        self.caller_id = view.caller_id
        self.server = view.server
        self.own_stream = EventStream(f"{epoch}-0", memory, is_awaited=False)
        self.protocol = LegacySession(methods, changes, view, send=self.own_stream.send)
        self.running = RunningRequests()
        self.readers = 0
        """Connections that read its own stream."""
        self.last_used = 0.0
        self.is_stored = False
        """Whether it has a row that other gateways find."""
        self._memory = memory
        self._streams: OrderedDict[str, EventStream] = OrderedDict()
        self._stream_count = 0
        self._is_closed = False

    @property
    def is_idle(self) -> bool:
        return not self.readers and not len(self.running)

    @property
    def caller(self) -> Caller:
        """The caller as its latest request here had it."""
        account = self.protocol.view.account
        assert isinstance(account, Caller)  # noqa: S101 - the endpoint makes its views so
        return account

    def to_stored(self) -> StoredMCPSession:
        """Return its row."""
        return StoredMCPSession(
            id=self.id,
            caller_id=self.caller_id,
            server=self.server or "",
            scope=self.caller.scope.digest(),
            state=orjson.dumps(self.protocol.describe()),
        )

    def open_stream(self, request_id: RequestId) -> EventStream:
        """Open the stream of one request, whose id it names: the gateway may be gone when the client comes back."""
        self._stream_count += 1
        is_announced = self.protocol.version >= _ANNOUNCED_SINCE
        name = urlsafe_b64encode(orjson.dumps(request_id)).decode().rstrip("=")
        stream_id = f"{self.epoch}-{self._stream_count}{f'-{name}' if len(name) <= _MAX_ID_CHARS else ''}"
        stream = EventStream(stream_id, self._memory, is_announced=is_announced)
        self._streams[stream.id] = stream
        finished = [each for each in self._streams.values() if each.is_ended and not each.is_awaited]
        for each in finished[: max(0, len(finished) - MAX_FINISHED_STREAMS)]:
            self.drop_stream(each)
        return stream

    def drop_stream(self, stream: EventStream) -> None:
        """Forget a stream that no client will come back for."""
        self._streams.pop(stream.id, None)
        stream.drop()

    def leave_stream(self, stream: EventStream) -> None:
        """Record that a connection does not read a stream any more."""
        stream.leave()
        self.keep_stream(stream)

    def keep_stream(self, stream: EventStream) -> None:
        """Keep a stream for a client that comes back soon, unless one reads it."""
        if stream.is_awaited:
            return
        if self._is_closed:
            stream.drop()
        elif stream.is_ended and stream is not self.own_stream:
            seconds = SENT_SECONDS if stream.is_sent else UNSENT_SECONDS
            asyncio.get_running_loop().call_later(seconds, self._drop_unread, stream)

    def _drop_unread(self, stream: EventStream) -> None:
        # One that is read now is kept anew when its reader leaves.
        if not stream.is_awaited:
            self.drop_stream(stream)

    def find_stream(self, stream_id: str) -> EventStream | None:
        """Return the stream of an id, or None if there is none, or what it had was dropped."""
        stream = self.own_stream if stream_id == self.own_stream.id else self._streams.get(stream_id)
        return None if stream is None or stream.is_lost else stream

    async def close(self) -> None:
        self._is_closed = True
        await self.running.close()
        await self.protocol.close()
        for stream in (self.own_stream, *self._streams.values()):
            stream.end()
            # One that is being read is dropped when its reader leaves.
            if not stream.is_awaited:
                stream.drop()


class EndpointSessions:
    """The sessions of all callers that this gateway holds. Owned and closed by the endpoint."""

    def __init__(
        self, methods: Methods, changes: ListChanges, memory: StreamMemory, store: MCPSessionStore | None = None
    ) -> None:
        """`store`: shared with other gateways. None: there are no others."""
        self._methods = methods
        self._changes = changes
        self._memory = memory
        self._store = store
        self._sessions: OrderedDict[str, EndpointSession] = OrderedDict()
        self._used: set[str] = set()
        """The sessions that were used since that was last stored."""
        self._ending: set[str] = set()
        """The sessions that have ended here, and have a row that is not deleted yet."""
        self._closing = TaskSet()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: str) -> EndpointSession | None:
        """Return a session of any caller that this gateway holds."""
        return self._sessions.get(session_id)

    def is_ending(self, session_id: str) -> bool:
        return session_id in self._ending

    def open(self, view: View) -> EndpointSession:
        """Begin a session."""
        of_caller = [each for each in self._sessions.values() if each.caller_id == view.caller_id]
        if len(of_caller) >= MAX_PER_CALLER:
            self._evict(of_caller)
        elif len(self._sessions) >= MAX_SESSIONS:
            self._evict(list(self._sessions.values()))
        session = EndpointSession(secrets.token_urlsafe(24), self._methods, self._changes, view, self._memory)
        return self._hold(session)

    def restore(self, stored: StoredMCPSession, view: View) -> None:
        """Hold a session that this gateway has taken over."""
        if stored.id in self._sessions:
            return
        session = EndpointSession(stored.id, self._methods, self._changes, view, self._memory, stored.epoch)
        described = orjson.loads(stored.state)
        session.protocol.restore(described)
        session.is_stored = True
        self._hold(session)
        if described["subscriptions"]:
            # Its server may have to be started first.
            self._closing.start(session.protocol.subscribe_again(described), name="subscribe again")

    async def add_row(self, session: EndpointSession) -> None:
        """Let other gateways find a session. Raises `StorageError`."""
        if self._store is not None:
            await self._store.add_session(session.to_stored())
            session.is_stored = True

    async def update_row(self, session: EndpointSession) -> None:
        """Store what has changed in a session. A failure is logged: it goes on here."""
        if self._store is not None:
            stored = session.to_stored()
            try:
                await self._store.update_session(stored.id, stored.state, stored.scope)
            except StorageError as error:
                log.warning("gateway.storage_failed", error=error)

    def find(self, session_id: str, view: View) -> EndpointSession | None:
        """Return a session of this caller at this path that this gateway holds, or None."""
        session = self._sessions.get(session_id)
        if session is None or session.caller_id != view.caller_id or session.server != view.server:
            return None
        # The scope of the caller may have changed since.
        is_changed = view.scope is not session.protocol.view.scope and view.scope != session.protocol.view.scope
        session.protocol.view = view
        if is_changed:
            self._closing.start(self.update_row(session), name="update MCP session")
        self._touch(session)
        return session

    async def delete(self, session: EndpointSession) -> None:
        """End a session on request of its client, at all gateways. Raises `StorageError`."""
        if self._store is not None:
            await self._store.delete_session(session.id)
        self._drop(session)

    def end(self, session: EndpointSession) -> None:
        """End a session, in the background."""
        if self._drop(session) and self._store is not None:
            self._ending.add(session.id)
            self._closing.start(self._delete_row(session.id), name="delete MCP session")

    def end_all_of(self, caller_ids: Container[str]) -> None:
        """End every session of these callers."""
        for session in [each for each in self._sessions.values() if each.caller_id in caller_ids]:
            self.end(session)

    def end_own_streams(self) -> None:
        """End the streams that wait for messages of no request: the gateway stops."""
        for session in self._sessions.values():
            session.own_stream.end()

    async def wait_running(self, seconds: float) -> None:
        """Wait until the requests of now are answered, at most `seconds`."""
        await asyncio.gather(*(session.running.wait(seconds) for session in list(self._sessions.values())))

    async def release_idle(self) -> None:
        """Let other gateways go on with the sessions in which nothing runs."""
        if self._store is not None:
            await self._release([each for each in self._sessions.values() if not len(each.running)])

    async def watch(self) -> None:
        """Record which sessions are used, and leave those that another gateway has. Runs until it is cancelled."""
        while self._store is not None:
            await asyncio.sleep(WATCH_SECONDS)
            if self._sessions or self._ending:
                try:
                    await self._compare_rows(self._store)
                except StorageError as error:
                    log.debug("gateway.storage_failed", error=error)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._store is not None:
            await self._release(list(self._sessions.values()))
        for session in list(self._sessions.values()):
            self._drop(session)
        await self._closing.wait(CLOSE_TIMEOUT)

    def _hold(self, session: EndpointSession) -> EndpointSession:
        self._sessions[session.id] = session
        self._touch(session)
        self._schedule_sweep()
        return session

    def _drop(self, session: EndpointSession) -> bool:
        """Forget a session, and close it in the background. False: that was done before."""
        self._used.discard(session.id)
        if self._sessions.pop(session.id, None) is None:
            return False
        self._closing.start(session.close(), name="close MCP session")
        return True

    async def _delete_row(self, session_id: str) -> None:
        assert self._store is not None  # noqa: S101 - asked by the caller
        try:
            await self._store.delete_session(session_id)
        # `watch` tries it again.
        except StorageError as error:
            log.warning("gateway.storage_failed", error=error)
        else:
            self._ending.discard(session_id)

    async def _release(self, sessions: Collection[EndpointSession]) -> None:
        assert self._store is not None  # noqa: S101 - asked by the caller
        try:
            await self._store.release_sessions([each.id for each in sessions])
        # They are taken over when this gateway is gone.
        except StorageError as error:
            log.warning("gateway.storage_failed", error=error)
        else:
            for session in sessions:
                self._drop(session)

    async def _compare_rows(self, store: MCPSessionStore) -> None:
        for session_id in list(self._ending):
            await self._delete_row(session_id)
        before = list(self._sessions.values())
        held = await store.list_held_sessions()
        for session in before:
            # One that has just begun has its row before its client knows of it.
            if session.id not in held and session.is_stored:
                log.info("mcp_server.session_moved", caller=session.caller_id)
                self._drop(session)
        active = {each.id for each in self._sessions.values() if not each.is_idle}
        used, self._used = self._used | active, set()
        if used:
            await store.record_uses(used)

    def _touch(self, session: EndpointSession) -> None:
        session.last_used = asyncio.get_running_loop().time()
        self._used.add(session.id)
        self._sessions.move_to_end(session.id)

    def _evict(self, candidates: list[EndpointSession]) -> None:
        chosen = next((each for each in candidates if each.is_idle), candidates[0])
        log.info("mcp_server.session_evicted", caller=chosen.caller_id)
        self.end(chosen)

    def _schedule_sweep(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SWEEP_INTERVAL, self._end_idle)

    def _end_idle(self) -> None:
        self._timer = None
        cutoff = asyncio.get_running_loop().time() - IDLE_SECONDS
        for session in list(self._sessions.values()):
            if session.is_idle and session.last_used <= cutoff:
                self.end(session)
        if self._sessions:
            self._schedule_sweep()
