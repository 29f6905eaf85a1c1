"""The list of tools of one server, across failures and reconnections.

`ServerTools` owns three kinds of tasks, at most one of each at a time: one that lists the tools, one that reconnects an
unavailable server with growing pauses ("revival"), and one that reconnects on request ("refresh"). `close` cancels all
of them and closes the server. It is shared by all runs that offer the tools.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

from holodeck.lib import log
from holodeck.lib.backoff import backoff_pause
from holodeck.lib.errors import MCPError
from holodeck.lib.escape import one_line
from holodeck.lib.limits import DISCOVERY_TIMEOUT, MAX_FAILURE_SHOWN
from holodeck.lib.tasks import TaskSet
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.discovery import MCPToolInfo
from holodeck.tools.mcp.plugin import MCPPlugin

# Seconds before an unavailable server is reconnected for the first time; doubled after each failure.
FIRST_REVIVAL = 1.0
# Seconds between two attempts, at most: a server that is back is found within a minute, for one attempt a minute.
MAX_REVIVAL = 60.0
# A pause is multiplied by a random factor up to this, so that servers that failed together are not tried together.
REVIVAL_SPREAD = 1.3
# Seconds that an offer waits longer than a start may take: the error of a start that took too long comes after its
# limit, and the start itself after a pause if earlier ones have failed.
START_ERROR_GRACE = 5.0
# Servers that are connected at the same time: a process that starts takes much of a core.
MAX_CONNECTING = 4

# Names in a sentence about changed tools; the fields of the event have all of them.
_MAX_NAMES_SHOWN = 10
_LOCK_HINT = "'holodeck mcp lock' keeps tools as they are."


class ServerTools:
    """The tools of one server, as far as they are known."""

    def __init__(
        self,
        server: MCPPlugin,
        *,
        discovery_timeout: float | None = None,
        revival_slots: asyncio.Semaphore | None = None,
        max_tools: int | None = None,
        is_borrowed: bool = False,
    ) -> None:
        """`discovery_timeout`: seconds that an offer waits for the list. None: the default.

        `revival_slots` limits concurrent reconnections of several servers; None: no reconnection in the background.
        `max_tools`: tools after this number are ignored. `is_borrowed`: the server has another owner, which closes it.
        """
        self.server = server
        self.discovery_timeout = _default_timeout(server.config) if discovery_timeout is None else discovery_timeout
        self.failure: MCPError | None = None
        """Why the server is unavailable."""
        self.next_try: float | None = None
        """Wall-clock time of the next reconnection; None while the server is available or being reconnected."""
        self._max_tools = max_tools
        self._is_borrowed = is_borrowed
        self._revival_slots = revival_slots
        self._tasks = TaskSet()
        self._revival_task: asyncio.Task[None] | None = None
        self._refresh_task: asyncio.Task[None] | None = None
        self._listing_task: asyncio.Task[list[MCPToolInfo]] | None = None
        self._tools: Sequence[MCPToolInfo] = ()
        self._applied: Sequence[MCPToolInfo] | None = None
        """The list of the server from which `_tools` are."""
        self.latest_tools: Sequence[MCPToolInfo] | None = None
        """The latest list, also while the server is unavailable; None before the first one."""
        self._pause = 0.0
        """Seconds from the latest failure to `next_try`."""
        self._failed_tries = 0
        """Reconnections that failed since the server became unavailable."""
        self._listing_started_at = 0.0
        self._logged_count: int | None = None
        self._was_waited_for = False
        self._was_missed = False
        """An offer was made without these tools since they were last there."""

    @property
    def startup_seconds(self) -> float:
        """Seconds after which a list is either there or has failed, if the server keeps to its limit."""
        return self.server.config.startup_timeout + START_ERROR_GRACE

    @property
    def is_starting(self) -> bool:
        """True while the first list is being fetched, within the limit for the start of the server."""
        return self.is_listing_pending and time.monotonic() < self._listing_started_at + self.startup_seconds

    @property
    def is_listing_pending(self) -> bool:
        """True while the first list is being fetched."""
        return (
            self._listing_task is not None
            and not self._listing_task.done()
            and self.latest_tools is None
            and self.failure is None
        )

    @property
    def missing_reason(self) -> str:
        """Why the tools are not on offer; empty if they are, or if the server was never asked."""
        if self.failure is not None:
            return self.server.explain(self.failure)
        return (
            f"Server '{self.server.name}' is still starting: it has not said yet what it has."
            if self.is_listing_pending
            else ""
        )

    def request_listing(self) -> asyncio.Task[list[MCPToolInfo]] | None:
        """Start listing the tools, unless that is in progress, and return the task to wait for.

        None when there is nothing to wait for: the server is reconnected in the background, or an earlier offer has
        already waited for this list.
        """
        # Applies the result of a list that failed after its discovery timeout, which starts the revival.
        if self._revival_slots is not None:
            self.collect_tools()
        if self._revival_task is not None and not self._revival_task.done():
            return None
        if self._listing_task is None or self._listing_task.done():
            # A list that is at hand needs no task, which every turn of every run would start.
            if (tools := self.server.find_current_tools()) is not None:
                self._apply_tools(tools)
                self._listing_task = None
                return None
            self._start_listing()
        return None if self._was_waited_for else self._listing_task

    def is_unchanged(self) -> bool:
        """Return whether `request_listing` has nothing to do: the server is available, and its list is still valid."""
        is_settled = self._listing_task is None and self._revival_task is None and self.failure is None
        return is_settled and not self._was_missed and self.server.find_current_tools() is self._applied

    def mark_waited(self) -> None:
        """Record that an offer has waited for this list for the full discovery timeout; later offers do not wait."""
        self._was_waited_for = True
        if self.is_listing_pending:
            self.mark_missed()

    def mark_missed(self) -> None:
        """Record that an offer was made without these tools: when they are there, that is a change."""
        self._was_missed = True

    async def wait_listing(self, seconds: float) -> None:
        """Wait for the list that is being fetched, at most `seconds`."""
        if self._listing_task is not None and not self._listing_task.done():
            await asyncio.wait({self._listing_task}, timeout=seconds)

    def collect_tools(self) -> Sequence[MCPToolInfo]:
        """Apply the latest finished list and return the tools. While a list is being fetched, the previous one."""
        if self._listing_task is not None and self._listing_task.done():
            self._apply_outcome(self._listing_task)
        return self._tools

    async def refresh(self) -> None:
        """Reconnect and list the tools now. Concurrent callers share one attempt. Raises MCPError."""
        if self._refresh_task is None or self._refresh_task.done():
            self._refresh_task = self._tasks.start(self._refresh(), name=f"refresh {self.server.name}")
        await asyncio.wait({self._refresh_task})
        if self.failure is not None:
            raise self.failure

    async def sleep(self) -> None:
        """End the connection until the tools are needed again."""
        await self._cancel_task(self._refresh_task)
        await self._cancel_task(self._revival_task)
        await self._cancel_task(self._listing_task)
        self._listing_task = self._revival_task = self.next_try = self.failure = None
        self._failed_tries = 0
        await self.server.sleep()

    async def close(self) -> None:
        """Cancel all tasks and close the server, unless it is borrowed, in time bounded by the limits of the server."""
        # A list that fails from here on starts no revival.
        self._revival_slots = None
        await self._cancel_task(self._refresh_task)
        await self._cancel_task(self._revival_task)
        await self._cancel_task(self._listing_task)
        if not self._is_borrowed:
            await self.server.close()

    async def _refresh(self) -> None:
        # The list first: if it fails at this moment, it starts a revival.
        await self._cancel_task(self._listing_task)
        await self._cancel_task(self._revival_task)
        self._revival_task = self.next_try = None
        self._failed_tries = 0
        await self.server.disconnect()
        try:
            await self.server.connect()
        except MCPError as error:
            self._apply_failure(error)
            return
        await asyncio.wait({self._start_listing()})
        self.collect_tools()

    def _start_listing(self) -> asyncio.Task[list[MCPToolInfo]]:
        self._listing_started_at = time.monotonic()
        self._listing_task = self._tasks.start(self.server.list_tools(), name=f"list tools of {self.server.name}")
        # No offer may be left that would collect the list when it comes, or its error.
        self._listing_task.add_done_callback(self._apply_outcome)
        self._was_waited_for = False
        return self._listing_task

    def _apply_outcome(self, listing: asyncio.Task[list[MCPToolInfo]]) -> None:
        if listing.cancelled():
            return
        error = listing.exception()
        if error is None:
            self._apply_tools(listing.result())
        elif isinstance(error, MCPError):
            self._apply_failure(error)
        else:
            raise error

    def _apply_tools(self, tools: Sequence[MCPToolInfo]) -> None:
        has_changed, self._was_missed = self._was_missed, False
        self._applied, self.failure = tools, None
        self._tools = tools if self._max_tools is None else tools[: self._max_tools]
        if self.latest_tools is not None and self._tools != self.latest_tools:
            self._report_changed_tools(self.latest_tools)
        self.latest_tools = self._tools
        if has_changed:
            self.server.announce_change()
        if self._logged_count != len(tools):
            self._logged_count = len(tools)
            # A server without tools is no error, but rarely intended, unless it is there for its resources.
            is_expected = bool(tools) or self.server.config.load_resources
            (log.info if is_expected else log.warning)(
                "mcp.discovered",
                server=self.server.name,
                tools=len(tools),
                era=self.server.era,
                version=self.server.protocol_version,
                seconds=round(time.monotonic() - self._listing_started_at, 3),
            )

    def _report_changed_tools(self, earlier: Sequence[MCPToolInfo]) -> None:
        """Log the tools that were not in an earlier list, or were others, before they are offered."""
        before = {tool.name: tool for tool in earlier}
        added = [tool.name for tool in self._tools if tool.name not in before]
        changed = [tool.name for tool in self._tools if tool.name in before and tool != before[tool.name]]
        # With a lock, what comes back is as it was accepted.
        if self.server.lock is not None or not (added or changed):
            return
        parts = [f"{_describe_names(names)} {word}" for names, word in ((added, "new"), (changed, "changed")) if names]
        notice = f"{self.server.name} has other tools than at its start: {', '.join(parts)}. {_LOCK_HINT}"
        log.warning("mcp.tools_changed", server=self.server.name, new=added, changed=changed, notice=notice)

    def _apply_failure(self, error: MCPError) -> None:
        is_new = str(self.failure) != str(error)
        had_tools, self._tools, self.failure = bool(self._tools), (), error
        self.mark_missed()
        if self._revival_slots is not None:
            self._plan_next_try(error)
            if self._revival_task is None or self._revival_task.done():
                revive = partial(self._revive, self._revival_slots)
                self._revival_task = self._tasks.supervise(revive, name=f"revive {self.server.name}")
        if is_new:
            again = {} if self.next_try is None else {"next_try_seconds": round(self._pause, 1)}
            log.warning("mcp.unavailable", server=self.server.name, phase=error.phase, reason=error, **again)
        if had_tools:
            self.server.announce_change()

    def _plan_next_try(self, error: MCPError) -> None:
        """Choose the time of the next reconnection, unless it is chosen: a failed list is reported twice."""
        if self.next_try is None:
            tries = self._failed_tries + 1
            pause = backoff_pause(tries, first=FIRST_REVIVAL, longest=MAX_REVIVAL, spread=REVIVAL_SPREAD)
            self._pause = max(pause, _requested_pause(error))
            self.next_try = time.time() + self._pause

    async def _revive(self, slots: asyncio.Semaphore) -> None:
        """Reconnect, with growing pauses, until the tools are listed."""
        while self.failure is not None:
            await asyncio.sleep(self._pause)
            self._failed_tries += 1
            async with slots:
                self.next_try = None
                await asyncio.wait({self._start_listing()})
                self.collect_tools()
        self.next_try = None
        tries, self._failed_tries = self._failed_tries, 0
        log.info("mcp.revived", server=self.server.name, tries=tries)

    async def _cancel_task(self, task: asyncio.Task[None] | asyncio.Task[list[MCPToolInfo]] | None) -> None:
        if task is not None and not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait({task})


def _requested_pause(error: MCPError) -> float:
    """Return the seconds that the server, or our own limit of starts, requires before the next attempt."""
    retry_after = error.details.get("retry_after")
    try:
        return min(float(retry_after), MAX_REVIVAL) if retry_after is not None else 0.0
    # An HTTP date.
    except (TypeError, ValueError):
        return 0.0


def _default_timeout(tool: MCPTool) -> float:
    """Return the seconds that an offer waits for the list. A process may have to be downloaded first."""
    seconds = tool.startup_timeout if tool.starts_process else min(tool.startup_timeout, DISCOVERY_TIMEOUT)
    return seconds + START_ERROR_GRACE


def _describe_names(names: Sequence[str]) -> str:
    shown = ", ".join(one_line(name, MAX_FAILURE_SHOWN) for name in names[:_MAX_NAMES_SHOWN])
    rest = len(names) - _MAX_NAMES_SHOWN
    return f"{shown} and {rest} more are" if rest > 0 else f"{shown} {'is' if len(names) == 1 else 'are'}"


async def connect_servers(server_tools: Iterable[ServerTools]) -> None:
    """Connect servers and list their tools, a few at a time. Each one logs how that went.

    A request that needs one meanwhile does not wait for its turn here. Cancelling this starts no further server; those
    that are being connected belong to their `ServerTools`.
    """
    slots = asyncio.Semaphore(MAX_CONNECTING)

    async def connect(offer: ServerTools) -> None:
        async with slots:
            listing = offer.request_listing()
            if listing is not None:
                await asyncio.wait({listing})

    async with asyncio.TaskGroup() as group:
        for offer in server_tools:
            if _has_own_connection(offer.server.config):
                group.create_task(connect(offer))


def _has_own_connection(tool: MCPTool) -> bool:
    """Return whether a server can be connected without a request, and is asked for something by that."""
    needs_caller = tool.caller_authorization and not tool.headers and tool.auth is None
    return not needs_caller and (tool.load_tools or tool.load_resources)
