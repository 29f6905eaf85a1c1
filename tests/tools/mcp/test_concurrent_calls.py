"""How many calls a server gets at once, and what becomes of one more."""

from __future__ import annotations

import asyncio

import pytest
from async_tests import async_test

from holodeck.models.tool import MCPTool, TransportType
from holodeck.testing import FaultyMCPServer
from holodeck.tools.mcp.content import MCPToolResult
from holodeck.tools.mcp.errors import MCPTimeoutError
from holodeck.tools.mcp.factory import create_mcp_plugin
from holodeck.tools.mcp.plugin import MCPPlugin


def _plugin(server: FaultyMCPServer, **more: int) -> MCPPlugin:
    return create_mcp_plugin(
        MCPTool(name="sums", description="s", transport=TransportType.HTTP, url=server.url, **more)  # type: ignore[arg-type]
    )


async def _begun(plugin: MCPPlugin) -> asyncio.Task[MCPToolResult]:
    """A call that the server is busy with until it is released."""
    busy = asyncio.Event()
    call = plugin.call("slow", {"seconds": 60, "steps": 1}, on_progress=lambda *_: busy.set())
    task = asyncio.create_task(call)
    await busy.wait()
    return task


@pytest.mark.proves("D-12")
@async_test
async def test_one_call_more_than_a_server_gets_at_once_waits_for_its_turn() -> None:
    async with FaultyMCPServer() as server, _plugin(server, max_concurrent_calls=2) as plugin:
        slow = [await _begun(plugin) for _ in range(2)]
        third = asyncio.create_task(plugin.call_tool("add", a=1, b=2))
        await plugin.list_tools()
        assert not server.calls("add")
        server.release()
        assert (await third).text == "3"
        assert [(await call).success for call in slow] == [True, True]


@pytest.mark.proves("D-12", "D-15")
@async_test
async def test_a_call_that_waits_too_long_for_a_slot_is_an_error_and_was_never_sent() -> None:
    async with FaultyMCPServer() as server, _plugin(server, max_concurrent_calls=1) as plugin:
        slow = await _begun(plugin)
        late = await plugin.call("add", {"a": 1, "b": 2}, timeout=0.05)
        assert isinstance(late.error, MCPTimeoutError)
        assert "'max_concurrent_calls'" in str(late.error)
        assert "not sent" in str(late.error)
        waiting = asyncio.create_task(plugin.call_tool("add", a=1, b=2))
        await plugin.list_tools()
        waiting.cancel()
        server.release()
        assert (await slow).success
        assert (await plugin.call_tool("add", a=3, b=4)).text == "7"
        assert len(server.calls("add")) == 1
