"""Supervises the connection to one server.

A connection is made on first use and replaced after a loss. Starts are limited by `RestartPolicy`: pauses grow with
each failure, and a server in a crash loop is not started for `START_PAUSE` seconds. Callers that need a connection at
the same time share one start; a cancelled caller does not cancel it. A server that repeatedly does not answer gets a
liveness check, and its connection is ended if that fails. `close` ends the start and all connections.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from holodeck.lib import log
from holodeck.lib.backoff import backoff_pause
from holodeck.lib.call_errors import OUTCOME_UNKNOWN
from holodeck.lib.errors import MCPConnectionError, MCPError, MCPTimeoutError
from holodeck.lib.record import record
from holodeck.lib.tasks import TaskSet
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.connection.connection import BuildSession, Connection, ConnectionState
from holodeck.tools.mcp.errors import ErrorFactory
from holodeck.tools.mcp.protocol.jsonrpc import Message
from holodeck.tools.mcp.protocol.versions import NegotiatedTerms, ProtocolEra
from holodeck.tools.mcp.transports.registry import get_kind

# Starts of one server within START_WINDOW; one more is considered a crash loop.
MAX_STARTS = 5
# Seconds over which starts are counted.
START_WINDOW = 60.0
# Seconds for which a server in a crash loop is not started.
START_PAUSE = 30.0
# Seconds before the start after a first failure; doubled with each further failure in a row.
FIRST_BACKOFF = 0.1
# Seconds before a start, at most: a person may be waiting for the answer.
MAX_BACKOFF = 2.0
# Calls in a row that time out without any byte from the server, before its liveness is checked.
HUNG_AFTER_TIMEOUTS = 2
# Seconds for the answer to the liveness check.
LIVENESS_TIMEOUT = 5.0


@record
class StartLimits:
    """Limits on the starts of one server: `starts` in `window` seconds, else none for `pause` seconds."""

    starts: int = MAX_STARTS
    window: float = START_WINDOW
    pause: float = START_PAUSE


class RestartPolicy:
    """Decides when one server may be started, from its starts and failures so far."""

    def __init__(self, limits: StartLimits) -> None:
        self._limits = limits
        self._times: deque[float] = deque()
        self._paused_until = 0.0
        self.failures = 0
        """Starts in a row that failed, and connections that were lost, since the last answered call."""

    def seconds_until_allowed(self) -> float:
        """Return the seconds for which the server may not be started; 0 when it may be."""
        now = time.monotonic()
        if now < self._paused_until:
            return self._paused_until - now
        while self._times and now - self._times[0] > self._limits.window:
            self._times.popleft()
        if len(self._times) < self._limits.starts:
            return 0.0
        # After the pause all starts are allowed again.
        self._times.clear()
        self._paused_until = now + self._limits.pause
        return self._limits.pause

    def backoff_seconds(self) -> float:
        """Return the seconds to wait before the next start."""
        return backoff_pause(self.failures, first=FIRST_BACKOFF, longest=MAX_BACKOFF) if self.failures else 0.0

    def record_start(self) -> None:
        self._times.append(time.monotonic())

    def undo_start(self) -> None:
        """Uncount the last start: it failed for a reason of this process, not of the server."""
        if self._times:
            self._times.pop()


class Supervisor:
    """Owns the connections to one server: the live one, and those that are still closing."""

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
        self._transport_kind = get_kind(tool)
        self._build_session = build_session
        self._errors = errors
        self._restart_policy = RestartPolicy(limits)
        self._on_connected = on_connected
        self._on_notification = on_notification
        self._on_failure = on_failure
        self._connection: Connection | None = None
        self._latest_opened: Connection | None = None
        """The connection that was started last, whether or not it was established."""
        self._tasks = TaskSet()
        self._connecting: asyncio.Task[Connection | MCPError] | None = None
        self._closing: set[Connection] = set()
        self._is_closed = False
        self._close_error: MCPError | None = None
        self._is_era_fixed = tool.protocol != "auto"
        self._era: ProtocolEra | None = None
        if self._is_era_fixed:
            self._era = ProtocolEra(tool.protocol)
        elif not self._transport_kind.has_modern_era:
            self._era = ProtocolEra.LEGACY
        self._timeouts = 0
        self._last_error: MCPError | None = None
        self.connections = 0
        """How many connections were established."""
        self.start_seconds: float | None = None
        """Seconds that the latest connection took to be established."""

    @property
    def live_connection(self) -> Connection | None:
        """The connection, if it is usable now."""
        connection = self._connection
        if connection is None or connection.state is not ConnectionState.CONNECTED:
            return None
        return None if connection.session.transport.failure.done() else connection

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
    def last_error(self) -> MCPError | None:
        """Why the state is ERROR: the error of the latest start, the loss of the connection, or that of its closing.

        None in any other state.
        """
        if self.state is not ConnectionState.ERROR:
            return None
        if self._is_closed:
            return self._close_error
        if self._last_error is not None or self._connection is None:
            return self._last_error
        loss = self._connection.session.transport.failure
        return loss.result() if loss.done() else self._connection.close_error

    @property
    def stderr_tail(self) -> str:
        """The end of what the latest process wrote to its standard error, also of one whose start failed."""
        return "" if self._latest_opened is None else self._latest_opened.session.transport.stderr_tail()

    @property
    def is_closed(self) -> bool:
        """True after `close`, until connections are allowed again."""
        return self._is_closed

    @property
    def terms(self) -> NegotiatedTerms | None:
        """The terms of the latest connection."""
        return self._connection.session.terms if self._connection is not None else None

    def allow_connections(self) -> None:
        """Allow connections again after `close`."""
        self._is_closed = False
        self._close_error = None

    def forget_connection(self) -> None:
        """Allow connections again after `close`, in the state of a server that is not used yet."""
        self.allow_connections()
        self._connection = self._latest_opened = self._last_error = None

    async def get_connection(self) -> Connection:
        """Return a usable connection, starting one if needed. Concurrent callers share one start. Raises MCPError."""
        if self._is_closed:
            raise self._errors.connection("use", "it was closed. Call connect() to open it again.")
        live = self.live_connection
        if live is not None:
            return live
        if self._connecting is None:
            self._connecting = self._tasks.start(self._connect(), name=f"mcp-start:{self._errors.server}")
        outcome = await self._wait_outcome(self._connecting)
        if isinstance(outcome, MCPError):
            raise outcome
        return outcome

    async def _wait_outcome(self, connecting: asyncio.Task[Connection | MCPError]) -> Connection | MCPError:
        """Wait for a shared start. When `close` cancels it, its callers get an error and are not cancelled."""
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not connecting.cancelled() or (task is not None and task.cancelling()):
                raise
            return self._errors.connection("start", "it was closed before it was there.")

    async def close(self) -> None:
        """Cancel the start in progress and close all connections, in bounded time."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        if self._connection is not None:
            self._closing.add(self._connection)
        if self._closing:
            await asyncio.gather(*(connection.close() for connection in list(self._closing)))

    def record_success(self) -> None:
        """Record an answered call: the server works."""
        self._timeouts = self._restart_policy.failures = 0

    def record_failure(self, connection: Connection, error: MCPConnectionError, started_at: float) -> None:
        """Record a call without an answer. After a timeout, a server that sent nothing since `started_at` may hang.

        Its connection is ended if it stopped in the middle of a message, or after several such calls if it does not
        answer the liveness check.
        """
        if not isinstance(error, MCPTimeoutError):
            return
        transport = connection.session.transport
        # The bytes of a large message come all the time: half of the call's time without any means that it stopped.
        halfway = (started_at + asyncio.get_running_loop().time()) / 2
        is_stuck = transport.is_stuck(halfway)
        if transport.last_received_at() > started_at and not is_stuck:
            self._timeouts = 0
            return
        self._timeouts += 1
        if not self._transport_kind.has_connection:
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
            log.debug("mcp.asked_again", server=self._errors.server, why="it exited on the modern probe")
            outcome = await self._open(ProtocolEra.LEGACY)
        if isinstance(outcome, MCPError):
            if outcome.details.get("shortage"):
                self._restart_policy.undo_start()
            else:
                self._restart_policy.failures += 1
            self._last_error = outcome
            return outcome
        self.connections += 1
        self.start_seconds = time.monotonic() - began
        terms = outcome.session.terms
        self._era = terms.era if terms is not None else None
        log.info(
            "mcp.connected",
            server=self._errors.server,
            transport=self._tool.transport_name,
            era=self._era,
            version=terms.version if terms is not None else None,
            ms=round(self.start_seconds * 1000),
        )
        return outcome

    async def _open(self, era: ProtocolEra | None) -> Connection | MCPError:
        connection = Connection(
            self._build_session,
            errors=self._errors,
            startup_timeout=self._tool.startup_timeout,
            known_era=era,
            is_era_fixed=self._is_era_fixed,
            on_notification=self._on_notification,
            on_end=self._record_end,
            on_closed=self._record_close,
        )
        self._latest_opened = connection
        self._closing.add(connection)
        try:
            error = await connection.wait_started()
        except asyncio.CancelledError:
            connection.fail(self._errors.connection("start", "the start was cancelled"))
            raise
        return error or connection

    def _crashed_on_probe(self, error: MCPError) -> bool:
        """Return True for a server that exited because the first message was not the legacy handshake, as some do."""
        is_first_probe = self._era is None and bool(error.details.get("on_probe"))
        return is_first_probe and self._transport_kind.has_connection

    def _record_end(self, connection: Connection, error: MCPError | None) -> None:
        if connection is self._connection and error is not None:
            log.warning("mcp.lost", server=self._errors.server, error=error)
            self._restart_policy.failures += 1
            self._on_failure(error)

    def _record_close(self, connection: Connection) -> None:
        self._closing.discard(connection)
        if self._is_closed and connection.close_error is not None:
            self._close_error = connection.close_error

    def _unavailable_error(self, pause: float) -> MCPConnectionError:
        cause = f" The last failure: {self._last_error}" if self._last_error is not None else ""
        text = f"unavailable: it failed too often. It will be tried again in {pause:.0f} s.{cause}"
        return self._errors.connection("start", text, retry_after=pause)
