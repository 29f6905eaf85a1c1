"""Every transport lists and calls tools, reports progress and changes, and leaves no process or task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from async_tests import async_test
from tools.mcp.local_servers import remote_tool, serve_app, serve_websocket, uvx_tool
from tools.mcp.sdk_server import sdk_server

from holodeck.models.tool import MCPTool, TransportType
from holodeck.tools.mcp.content import TextContent
from holodeck.tools.mcp.factory import create_mcp_plugin
from holodeck.tools.mcp.protocol.server_requests import Callbacks

TRANSPORTS = ["stdio", "http", "http-json", "sse", "websocket"]


@asynccontextmanager
async def reachable(transport: str, folder: Path) -> AsyncIterator[MCPTool]:
    """A definition of the SDK's server behind this transport."""
    server = sdk_server()
    if transport == "stdio":
        yield uvx_tool(folder, Path(__file__).with_name("sdk_server.py"))
    elif transport == "websocket":
        async with serve_websocket(server) as url:
            yield remote_tool(url, TransportType.WEBSOCKET)
    elif transport == "sse":
        async with serve_app(server.sse_app()) as url:
            yield remote_tool(f"{url}/sse", TransportType.SSE)
    else:
        async with serve_app(server.streamable_http_app(json_response=transport == "http-json")) as url:
            yield remote_tool(f"{url}/mcp")


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.proves("000:FR-002", "000:FR-013", "000:FR-014", "000:SC-007")
@async_test
async def test_tools_and_prompts_are_found_and_used(transport: str, tmp_path: Path) -> None:
    async with reachable(transport, tmp_path) as tool, create_mcp_plugin(tool) as server:
        assert server.state == "created"
        assert {info.name for info in await server.list_tools()} >= {"add", "echo", "fail", "wait"}
        result = await server.call_tool("add", a=2, b=3)
        assert result.success
        assert result.content == [TextContent(text="5")]
        assert server.state == "connected"
        assert [info.name for info in await server.list_prompts()] == ["review"]
        assert "def f" in (await server.get_prompt("review", code="def f(): ...")).text
    assert server.state == "disconnected"


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.proves("000:US5-3", "000:FR-022")
@async_test
async def test_a_failing_tool_is_a_result_that_says_why(transport: str, tmp_path: Path) -> None:
    async with reachable(transport, tmp_path) as tool, create_mcp_plugin(tool) as server:
        result = await server.call_tool("fail", why="no reason at all")
        assert not result.success
        assert result.is_error
        assert "no reason at all" in result.text
        assert tool.name in str(result.error)
        missing = await server.call_tool("nothing.like.this")
        assert "nothing.like.this" in str(missing.error)


@pytest.mark.parametrize("transport", [name for name in TRANSPORTS if name != "http-json"])
@async_test
async def test_progress_is_reported_and_extends_the_time_of_a_call(transport: str, tmp_path: Path) -> None:
    async with reachable(transport, tmp_path) as tool, create_mcp_plugin(tool) as server:
        await server.connect()
        seen: list[float] = []
        report = lambda done, total, text: seen.append(done)  # noqa: E731
        result = await server.call("wait", {"steps": 6, "step": 0.4}, on_progress=report, timeout=2)
        assert result.success, result.error
        assert seen == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.proves("000:US5-4")
@async_test
async def test_a_call_that_takes_too_long_ends_and_the_next_one_works(transport: str, tmp_path: Path) -> None:
    async with reachable(transport, tmp_path) as tool, create_mcp_plugin(tool) as server:
        await server.connect()
        result = await server.call("wait", {"steps": 1, "step": 30}, timeout=0.2)
        assert not result.success
        assert "no answer within 0.2 s" in str(result.error)
        assert result.error is not None
        assert result.error.details["outcome"] == "unknown"
        assert (await server.call_tool("echo", text="still here")).text == "still here"


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.proves("000:FR-016", "000:US4-4")
@async_test
async def test_a_change_of_the_tools_is_noticed(transport: str, tmp_path: Path) -> None:
    changed = asyncio.Event()
    callbacks = Callbacks(on_tools_changed=changed.set)
    async with reachable(transport, tmp_path) as tool, create_mcp_plugin(tool, callbacks=callbacks) as server:
        assert "grown.tool" not in [info.name for info in await server.list_tools()]
        assert (await server.call_tool("grow")).success
        await changed.wait()
        assert "grown.tool" in [info.name for info in await server.list_tools()]
        assert (await server.call_tool("grown-tool")).text == "new"


@pytest.mark.parametrize("transport", TRANSPORTS)
@async_test
async def test_many_calls_run_at_once(transport: str, tmp_path: Path) -> None:
    async with reachable(transport, tmp_path) as tool, create_mcp_plugin(tool) as server:
        results = await asyncio.gather(*(server.call_tool("add", a=number, b=1) for number in range(64)))
        assert [result.text for result in results] == [str(number + 1) for number in range(64)]
