"""What a model name means here: a model, its instructions, and the tools that the gateway runs for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holodeck.models.llm import LLM
from holodeck.providers.provider import ModelProvider
from holodeck.tools.executor import ToolExecutor
from holodeck.tools.mcp.executor import MCPExecutor


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A plain model or an agent, under the name that clients say."""

    name: str
    created: int
    llm: LLM
    provider: ModelProvider
    mcp: MCPExecutor
    max_turns: int
    functions: Sequence[ToolExecutor] = ()
    instructions: str | None = None
    response_format: Mapping[str, Any] | None = None

    def to_resource(self) -> dict[str, Any]:
        """The model as `/v1/models` lists it."""
        return {"id": self.name, "object": "model", "created": self.created, "owned_by": "holodeck"}
