"""Agents as tools: a call hands a question to another agent, and its result is the answer.

The agent that is asked knows nothing of the conversation but the question. Its events are events of the caller's run,
inside `AgentProgressed`; what it spends counts there as well. It runs in the task of the call, and ends with it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from holodeck.lib.record import record
from holodeck.models.events import AgentProgressed, Event, RunFinished, RunResult, failure_reason
from holodeck.models.items import TextContent
from holodeck.models.model_io import ToolSpec
from holodeck.tools.executor import (
    CallRules,
    CallTarget,
    Spending,
    TargetKind,
    ToolCall,
    ToolExecutor,
    ToolKind,
    ToolResult,
)
from holodeck.tools.mcp.names import normalize_tool_name

QUESTION_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "question": {
            "type": "string",
            "description": "The whole task. The agent knows nothing of this conversation but what is written here.",
        }
    },
    "required": ["question"],
    "additionalProperties": False,
}


_WAITS = "it waits for functions that nothing runs here."


def name_agent_tool(agent: str) -> str:
    """Return the usual name of the tool that asks an agent."""
    return normalize_tool_name(f"ask_{agent}")


def describe_agent_tool(agent: str, about: str | None) -> str:
    """Return the usual description of the tool that asks an agent. `about`: the agent's own description."""
    about = about or f"the agent '{agent}'"
    return f"Hand a task to an agent, and get its answer. The agent: {about}"


def build_agent_spec(
    agent: str, about: str | None, *, name: str | None = None, description: str | None = None
) -> ToolSpec:
    """Build the tool that asks an agent. `name`, `description`: in place of the usual ones."""
    return ToolSpec(
        name=name_agent_tool(agent) if name is None else name,
        description=describe_agent_tool(agent, about) if description is None else description,
        parameters=QUESTION_SCHEMA,
    )


@record
class AskedAgent:
    """An agent that another one may ask."""

    agent: str
    """Name of the agent."""
    spec: ToolSpec
    open_stream: Callable[[str, ToolCall], AsyncGenerator[Event[Any], None]]
    """Starts a run of the agent with the question, for the call, and yields its events."""


class AgentExecutor(ToolExecutor):
    """Base class of what asks agents: offers the tools that ask them."""

    def __init__(self, specs: Sequence[ToolSpec]) -> None:
        self._specs = tuple(specs)
        self._names = frozenset(each.name for each in specs)

    @property
    def kind(self) -> ToolKind:
        return ToolKind.AGENT

    async def specs(self) -> Sequence[ToolSpec]:
        return self._specs

    def can_execute(self, name: str) -> bool:
        return name in self._names


class NestedAgents(AgentExecutor):
    """Asks agents whose runs are part of the calling run: its events have theirs, and its account what they spend."""

    def __init__(self, agents: Sequence[AskedAgent]) -> None:
        super().__init__([each.spec for each in agents])
        self._agents = {each.spec.name: each for each in agents}

    def find_rules(self, call: ToolCall) -> CallRules:
        return CallRules(target=CallTarget(server="", tool=self._agents[call.name].agent, kind=TargetKind.AGENT))

    async def execute(self, call: ToolCall) -> ToolResult:
        asked = self._agents[call.name]
        async with aclosing(asked.open_stream(str(call.arguments["question"]), call)) as events:
            async for event in events:
                if call.run is not None:
                    call.run.append(AgentProgressed(call_id=call.call_id, agent=asked.agent, event=event))
                if isinstance(event, RunFinished):
                    return to_result(call, asked.agent, event.result)
        raise RuntimeError("a run always finishes")


def to_result(call: ToolCall, agent: str, result: RunResult[Any]) -> ToolResult:
    """Return the answer of an agent as the result of the call that has asked it."""
    text = result.text
    if result.status != "completed":
        waits = "its calls need a person's approval, and there is no one to ask." if result.held else _WAITS
        reason = failure_reason(result) or waits
        text = f"{text}\n\n[The agent '{agent}' did not finish: {reason}]".strip()
    return ToolResult(
        call_id=call.call_id,
        content=(TextContent(text=text or f"(the agent '{agent}' gave an empty answer)"),),
        is_error=result.status != "completed",
        metadata={"agent": agent, "turns": result.turns},
        spending=Spending(usage=result.usage, cost=result.cost, calls=result.tool_calls),
    )
