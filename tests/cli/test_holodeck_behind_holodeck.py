"""A HoloDeck whose server is another HoloDeck, in the configuration that desktop programs and editors have for it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from agent_project import AgentProject, server_at
from async_tests import async_test
from gateway.mcp_endpoint.sdk_client import MODES, Mode, text_of
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from holodeck.testing import FaultyMCPServer


@asynccontextmanager
async def connect_through_two(
    project: AgentProject, server: FaultyMCPServer, mode: Mode, **options: Any
) -> AsyncIterator[Client]:
    """A client of the outer HoloDeck, whose `claude_desktop_config.json` names the inner one, both trusted before."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    project.env |= {"PATH": path, "HOLODECK_TRUST": ""}
    project.write(None, server_at("all", server.url))
    outer = project.path / "claude_desktop_config.json"
    inner = {"command": "holodeck", "args": ["mcp", "serve", str(project.path / "agent.yaml")]}
    outer.write_text(json.dumps({"mcpServers": {"team": inner}}))
    for file in (outer, project.path / "agent.yaml"):
        assert (await project.run_holodeck("trust", "--yes", file)).returncode == 0
    command = StdioServerParameters(
        command="holodeck", args=["mcp", "serve", str(outer)], env={"PATH": path, "HOME": str(project.path.parent)}
    )
    async with Client(stdio_client(command), mode=mode, read_timeout_seconds=60, **options) as client:
        yield client


@pytest.mark.proves("D-38")
@pytest.mark.parametrize("mode", MODES)
@async_test(90)
async def test_tools_questions_and_progress_pass_through_both(tmp_path: Path, mode: Mode) -> None:
    asked: list[str] = []
    heard: list[tuple[float, float | None]] = []

    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total))

    async with (
        FaultyMCPServer(era="legacy") as server,
        connect_through_two(AgentProject(tmp_path), server, mode, elicitation_callback=answer) as client,
    ):
        assert {"add", "ask_demo"} <= {tool.name for tool in (await client.list_tools()).tools}
        assert text_of(await client.call_tool("add", {"a": 2, "b": 3})) == "5"
        answered = await client.call_tool("ask_elicitation", {})
        assert json.loads(text_of(answered)) == {"action": "accept", "content": {"name": "Ada"}}
        assert asked == ["What is your name?"]
        await client.call_tool("slow", {"seconds": 0.2, "steps": 2}, progress_callback=hear)
        assert heard == [(1, 2), (2, 2)]


@pytest.mark.proves("D-38", "D-15")
@pytest.mark.parametrize("mode", MODES)
@async_test(90)
async def test_a_cancelled_call_is_cancelled_at_the_server_behind_both(tmp_path: Path, mode: Mode) -> None:
    async with (
        FaultyMCPServer(era="legacy") as server,
        connect_through_two(AgentProject(tmp_path), server, mode) as client,
    ):
        call = asyncio.create_task(client.call_tool("slow", {"seconds": 600}))
        await server.received("tools/call")
        call.cancel()
        await server.received("notifications/cancelled")
        assert text_of(await client.call_tool("add", {"a": 2, "b": 3})) == "5"
