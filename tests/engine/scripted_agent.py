"""An agent with a scripted model and real MCP servers on loopback, made through the public door."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agent_of_file import load_runner

from holodeck.agent_runner import AgentRunner
from holodeck.models.items import FunctionCallOutput, TextContent
from holodeck.models.model_io import ModelRequest
from holodeck.providers.base import ModelProvider
from holodeck.runtime import People
from holodeck.testing import FaultyMCPServer


def server_entry(name: str, url: str, **settings: Any) -> dict[str, Any]:
    """An MCP server at a URL, as it stands in an agent file."""
    return {"type": "mcp", "name": name, "description": "d", "transport": "http", "url": url, **settings}


@asynccontextmanager
async def open_agent(
    folder: Path,
    model: ModelProvider,
    tools: Sequence[Mapping[str, Any]] = (),
    *,
    people: People | None = None,
    **settings: Any,
) -> AsyncIterator[AgentRunner]:
    """An agent of this model and these tools; everything is ended afterwards."""
    file = folder / "agent.yaml"
    file.write_text(json.dumps({"name": "demo", "tools": list(tools), **settings}))
    async with load_runner(file, model=model, environ={}, home=folder / "home", people=people) as agent:
        yield agent


@asynccontextmanager
async def open_agent_with_server(
    folder: Path, model: ModelProvider, server_settings: Mapping[str, Any] | None = None, **settings: Any
) -> AsyncIterator[tuple[AgentRunner, FaultyMCPServer]]:
    """An agent with one MCP server named `calc`."""
    async with FaultyMCPServer() as mcp:
        tools = [server_entry("calc", mcp.url, **(server_settings or {}))]
        async with open_agent(folder, model, tools, **settings) as agent:
            yield agent, mcp


def tool_outputs(request: ModelRequest) -> dict[str, tuple[str, bool]]:
    """The output of each call that the model received: its text, and whether it is an error."""
    return {
        item.call_id: ("".join(part.text for part in item.content if isinstance(part, TextContent)), item.is_error)
        for item in request.items
        if isinstance(item, FunctionCallOutput)
    }


def offered_tools(request: ModelRequest) -> set[str]:
    """The names of the tools that the model was offered."""
    return {spec.name for spec in request.tools}
