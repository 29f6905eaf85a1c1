"""A WebSocket server built with the official SDK's server side."""

from __future__ import annotations

import asyncio

import pytest
from async_tests import async_test
from real.project import MODERN, RealProject
from tools.mcp.local_servers import serve_websocket
from tools.mcp.sdk_server import sdk_server

from holodeck.tools.mcp.plugin import (
    MCPPlugin,
    MCPSsePlugin,
    MCPStdioPlugin,
    MCPStreamableHttpPlugin,
    MCPWebsocketPlugin,
)

REALTIME = """
tools:
  - name: realtime_mcp
    description: "Real-time MCP server"
    type: mcp
    server: "realtime-service"
    transport: websocket
    url: "{url}"
    request_timeout: 60
"""


@pytest.mark.proves("000:US7-1", "000:FR-006", "000:SC-007", "000:EDGE-2", "001:DEC-9")
@async_test
async def test_calls_run_at_once_over_a_websocket(project: RealProject) -> None:
    async with serve_websocket(sdk_server()) as url, project.open_server(REALTIME.format(url=url)) as server:
        assert isinstance(server, MCPWebsocketPlugin)
        slow = asyncio.create_task(server.call_tool("wait", steps=1, step=30))
        quick = await asyncio.gather(*(server.call_tool("add", a=number, b=1) for number in range(20)))
        assert [result.text for result in quick] == [str(number + 1) for number in range(20)]
        assert server.protocol_version == MODERN
        assert not slow.done()
        slow.cancel()
        await asyncio.wait({slow})


@pytest.mark.parametrize(
    ("transport", "kind"),
    [
        ("command: npx", MCPStdioPlugin),
        ("transport: sse, url: https://example.com/sse", MCPSsePlugin),
        ("transport: websocket, url: wss://example.com/ws", MCPWebsocketPlugin),
        ("transport: http, url: https://example.com/mcp", MCPStreamableHttpPlugin),
    ],
)
@pytest.mark.proves("001:DEC-1", "001:REUSE-2")
def test_each_transport_has_its_plugin(project: RealProject, transport: str, kind: type[MCPPlugin]) -> None:
    server = project.open_server(
        f'tools:\n  - {{name: it, type: mcp, description: d, server: "@scope/it", {transport}}}'
    )
    assert type(server) is kind
