"""Keeps a connection to one server: made on first use, again after a loss, given up for a while in a crash loop."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from holodeck.lib import log
from holodeck.lib.errors import MCPConnectionError, MCPError
from holodeck.models.tool import MCPTool, TransportType
from holodeck.tools.mcp.connection.connection import BuildSession, Connection, ConnectionState
from holodeck.tools.mcp.errors import OUTCOME_UNKNOWN, ErrorFactory
from holodeck.tools.mcp.protocol.jsonrpc import Message
from holodeck.tools.mcp.protocol.versions import NegotiatedTerms, ProtocolEra

# Starts of one server ...
MAX_STARTS = 5
# ... in this time are a crash loop ...
START_WINDOW = 60.0
# ... and it is left alone for this long.
START_PAUSE = 30.0
# Before the second start in a row; doubled each time.
FIRST_BACKOFF = 0.1
# A person is waiting.
MAX_BACKOFF = 2.0
# Calls in a row without a sign of life, before the server is asked whether it lives.
HUNG_AFTER_TIMEOUTS = 2
# For the answer to that question.
LIVENESS_TIMEOUT = 5.0


_DOUBLINGS = 10  # from the first pause to far more than the longest


@dataclass(frozen=True, kw_only=True)
class StartLimits:
    """The numbers, for those who need others."""

    starts: int = MAX_STARTS
    window: float = START_WINDOW
    pause: float = START_PAUSE


class RestartPolicy:
    """The starts of one server so far."""

    def __init__(self, limits: StartLimits) -> None:
        self._limits = limits
        self._times: deque[float] = deque()
        self._paused_until = 0.0
        self._failures = 0

    def seconds_until_allowed(self) -> float:
        """Seconds for which it may not be started; 0 when it may."""
        now = time.monotonic()
        if now < self._paused_until:
            return self._paused_until - now
        while self._times and now - self._times[0] > self._limits.window:
            self._times.popleft()
        if len(self._times) < self._limits.starts:
            return 0.0
        self._times.clear()  # after the pause it has all its chances again
        self._paused_until = now + self._limits.pause
        return self._limits.pause

    def backoff_seconds(self) -> float:
        """Seconds to wait before the next start."""
        return min(FIRST_BACKOFF * 2 ** min(self._failures - 1, _DOUBLINGS), MAX_BACKOFF) if self._failures else 0.0

    def record_start(self) -> None:
        self._times.append(time.monotonic())

    def undo_start(self) -> None:
        """The last start did not come to be, for a reason that is not the server's."""
        if self._times:
            self._times.pop()

    def record_failure(self) -> None:
        self._failures += 1

    def record_success(self) -> None:
        self._failures = 0


