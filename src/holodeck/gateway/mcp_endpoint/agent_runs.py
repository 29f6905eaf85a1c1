"""Runs of agents that MCP clients ask as tools.

A run is one of the gateway, like that of a chat completion: the same limits, log lines, metrics and rules, and nothing
is stored. The client is told about each turn and each call, and is asked where a call needs an approval.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import count

from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.auth.scope import CallerScope
from holodeck.gateway.backends import Backend
from holodeck.gateway.runs.asked_agents import ask_agent
from holodeck.gateway.runs.run_builder import RunBuilder
from holodeck.lib.errors import HoloDeckError
from holodeck.mcp_server.agent_tools import AgentAnswer, AgentTool
from holodeck.mcp_server.context import RequestContext
from holodeck.models.events import RunResult


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
        steps = count(1)

        def report(text: str) -> None:
            context.report_progress(next(steps), message=text)

        try:
            result = await ask_agent(
                self._run_builder, name, question, caller=_caller_of(context), door="mcp", report=report, peer=context
            )
        except HoloDeckError as error:
            return AgentAnswer(text=str(error), is_error=True)
        return _answer_of(result)


def _caller_of(context: RequestContext) -> Caller:
    account, scope = context.view.account, context.view.scope
    if isinstance(account, Caller):
        return account
    return Caller(
        id=context.view.caller_id, scope=scope if isinstance(scope, CallerScope) else CallerScope.everything()
    )


def _answer_of(result: RunResult | None) -> AgentAnswer:
    if result is None or result.status == "cancelled":
        return AgentAnswer(text="The run was cancelled.", is_error=True)
    if result.status == "completed":
        return AgentAnswer(text=result.text)
    if result.error is not None:
        return AgentAnswer(text=result.error.public_message, is_error=True)
    reason = result.reason or "it did not come to an end"
    return AgentAnswer(text=f"{result.text}\n\n[The answer is incomplete: {reason}.]".strip(), is_error=True)
