"""`AgentTool`: an agent among the tools of another one, as `Agent.as_tool` returns it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holodeck.agents.tools.function_tool import check_tool_name
from holodeck.models.model_io import ToolSpec
from holodeck.tools.agents import build_agent_spec

if TYPE_CHECKING:
    from holodeck.agents.agent import Agent


class AgentTool:
    """An agent that another agent may ask: a call of the tool is a run of it."""

    def __init__(self, agent: Agent[Any, Any], *, name: str | None = None, description: str | None = None) -> None:
        """Make a tool of an agent. Raises `ConfigError` for a name that models do not accept.

        `name`: for the model. Absent: `ask_` and the name of the agent. `description`: for the model. Absent: that of
        the agent.
        """
        self.agent = agent
        self.spec: ToolSpec = build_agent_spec(agent.name, agent.description, name=name, description=description)
        check_tool_name(self.spec.name, agent)

    @property
    def name(self) -> str:
        """Name of the tool for the model."""
        return self.spec.name

    @property
    def description(self) -> str:
        """Description of the tool for the model."""
        return self.spec.description

    def __repr__(self) -> str:
        return f"AgentTool({self.name!r}, agent={self.agent.name!r})"
