"""One connection to an MCP server: a session with the task that owns it.

The owner task opens the transport, negotiates the protocol, waits for the end, and closes the transport, so that a
cancelled caller can neither leak a process nor leave a half-open connection. Tasks of `spawn_task` run in a TaskGroup
of the owner task and are cancelled before the transport is closed. A connection is used once; the supervisor replaces
one that has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Any

from holodeck.lib import log
from holodeck.lib.errors import MCPConnectionError, MCPError
from holodeck.lib.limits import PROBE_TIMEOUT
from holodeck.lib.system.fd_shortage import is_file_shortage
from holodeck.lib.tasks import TaskSet
from holodeck.tools.mcp.errors import ErrorFactory, describe_output
from holodeck.tools.mcp.protocol.handshake import negotiate
from holodeck.tools.mcp.protocol.jsonrpc import Message
from holodeck.tools.mcp.protocol.session import Session, Spawn
from holodeck.tools.mcp.protocol.versions import ProtocolEra


class ConnectionState(StrEnum):
    """The states of a connection, passed through in this order, never backwards."""

    CREATED = "created"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    ERROR = "error"
    DISCONNECTED = "disconnected"


BuildSession = Callable[[Spawn, Callable[[Message], None]], Session]


class Connection:
    """A connection to one server. Building it starts the owner task.

    `on_end` is called when the connection has ended, with the error if it was lost; `on_closed` when the transport is
    closed as well.
    """

    def __init__(
        self,
        build_session: BuildSession,
        *,
        errors: ErrorFactory,
        startup_timeout: float,
        known_era: ProtocolEra | None,
        is_era_fixed: bool,
        on_notification: Callable[[Connection, Message], None],
        on_end: Callable[[Connection, MCPError | None], None],
        on_closed: Callable[[Connection], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.state = ConnectionState.CREATED
        self.close_error: MCPError | None = None
        """The error of closing the transport. All resources are released nevertheless."""
        self._errors = errors
        self._startup_timeout = startup_timeout
        self._known_era = known_era
        self._is_era_fixed = is_era_fixed
        self._on_end = on_end
        self._on_closed = on_closed
        self._task_group: asyncio.TaskGroup | None = None
        self._group_tasks: set[asyncio.Task[None]] = set()
        self._own_tasks = TaskSet()
        self._started: asyncio.Future[MCPError | None] = loop.create_future()
        self._stop: asyncio.Future[MCPConnectionError | None] = loop.create_future()
        self.session = build_session(self.spawn_task, lambda message: on_notification(self, message))
        self._owner_task = self._own_tasks.start(self._run(), name=f"mcp:{errors.server}")

    async def wait_started(self) -> MCPError | None:
        """Wait for the end of the start. Returns its error, or None when the connection is usable."""
        return await asyncio.shield(self._started)

    def fail(self, error: MCPConnectionError) -> None:
        """End the connection with this error, without waiting. It is not live from now on."""
        self.session.transport.fail(error)
        if not self._stop.done():
            self._stop.set_result(error)

    async def close(self) -> None:
        """End the connection and wait until the transport is closed."""
        if not self._stop.done():
            self._stop.set_result(None)
        await asyncio.shield(self._owner_task)

    def spawn_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` as a task that is cancelled at the end of the connection. Its errors are logged.

        After the end of the connection `work` is not started, and a task that does nothing is returned.
        """
        group = self._task_group
        if group is None or self.state not in (ConnectionState.CONNECTING, ConnectionState.CONNECTED):
            work.close()
            return self._own_tasks.start(_noop())
        task = group.create_task(self._run_logged(work))
        # A task that is cancelled before its first step never awaits `work`.
        task.add_done_callback(lambda _: work.close())
        self._group_tasks.add(task)
        task.add_done_callback(self._group_tasks.discard)
        return task

    async def _run(self) -> None:
        error: MCPError | None = None
        self.state = ConnectionState.CONNECTING
        try:
            async with asyncio.TaskGroup() as self._task_group:
                try:
                    error = await self._serve()
                finally:
                    self.state = ConnectionState.ERROR if error is not None else ConnectionState.DISCONNECTED
                    for task in list(self._group_tasks):
                        task.cancel()
        finally:
            if not self._started.done():
                self._started.set_result(error or self._errors.connection("start", "the start was cancelled"))
            if isinstance(error, MCPConnectionError):
                self.session.transport.fail(error)
            self._on_end(self, error)
            try:
                if error is not None and error.details.get("stale_session"):
                    await self._wait_calls_finished()
                self.session.abort_calls()
                await self.session.transport.close()
            except MCPError as fault:
                self.state, self.close_error = ConnectionState.ERROR, fault
                log.info("mcp.close_failed", server=self._errors.server, error=fault)
            finally:
                self._on_closed(self)

    async def _wait_calls_finished(self) -> None:
        """Wait for the pending requests of a session that the server no longer knows: it may still answer them."""
        idle = self._own_tasks.start(self.session.wait_idle())
        ends: list[asyncio.Future[Any]] = [idle, self._stop]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        idle.cancel()

    async def _serve(self) -> MCPError | None:
        """Start, and wait for the end. Returns the error that ended the connection, or None after `close`."""
        try:
            async with asyncio.timeout(self._startup_timeout):
                start = self._own_tasks.start(self._start())
                try:
                    outcomes: list[asyncio.Future[Any]] = [start, self._stop]
                    await asyncio.wait(outcomes, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not start.done():
                        start.cancel()
                        await asyncio.wait({start})
            if start.cancelled():
                return self._stop.result()
            start.result()
        except TimeoutError:
            return self._start_timeout_error()
        except MCPError as error:
            return error
        except Exception as error:
            if is_file_shortage(error):
                return self._errors.out_of_files("start")
            log.error("mcp.start_bug", server=self._errors.server, error=repr(error))
            return self._errors.connection("start", f"unexpected {type(error).__name__}: {error}")
        self.state = ConnectionState.CONNECTED
        self._started.set_result(None)
        lost = self.session.transport.failure
        ends: list[asyncio.Future[Any]] = [self._stop, lost]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        return self._stop.result() if self._stop.done() else lost.result()

    async def _start(self) -> None:
        await self.session.transport.open()
        await negotiate(
            self.session,
            self._known_era,
            is_fixed=self._is_era_fixed,
            probe_timeout=min(PROBE_TIMEOUT, self._startup_timeout / 3),
        )

    def _start_timeout_error(self) -> MCPError:
        transport = self.session.transport
        stray, stderr = transport.stray_output(), transport.stderr_tail()
        text = f"it did not answer within {self._startup_timeout:g} s ('startup_timeout')."
        return self._errors.timeout(
            "start", text + describe_output(stray, stderr), stderr=stderr or None, stray_output=stray or None
        )

    async def _run_logged(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except MCPError as error:
            log.debug("mcp.job_failed", server=self._errors.server, error=error)
        except Exception as error:
            log.error("mcp.job_bug", server=self._errors.server, error=repr(error))


async def _noop() -> None:
    return
