"""Runs of agents that MCP clients ask as tools.

A run is one of the gateway, like that of a chat completion: the same limits, log lines, metrics and rules, and nothing
is stored. The client is told about each turn and each call, and is asked where a call needs an approval.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.auth.scope import CallerScope
from holodeck.gateway.backends import Backend
from holodeck.gateway.runs.run_builder import RunBuilder
from holodeck.gateway.wire.request.body import read_request
from holodeck.lib.errors import HoloDeckError
from holodeck.lib.ids import new_id
from holodeck.mcp_server.agent_tools import AgentAnswer, AgentTool
from holodeck.mcp_server.context import RequestContext
from holodeck.models.events import Event, RunResult, ToolFinished, ToolProgressed, ToolStarted, TurnStarted


class ProgressWriter:
    """Tells a client about the events of a run as progress of its call. A `Writer` without wire events."""

    is_silent = True

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._steps = 0

    def feed(self, *events: Event) -> list[bytes]:
        for event in events:
            text = _describe(event)
            if text is not None:
                self._steps += 1
                self._context.report_progress(self._steps, message=text)
        return []


class AgentRuns:
    """Runs the agents of a gateway."""

    def __init__(self, run_builder: RunBuilder) -> None:
        self._run_builder = run_builder

    def build_tools(self, backends: Mapping[str, Backend]) -> list[AgentTool]:
        """Build a tool for each agent among the backends."""
        return [
            AgentTool(
                agent=name,
                description=backend.description,
                response_format=backend.response_format,
                run=partial(self.run, name),
            )
            for name, backend in backends.items()
            if backend.is_agent
        ]

    async def run(self, name: str, question: str, context: RequestContext) -> AgentAnswer:
        """Run an agent for one question. A failure is an answer; only cancellation is raised."""
        request = read_request({"model": name, "input": question, "store": False})
        try:
            prepared = await self._run_builder.build(
                request, new_id("mcp"), can_wait=False, caller=_caller_of(context), door="mcp", peer=context
            )
            await prepared.servers.check_required()
        except HoloDeckError as error:
            return AgentAnswer(text=str(error), is_error=True)
        live = prepared.start(ProgressWriter(context))
        live.has_request_log = False
        async with live:
            await live.run_to_end()
        return _answer_of(live.result)


def _caller_of(context: RequestContext) -> Caller:
    scope = context.view.scope
    return Caller(
        id=context.view.caller_id, scope=scope if isinstance(scope, CallerScope) else CallerScope.everything()
    )


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


def _answer_of(result: RunResult | None) -> AgentAnswer:
    if result is None or result.status == "cancelled":
        return AgentAnswer(text="The run was cancelled.", is_error=True)
    if result.status == "completed":
        return AgentAnswer(text=result.text)
    if result.error is not None:
        return AgentAnswer(text=result.error.public_message, is_error=True)
    reason = result.reason or "it did not come to an end"
    return AgentAnswer(text=f"{result.text}\n\n[The answer is incomplete: {reason}.]".strip(), is_error=True)
