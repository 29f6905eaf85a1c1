"""What one server offers, as far as it is known. A dead one can be tried again in the background, at nobody's cost."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import suppress

from holodeck.lib import log
from holodeck.lib.errors import MCPError
from holodeck.lib.limits import DISCOVERY_TIMEOUT
from holodeck.models.tool import TransportType
from holodeck.tools.mcp.discovery import MCPToolInfo
from holodeck.tools.mcp.plugin import MCPPlugin

# Before a dead server is tried again in the background; doubled each time.
FIRST_REVIVAL = 1.0
# A server that is back is found within a minute, and one that is not costs a dial a minute.
MAX_REVIVAL = 60.0
# At most so many times the pause, by chance: what died together is not tried together.
REVIVAL_SPREAD = 1.3


_DOUBLINGS = 10  # from the first pause to far more than the longest


class ServerTools:
    """The tools of a server, asked for again and again. Shared by all who offer them to a model."""

    def __init__(
        self,
        server: MCPPlugin,
        *,
        discovery_timeout: float | None = None,
        revival_slots: asyncio.Semaphore | None = None,
        max_tools: int | None = None,
    ) -> None:
        """`discovery_timeout`: seconds that an offer waits for it. `revival_slots`: whose turn it is to try a dead
        server again.

        `max_tools`: how many tools are taken from it; the rest is left out.
        """
        self.server = server
        self.discovery_timeout = _default_discovery_timeout(server) if discovery_timeout is None else discovery_timeout
        self.failure: MCPError | None = None
        """Why it is missing from the latest offer."""
        self.next_try: float | None = None
        """When it will be tried again, as a wall clock shows it; None while it lives or is being tried."""
        self._max_tools = max_tools
        self._revival_slots = revival_slots
        self._revival_task: asyncio.Task[None] | None = None
        self._refresh_task: asyncio.Task[None] | None = None
        self._listing_task: asyncio.Task[list[MCPToolInfo]] | None = None
        self._tools: Sequence[MCPToolInfo] = ()
        self.latest_tools: Sequence[MCPToolInfo] | None = None
        """Its latest list of tools, also while it is down; None before the first one."""
        self._logged_count: int | None = None
        self._was_waited_for = False

    @property
    def is_listing_pending(self) -> bool:
        """True while nobody knows yet what it has."""
        return (
            self._listing_task is not None
            and not self._listing_task.done()
            and self.latest_tools is None
            and self.failure is None
        )

    @property
    def missing_reason(self) -> str:
        """Why its tools are not on offer; empty where they are, or where it was never asked."""
        if self.failure is not None:
            return self.server.explain(self.failure)
        return (
            f"Server '{self.server.name}' (list): it has not said yet what it has." if self.is_listing_pending else ""
        )

    def request_listing(self) -> asyncio.Task[list[MCPToolInfo]] | None:
        """Ask for its tools. None when there is nothing to wait for: it is tried in the background, or had its time."""
        if self._revival_slots is not None:
            self.collect_tools()  # one that failed after its time was up is tried in the background from here on
        if self._revival_task is not None and not self._revival_task.done():
            return None
        if self._listing_task is None or self._listing_task.done():
            self._start_listing()
        return None if self._was_waited_for else self._listing_task

    def mark_waited(self) -> None:
        """Somebody has waited for the answer as long as one waits; the others need not."""
        self._was_waited_for = True

    def collect_tools(self) -> Sequence[MCPToolInfo]:
        """What it has, as far as it has said. While it is asked anew, what it said before."""
        task = self._listing_task
        if task is None or not task.done() or task.cancelled():
            return self._tools
        error = task.exception()
        if error is None:
            self._apply_tools(task.result())
        elif isinstance(error, MCPError):
            self._apply_failure(error)
        else:
            raise error
        return self._tools

    async def refresh(self) -> None:
        """Connect anew and ask, now; those who want it at the same time share it. Raises MCPError."""
        if self._refresh_task is None or self._refresh_task.done():
            self._refresh_task = asyncio.create_task(self._refresh(), name=f"refresh {self.server.name}")
        await asyncio.wait({self._refresh_task})
        if self.failure is not None:
            raise self.failure

    async def _refresh(self) -> None:
        await self._cancel_task(self._revival_task)
        await self._cancel_task(self._listing_task)
        self._revival_task = self.next_try = None
        await self.server.disconnect()
        try:
            await self.server.connect()
        except MCPError as error:
            self._apply_failure(error)
            return
        await asyncio.wait({self._start_listing()})
        self.collect_tools()

    async def close(self) -> None:
        """End everything that was begun here, and the server. Bounded by its own limits."""
        await self._cancel_task(self._refresh_task)
        await self._cancel_task(self._revival_task)
        await self._cancel_task(self._listing_task)
        await self.server.close()

    def _start_listing(self) -> asyncio.Task[list[MCPToolInfo]]:
        self._listing_task = asyncio.create_task(self.server.list_tools(), name=f"list tools of {self.server.name}")
        self._was_waited_for = False
        return self._listing_task

    def _apply_tools(self, tools: Sequence[MCPToolInfo]) -> None:
        """Log what it has, when that is news. Having nothing is no error, but rarely meant."""
        self._tools, self.failure = tools[: self._max_tools], None
        self.latest_tools = self._tools
        if self._logged_count != len(tools):
            self._logged_count = len(tools)
            (log.info if tools else log.warning)("mcp.discovered", server=self.server.name, tools=len(tools))

    def _apply_failure(self, error: MCPError) -> None:
        if str(self.failure) != str(error):
            log.warning("mcp.unavailable", server=self.server.name, phase=error.phase, reason=error)
        self._tools, self.failure = (), error
        if self._revival_slots is not None and (self._revival_task is None or self._revival_task.done()):
            self._revival_task = asyncio.create_task(
                self._revive(self._revival_slots), name=f"revive {self.server.name}"
            )

    async def _revive(self, slots: asyncio.Semaphore) -> None:
        """Try until it lives. Servers that died together are not tried together."""
        tries = 0
        while self.failure is not None:
            pause = min(FIRST_REVIVAL * 2 ** min(tries, _DOUBLINGS), MAX_REVIVAL)
            pause = max(pause * random.uniform(1, REVIVAL_SPREAD), _requested_pause(self.failure))  # noqa: S311
            self.next_try = time.time() + pause
            await asyncio.sleep(pause)
            tries += 1
            async with slots:
                self.next_try = None
                await asyncio.wait({self._start_listing()})
                self.collect_tools()
        log.info("mcp.revived", server=self.server.name, tries=tries)

    async def _cancel_task(self, task: asyncio.Task[None] | asyncio.Task[list[MCPToolInfo]] | None) -> None:
        if task is not None and not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait({task})


def _requested_pause(error: MCPError) -> float:
    """How long the server itself, or our own limit of starts, wants to be left alone."""
    asked = error.details.get("retry_after")
    try:
        return min(float(asked), MAX_REVIVAL) if asked is not None else 0.0
    except (TypeError, ValueError):  # an HTTP date
        return 0.0


def _default_discovery_timeout(server: MCPPlugin) -> float:
    """A process may have to be downloaded first; a remote server answers or does not."""
    limit = server.config.startup_timeout
    return limit if server.config.transport is TransportType.STDIO else min(limit, DISCOVERY_TIMEOUT)
