"""The sessions of MCP clients over HTTP, up to protocol version 2025-11-25.

A session belongs to the caller that began it and to the path at which it did: it is not found by another caller or at
another path. It ends when its client deletes it, when it was not used for `IDLE_SECONDS`, when its caller has more than
`MAX_PER_CALLER` (the one that was used longest ago ends), or when the gateway ends. A request goes on without its
connection: the client can come back for the rest of its stream. A stream is dropped `SENT_SECONDS` after all of it was
written, or `UNSENT_SECONDS` after its end if its client has left before; and earlier if its memory is needed.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Container

from holodeck.gateway.mcp_endpoint.event_stream import EventStream, StreamMemory
from holodeck.lib import log
from holodeck.lib.tasks import TaskSet
from holodeck.mcp_server.legacy_session import LegacySession
from holodeck.mcp_server.list_changes import ListChanges
from holodeck.mcp_server.methods import Methods
from holodeck.mcp_server.running_requests import RunningRequests
from holodeck.mcp_server.view import View

# Sessions of one caller, and of all callers: many clients never delete theirs.
MAX_PER_CALLER = 256
MAX_SESSIONS = 10_000
# Seconds without a request or an open stream after which a session ends.
IDLE_SECONDS = 1_800.0
# Seconds between two looks for sessions that are idle.
SWEEP_INTERVAL = 60.0
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
# The id of the stream for messages that belong to no request.
OWN_STREAM = "0"


class EndpointSession:
    """One session with its streams and the requests that are being answered."""

    def __init__(
        self, session_id: str, methods: Methods, changes: ListChanges, view: View, memory: StreamMemory
    ) -> None:
        self.id = session_id
        self.caller_id = view.caller_id
        self.server = view.server
        self.own_stream = EventStream(OWN_STREAM, memory, is_awaited=False)
        self.protocol = LegacySession(methods, changes, view, send=self.own_stream.send)
        self.running = RunningRequests()
        self.readers = 0
        """Connections that read its own stream."""
        self.last_used = 0.0
        self._memory = memory
        self._streams: OrderedDict[str, EventStream] = OrderedDict()
        self._stream_count = 0
        self._is_closed = False

    @property
    def is_idle(self) -> bool:
        return not self.readers and not len(self.running)

    def open_stream(self) -> EventStream:
        """Open the stream of one request."""
        self._stream_count += 1
        is_announced = self.protocol.version >= _ANNOUNCED_SINCE
        stream = EventStream(str(self._stream_count), self._memory, is_announced=is_announced)
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
        stream = self.own_stream if stream_id == OWN_STREAM else self._streams.get(stream_id)
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
    """The sessions of all callers. Owned and closed by the endpoint."""

    def __init__(self, methods: Methods, changes: ListChanges, memory: StreamMemory) -> None:
        self._methods = methods
        self._changes = changes
        self._memory = memory
        self._sessions: OrderedDict[str, EndpointSession] = OrderedDict()
        self._closing = TaskSet()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, view: View) -> EndpointSession:
        """Begin a session."""
        of_caller = [each for each in self._sessions.values() if each.caller_id == view.caller_id]
        if len(of_caller) >= MAX_PER_CALLER:
            self._evict(of_caller)
        elif len(self._sessions) >= MAX_SESSIONS:
            self._evict(list(self._sessions.values()))
        session = EndpointSession(secrets.token_urlsafe(24), self._methods, self._changes, view, self._memory)
        self._sessions[session.id] = session
        self._touch(session)
        self._schedule_sweep()
        return session

    def find(self, session_id: str, view: View) -> EndpointSession | None:
        """Return a session of this caller at this path, or None."""
        session = self._sessions.get(session_id)
        if session is None or session.caller_id != view.caller_id or session.server != view.server:
            return None
        # The scope of the caller may have changed since.
        session.protocol.view = view
        self._touch(session)
        return session

    def end(self, session: EndpointSession) -> None:
        """End a session, in the background."""
        if self._sessions.pop(session.id, None) is not None:
            self._closing.start(session.close(), name="close MCP session")

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

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for session in list(self._sessions.values()):
            self.end(session)
        await self._closing.wait(CLOSE_TIMEOUT)

    def _touch(self, session: EndpointSession) -> None:
        session.last_used = asyncio.get_running_loop().time()
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
