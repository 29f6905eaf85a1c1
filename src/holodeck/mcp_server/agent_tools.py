"""Agents as tools: `ask_<name>` hands a question to an agent and returns its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from holodeck.lib.json.parse import parse_json
from holodeck.lib.record import record
from holodeck.mcp_server.context import RequestContext
from holodeck.tools.agents import QUESTION_SCHEMA, describe_agent_tool, name_agent_tool


@record
class AgentAnswer:
    """The answer of an agent, or why there is none."""

    text: str
    is_error: bool = False


AgentRunner = Callable[[str, RequestContext], Awaitable[AgentAnswer]]
"""Runs an agent for one question. Progress and questions go to the client through the context."""


@record
class AgentTool:
    """One agent, as clients see it among the tools."""

    agent: str
    """The public name of the agent."""
    description: str | None
    response_format: Mapping[str, Any] | None
    """The JSON Schema of its answers; None for plain text."""
    run: AgentRunner

    @property
    def name(self) -> str:
        return name_agent_tool(self.agent)

    def to_entry(self, name: str) -> dict[str, Any]:
        """Return the tool as `tools/list` has it, under this name."""
        entry: dict[str, Any] = {
            "name": name,
            "title": f"Ask {self.agent}",
            "description": describe_agent_tool(self.agent, self.description),
            "inputSchema": QUESTION_SCHEMA,
        }
        if self._has_structured_answer:
            entry["outputSchema"] = self.response_format
        return entry

    async def answer(self, question: str, context: RequestContext) -> dict[str, Any]:
        """Run the agent, and return the result of the call."""
        answer = await self.run(question, context)
        result: dict[str, Any] = {"content": [{"type": "text", "text": answer.text}], "isError": answer.is_error}
        if self._has_structured_answer and not answer.is_error:
            result["structuredContent"] = parse_json(answer.text)
        return result

    @property
    def _has_structured_answer(self) -> bool:
        # Up to 2025-11-25 structured content is an object, and so must be what its schema describes.
        return self.response_format is not None and self.response_format.get("type") == "object"
