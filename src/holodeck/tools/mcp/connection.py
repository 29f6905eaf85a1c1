"""One task opens, serves and closes an MCP connection, so a cancelled caller can neither leak a process nor hang."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Any

from holodeck.lib import log
from holodeck.lib.errors import MCPConnectionError, MCPError
from holodeck.lib.limits import PROBE_TIMEOUT
from holodeck.lib.shortage import is_short
from holodeck.tools.mcp.era import Era
from holodeck.tools.mcp.faults import Faults
from holodeck.tools.mcp.handshake import negotiate
from holodeck.tools.mcp.jsonrpc import Message
from holodeck.tools.mcp.session import Session, Spawn


class State(StrEnum):
    """A connection goes down this list once, and never back."""

    CREATED = "created"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    ERROR = "error"
    DISCONNECTED = "disconnected"


MakeSession = Callable[[Spawn, Callable[[Message], None]], Session]


class Connection:
    """A connection to one server, from its start to its end."""

    def __init__(
        self,
        make_session: MakeSession,
        *,
        faults: Faults,
        startup_timeout: float,
        remembered: Era | None,
        on_notice: Callable[[Connection, Message], None],
        on_end: Callable[[Connection, MCPError | None], None],
        on_closed: Callable[[Connection], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.state = State.CREATED
        self.close_fault: MCPError | None = None
        """What went wrong while it was ended; it is ended all the same."""
        self._faults = faults
        self._startup_timeout = startup_timeout
        self._remembered = remembered
        self._on_end = on_end
        self._on_closed = on_closed
        self._jobs: asyncio.TaskGroup | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._started: asyncio.Future[MCPError | None] = loop.create_future()
        self._stop: asyncio.Future[MCPConnectionError | None] = loop.create_future()
        self.session = make_session(self.spawn, lambda message: on_notice(self, message))
        self._owner = loop.create_task(self._own(), name=f"mcp:{faults.server}")

    @property
    def is_live(self) -> bool:
        """True while a request may be sent."""
        return self.state is State.CONNECTED and not self.session.channel.lost.done()

    async def started(self) -> MCPError | None:
        """Wait until it is connected, or why not."""
        return await asyncio.shield(self._started)

    def fail(self, error: MCPConnectionError) -> None:
        """End it because of this; nobody gets it from now on."""
        self.session.channel.lose(error)
        if not self._stop.done():
            self._stop.set_result(error)

    async def close(self) -> None:
        """End it, and wait until everything is gone."""
        if not self._stop.done():
            self._stop.set_result(None)
        await asyncio.shield(self._owner)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run work that ends with the connection at the latest."""
        loop = asyncio.get_running_loop()
        if self._jobs is None or self.state not in (State.CONNECTING, State.CONNECTED):
            work.close()
            return loop.create_task(_nothing())
        task = self._jobs.create_task(self._guarded(work))
        task.add_done_callback(lambda _: work.close())  # one that is cancelled before its first step never began it
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _own(self) -> None:
        error: MCPError | None = None
        self.state = State.CONNECTING
        try:
            async with asyncio.TaskGroup() as self._jobs:
                try:
                    error = await self._serve()
                finally:
                    self.state = State.ERROR if error is not None else State.DISCONNECTED
                    for job in list(self._running):
                        job.cancel()
        finally:
            if not self._started.done():
                self._started.set_result(error or self._faults.connection("start", "the start was cancelled"))
            if isinstance(error, MCPConnectionError):
                self.session.channel.lose(error)
            self._on_end(self, error)
            try:
                if error is not None and error.details.get("stale_session"):
                    await self._served_to_the_end()
                self.session.give_up()
                await self.session.channel.close()
            except MCPError as fault:
                self.state, self.close_fault = State.ERROR, fault
                log.info("mcp.close_failed", server=self._faults.server, error=fault)
            finally:
                self._on_closed(self)

    async def _served_to_the_end(self) -> None:
        """A session that the server forgot takes no new request; those it is answering are not its fault."""
        quiet = asyncio.create_task(self.session.quiet())
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
            return self._too_slow()
        except MCPError as error:
            return error
        except Exception as error:
            if is_short(error):
                return self._faults.no_room("start")
            log.error("mcp.start_bug", server=self._faults.server, error=repr(error))
            return self._faults.connection("start", f"unexpected {type(error).__name__}: {error}")
        self.state = State.CONNECTED
        self._started.set_result(None)
        lost = self.session.channel.lost
        ends: list[asyncio.Future[Any]] = [self._stop, lost]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        return self._stop.result() if self._stop.done() else lost.result()

    async def _start(self) -> None:
        await self.session.channel.open()
        await negotiate(self.session, self._remembered, patience=min(PROBE_TIMEOUT, self._startup_timeout / 3))

    def _too_slow(self) -> MCPError:
        words = self.session.channel.last_words()
        text = f"it did not answer within {self._startup_timeout:g} s ('startup_timeout')."
        return self._faults.timeout(
            "start", f"{text} Its last words:\n{words}" if words else text, stderr=words or None
        )

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except MCPError as error:
            log.debug("mcp.job_failed", server=self._faults.server, error=error)
        except Exception as error:
            log.error("mcp.job_bug", server=self._faults.server, error=repr(error))


async def _nothing() -> None:
    return
