"""One task opens, serves and closes an MCP connection, so a cancelled caller can neither leak a process nor hang."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Any

from holodeck.lib import log
from holodeck.lib.errors import MCPConnectionError, MCPError
from holodeck.lib.limits import PROBE_TIMEOUT
from holodeck.lib.system.fd_shortage import is_file_shortage
from holodeck.tools.mcp.errors import ErrorFactory
from holodeck.tools.mcp.protocol.handshake import negotiate
from holodeck.tools.mcp.protocol.jsonrpc import Message
from holodeck.tools.mcp.protocol.session import Session, Spawn
from holodeck.tools.mcp.protocol.versions import ProtocolEra


class ConnectionState(StrEnum):
    """A connection goes down this list once, and never back."""

    CREATED = "created"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    ERROR = "error"
    DISCONNECTED = "disconnected"


BuildSession = Callable[[Spawn, Callable[[Message], None]], Session]


class Connection:
    """A connection to one server, from its start to its end."""

    def __init__(
        self,
        build_session: BuildSession,
        *,
        errors: ErrorFactory,
        startup_timeout: float,
        known_era: ProtocolEra | None,
        on_notification: Callable[[Connection, Message], None],
        on_end: Callable[[Connection, MCPError | None], None],
        on_closed: Callable[[Connection], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.state = ConnectionState.CREATED
        self.close_error: MCPError | None = None
        """What went wrong while it was ended; it is ended all the same."""
        self._errors = errors
        self._startup_timeout = startup_timeout
        self._known_era = known_era
        self._on_end = on_end
        self._on_closed = on_closed
        self._task_group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._started: asyncio.Future[MCPError | None] = loop.create_future()
        self._stop: asyncio.Future[MCPConnectionError | None] = loop.create_future()
        self.session = build_session(self.spawn_task, lambda message: on_notification(self, message))
        self._owner_task = loop.create_task(self._run(), name=f"mcp:{errors.server}")

    @property
    def is_live(self) -> bool:
        """True while a request may be sent."""
        return self.state is ConnectionState.CONNECTED and not self.session.transport.failure.done()

    async def wait_started(self) -> MCPError | None:
        """Wait until it is connected, or why not."""
        return await asyncio.shield(self._started)

    def fail(self, error: MCPConnectionError) -> None:
        """End it because of this; nobody gets it from now on."""
        self.session.transport.fail(error)
        if not self._stop.done():
            self._stop.set_result(error)

    async def close(self) -> None:
        """End it, and wait until everything is gone."""
        if not self._stop.done():
            self._stop.set_result(None)
        await asyncio.shield(self._owner_task)

    def spawn_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run work that ends with the connection at the latest."""
        loop = asyncio.get_running_loop()
        if self._task_group is None or self.state not in (ConnectionState.CONNECTING, ConnectionState.CONNECTED):
            work.close()
            return loop.create_task(_noop())
        task = self._task_group.create_task(self._run_logged(work))
        task.add_done_callback(lambda _: work.close())  # one that is cancelled before its first step never began it
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
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
                    for job in list(self._tasks):
                        job.cancel()
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
        """A session that the server forgot takes no new request; those it is answering are not its fault."""
        quiet = asyncio.create_task(self.session.wait_idle())
        either: list[asyncio.Future[Any]] = [quiet, self._stop]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        quiet.cancel()

    async def _serve(self) -> MCPError | None:
        """Run it to its end; an error is why it ended, None is that it was asked to."""
        try:
            async with asyncio.timeout(self._startup_timeout):
                start = asyncio.ensure_future(self._start())
                try:
                    waiting: list[asyncio.Future[Any]] = [start, self._stop]
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
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
        await negotiate(self.session, self._known_era, probe_timeout=min(PROBE_TIMEOUT, self._startup_timeout / 3))

    def _start_timeout_error(self) -> MCPError:
        words = self.session.transport.stderr_tail()
        text = f"it did not answer within {self._startup_timeout:g} s ('startup_timeout')."
        return self._errors.timeout(
            "start", f"{text} Its last words:\n{words}" if words else text, stderr=words or None
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
