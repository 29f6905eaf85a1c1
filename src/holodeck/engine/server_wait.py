"""Waiting of a durable run for MCP servers that are away: for their tools before a turn, and for calls of them.

No person waits for such a run, and a server that is being restarted is back in a moment. A server is waited for if the
run needs it (`required`, or the server of a call that is to run), or if the model had its tools in the turn before. One
that was away from the start is not: it may be away for days.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from holodeck.engine.event_log import EventSink
from holodeck.engine.steps import ModelTurn
from holodeck.lib import log
from holodeck.models.events import MissingServer, RunNoticed
from holodeck.models.items import FunctionCall
from holodeck.models.model_io import ToolSpec
from holodeck.tools.executor import SERVER_ABSENT, ToolCall, ToolResult
from holodeck.tools.toolbox import Toolbox

# Seconds between two looks at the servers. Their connections are renewed by others, with pauses of their own.
SERVER_POLL = 1.0


async def send_when_present(
    send: Callable[[ToolCall], Awaitable[ToolResult]], call: ToolCall, seconds: float, events: EventSink
) -> ToolResult:
    """Send a call again and again while its server is away, up to `seconds`, and return the last result.

    Only a call that was never sent is sent again. A run that is handed over does not wait: its process ends.
    `events`: of the run, which is told that it waits.
    """
    until, is_told = time.monotonic() + seconds, False
    while SERVER_ABSENT in (result := await send(call)).metadata and time.monotonic() < until:
        if call.resume is not None and call.resume.is_handed_over:
            break
        if not is_told:
            _tell_wait([str(result.metadata.get("server", ""))], seconds, events)
        is_told = True
        await asyncio.sleep(SERVER_POLL)
    return result


def _tell_wait(servers: Iterable[str], seconds: float, events: EventSink) -> None:
    """Write to the log, and as an event of the run, that it waits."""
    names = sorted(servers)
    log.warning("run.server_wait", servers=names, seconds=seconds)
    noun = "server" if len(names) == 1 else "servers"
    text = f"Waiting up to {seconds:g} s for the MCP {noun} {', '.join(names)}, which cannot be reached."
    events.append(RunNoticed(code="waits_for_servers", text=text, names=tuple(names)))


class ServerWait:
    """Collects the tools for the turns of one run, and waits up to `seconds` for servers that are away."""

    def __init__(self, toolbox: Toolbox, seconds: float, events: EventSink) -> None:
        """`events`: of the run, which is told that it waits."""
        self._toolbox = toolbox
        self._seconds = seconds
        self._events = events
        self._away_before: Collection[str] | None = None
        """The servers that were away at the turn before; None before the first one."""
        self._replayed_tools = 0
        """How many tools the turn before had, if it was one of an earlier process."""

    async def collect_specs(self, calls: Sequence[FunctionCall] = ()) -> tuple[ToolSpec, ...]:
        """Return the tools that the model may be offered now. `calls`: calls that are to run before the next turn."""
        missing_before = dict(self._toolbox.missing)
        specs = await self._toolbox.collect_specs()
        until = time.monotonic() + self._seconds
        is_told = False
        while (away := self._toolbox.find_unavailable()) and self._is_needed(away, specs, calls):
            if time.monotonic() >= until:
                break
            if not is_told:
                _tell_wait(away, self._seconds, self._events)
            is_told = True
            await asyncio.sleep(SERVER_POLL)
            specs = await self._toolbox.collect_specs()
        if is_told:
            # No turn was without those that are back.
            self._toolbox.missing = missing_before | away
        self._away_before, self._replayed_tools = away.keys(), 0
        return specs

    def note_turn(self, turn: ModelTurn) -> None:
        """Remember what the model was offered in a turn."""
        self._replayed_tools = turn.replayed_tools

    def _is_needed(
        self, away: dict[str, MissingServer], specs: Sequence[ToolSpec], calls: Sequence[FunctionCall]
    ) -> bool:
        if self._away_before is not None and away.keys() - self._away_before:
            return True
        if len(specs) < self._replayed_tools or any(server.required for server in away.values()):
            return True
        return any(self._toolbox.find_missing_reason(call.name) is not None for call in calls)