class Supervisor:
    """The one who starts, watches and restarts."""

    def __init__(
        self,
        tool: MCPTool,
        build_session: BuildSession,
        *,
        errors: ErrorFactory,
        limits: StartLimits,
        on_connected: Callable[[Connection], None],
        on_notification: Callable[[Connection, Message], None],
        on_failure: Callable[[MCPError], None],
    ) -> None:
        self._tool = tool
        self._build_session = build_session
        self._errors = errors
        self._restart_policy = RestartPolicy(limits)
        self._on_connected = on_connected
        self._on_notification = on_notification
        self._on_failure = on_failure
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection | MCPError] | None = None
        self._closing: set[Connection] = set()
        self._is_closed = False
        self._close_error: MCPError | None = None
        self._era: ProtocolEra | None = None
        self._timeouts = 0
        self._last_error: MCPError | None = None

    @property
    def live_connection(self) -> Connection | None:
        """The connection, if there is one that can be used at once."""
        connection = self._connection
        return connection if connection is not None and connection.is_live else None

    @property
    def state(self) -> ConnectionState:
        if self._is_closed:
            return ConnectionState.DISCONNECTED if self._close_error is None else ConnectionState.ERROR
        if self._connecting is not None:
            return ConnectionState.CONNECTING
        if self._connection is not None:
            return (
                ConnectionState.ERROR if self._connection.session.transport.failure.done() else self._connection.state
            )
        return ConnectionState.ERROR if self._last_error is not None else ConnectionState.CREATED

    @property
    def terms(self) -> NegotiatedTerms | None:
        """What was last agreed with the server."""
        return self._connection.session.terms if self._connection is not None else None

    def allow_connections(self) -> None:
        """Allow connections again after `close`."""
        self._is_closed = False
        self._close_error = None

    async def get_connection(self) -> Connection:
        """A connection that can be used. Raises MCPConnectionError; callers that come together share one start."""
        if self._is_closed:
            raise self._errors.connection("use", "it was closed. Call connect() to open it again.")
        live = self.live_connection
        if live is not None:
            return live
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect(), name=f"mcp-start:{self._errors.server}")
        outcome = await self._wait_outcome(self._connecting)
        if isinstance(outcome, MCPError):
            raise outcome
        return outcome

    async def _wait_outcome(self, connecting: asyncio.Task[Connection | MCPError]) -> Connection | MCPError:
        """What became of a start. One that is given up ends the wait of all who share it, not what they do."""
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not connecting.cancelled() or (task is not None and task.cancelling()):
                raise
            return self._errors.connection("start", "it was closed before it was there.")

    async def close(self) -> None:
        """End everything. Bounded."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        if self._connection is not None:
            self._closing.add(self._connection)
        if self._closing:
            await asyncio.gather(*(connection.close() for connection in list(self._closing)))

    def record_success(self) -> None:
        """The server did what it was asked."""
        self._timeouts = 0
        self._restart_policy.record_success()

    def record_timeout(self, connection: Connection, started_at: float) -> None:
        """A call got no answer. A server that said nothing at all meanwhile may hang, and then it is ended."""
        channel = connection.session.transport
        halfway = (started_at + asyncio.get_running_loop().time()) / 2  # a big message on its way grows all the time
        is_stuck = channel.is_stuck(halfway)
        if channel.last_received_at() > started_at and not is_stuck:
            self._timeouts = 0
            return
        self._timeouts += 1
        if self._tool.transport is TransportType.HTTP:
            return
        if is_stuck:
            self._end_hung(connection, "it stopped in the middle of a message")
        elif self._timeouts >= HUNG_AFTER_TIMEOUTS:
            connection.spawn_task(self._check_alive(connection))

    async def _check_alive(self, connection: Connection) -> None:
        is_modern = self._era is ProtocolEra.MODERN
        began = asyncio.get_running_loop().time()
        try:
            await connection.session.request("server/discover" if is_modern else "ping", seconds=LIVENESS_TIMEOUT)
        except MCPError:
            if connection.session.transport.last_received_at() < began:
                self._end_hung(connection, f"{self._timeouts} calls in a row got no answer")

    def _end_hung(self, connection: Connection, why: str) -> None:
        self._timeouts = 0
        log.warning("mcp.hung", server=self._errors.server, why=why)
        connection.fail(self._errors.connection("run", f"{why}, so it was ended. {OUTCOME_UNKNOWN}", outcome="unknown"))

    async def _connect(self) -> Connection | MCPError:
        try:
            outcome = await self._start()
        finally:
            self._connecting = None
        if isinstance(outcome, MCPError):
            self._on_failure(outcome)
            return outcome
        self._last_error = None
        self._connection = outcome
        self._on_connected(outcome)
        return outcome

    async def _start(self) -> Connection | MCPError:
        pause = self._restart_policy.seconds_until_allowed()
        if pause:
            return self._unavailable_error(pause)
        await asyncio.sleep(self._restart_policy.backoff_seconds())
        self._restart_policy.record_start()
        began = time.monotonic()
        outcome = await self._open(self._era)
        if isinstance(outcome, MCPError) and self._crashed_on_probe(outcome):
            log.debug("mcp.asked_again", server=self._errors.server, why="it ended when asked in the modern way")
            outcome = await self._open(ProtocolEra.LEGACY)
        if isinstance(outcome, MCPError):
            if outcome.details.get("shortage"):
                self._restart_policy.undo_start()
            else:
                self._restart_policy.record_failure()
            self._last_error = outcome
            return outcome
        terms = outcome.session.terms
        self._era = terms.era if terms is not None else None
        log.info(
            "mcp.connected",
            server=self._errors.server,
            transport=self._tool.transport.value,
            era=self._era,
            version=terms.version if terms is not None else None,
            ms=round((time.monotonic() - began) * 1000),
        )
        return outcome

    async def _open(self, era: ProtocolEra | None) -> Connection | MCPError:
        connection = Connection(
            self._build_session,
            errors=self._errors,
            startup_timeout=self._tool.startup_timeout,
            known_era=era,
            on_notification=self._on_notification,
            on_end=self._record_end,
            on_closed=self._record_close,
        )
        self._closing.add(connection)
        try:
            error = await connection.wait_started()
        except asyncio.CancelledError:
            connection.fail(self._errors.connection("start", "the start was cancelled"))
            raise
        return error or connection

    def _crashed_on_probe(self, error: MCPError) -> bool:
        """Some servers end themselves when the first message is not the old handshake."""
        if self._tool.transport is TransportType.HTTP:  # there a question is a request of its own, and harms no other
            return False
        return self._era is None and bool(error.details.get("on_probe"))

    def _record_end(self, connection: Connection, error: MCPError | None) -> None:
        if connection is self._connection and error is not None:
            log.warning("mcp.lost", server=self._errors.server, error=error)
            self._restart_policy.record_failure()
            self._on_failure(error)

    def _record_close(self, connection: Connection) -> None:
        self._closing.discard(connection)
        if self._is_closed and connection.close_error is not None:
            self._close_error = connection.close_error

    def _unavailable_error(self, pause: float) -> MCPConnectionError:
        cause = f" The last failure: {self._last_error}" if self._last_error is not None else ""
        text = f"unavailable: it failed too often. It will be tried again in {pause:.0f} s.{cause}"
        return self._errors.connection("start", text, retry_after=pause)
