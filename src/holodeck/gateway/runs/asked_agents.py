"""Agents of a gateway that other agents ask, in the middle of their runs.

Each answer is a run of its own, like one that an MCP client asks for: with the model, limits, servers, budget, audit
and counts of the agent that is asked, for the same caller. Nothing of it is stored. It ends with the call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from holodeck.gateway.audit.entry import Door
from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.backends import Backend
from holodeck.gateway.configuration import Configuration
from holodeck.gateway.wire.request.body import read_request
from holodeck.lib.errors import HoloDeckError
from holodeck.lib.ids import new_id
from holodeck.models.events import Event, RunResult, ToolFinished, ToolProgressed, ToolStarted, TurnStarted
from holodeck.tools.agents import AgentExecutor, to_result
from holodeck.tools.executor import CallRules, CallTarget, TargetKind, ToolCall, ToolResult
from holodeck.tools.mcp.protocol.peer import Peer

if TYPE_CHECKING:
    from holodeck.gateway.runs.run_builder import RunBuilder


class ProgressWriter:
    """Reports the events of a run as lines of progress. A `Writer` without wire events."""

    is_silent = True

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report

    def feed(self, *events: Event) -> list[bytes]:
        for event in events:
            text = _describe(event)
            if text is not None:
                self._report(text)
        return []


async def ask_agent(
    builder: RunBuilder,
    name: str,
    question: str,
    *,
    caller: Caller,
    door: Door,
    report: Callable[[str], None],
    peer: Peer | None = None,
    backend: Backend | None = None,
) -> RunResult | None:
    """Run an agent of the gateway for one question, and return the result; None for a run that was cancelled.

    For the parameters see `RunBuilder.build`. Raises the errors of that.
    """
    request = read_request({"model": name, "input": question, "store": False})
    prepared = await builder.build(
        request, new_id("mcp"), can_wait=False, caller=caller, door=door, peer=peer, backend=backend
    )
    await prepared.servers.check_required()
    live = prepared.start(ProgressWriter(report))
    live.has_request_log = False
    async with live:
        await live.run_to_end()
    return live.result


class AskedAgents(AgentExecutor):
    """Asks the agents that one agent has among its tools, for one run."""

    def __init__(
        self,
        builder: RunBuilder,
        configuration: Configuration,
        backend: Backend,
        caller: Caller,
        door: Door,
        peer: Peer | None,
    ) -> None:
        # To the caller, those that it may not use do not exist.
        asks = [each for each in backend.asks if each.is_inner or caller.scope.allows_agent(each.name)]
        super().__init__([each.spec for each in asks])
        self._builder = builder
        self._inner = configuration.served.inner
        self._asks = {each.spec.name: each for each in asks}
        self._caller = caller
        self._door = door
        self._peer = peer

    def find_rules(self, call: ToolCall) -> CallRules:
        asked = self._asks[call.name]
        # One that no caller may name belongs to the agent that asks it, as a function does.
        kind = TargetKind.TOOL if asked.is_inner else TargetKind.AGENT
        return CallRules(target=CallTarget(server="", tool=asked.name, kind=kind))

    async def execute(self, call: ToolCall) -> ToolResult:
        asked = self._asks[call.name]
        try:
            result = await ask_agent(
                self._builder,
                asked.name,
                str(call.arguments["question"]),
                caller=self._caller,
                door=self._door,
                report=call.on_progress or _ignore,
                peer=self._peer,
                backend=self._inner[asked.name] if asked.is_inner else None,
            )
        except HoloDeckError as error:
            return ToolResult.failure(call.call_id, f"The agent '{asked.name}' did not start: {error}")
        if result is None:
            return ToolResult.failure(call.call_id, f"The run of the agent '{asked.name}' was cancelled.")
        if result.error is not None:
            # Its operator is told the cause, not the caller.
            public = replace(result.error, message=result.error.public_message)
            result = replace(result, error=public)
        # What it has spent is counted as that of its own run.
        return replace(to_result(call, asked.name, result), spending=None)


def _ignore(text: str) -> None:
    """Report nothing."""


def _describe(event: Event) -> str | None:
    """Return the event as one line for the client, or None for one that is no step."""
    match event:
        case TurnStarted():
            return f"Turn {event.turn}"
        case ToolStarted():
            return f"Calling {event.name}"
        case ToolProgressed():
            return event.text
        case ToolFinished():
            return f"{event.name} {'failed' if event.output.is_error else 'answered'} after {event.seconds:.1f} s"
        case _:
            return None
