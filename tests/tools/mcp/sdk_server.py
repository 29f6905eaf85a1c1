"""A server built with the official SDK's server side; as a program it serves standard input and output."""

from __future__ import annotations

from typing import Any

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError


def sdk_server() -> MCPServer:
    """A server of its own, for each test that changes it."""
    server = MCPServer("sdk", instructions="Adds and waits.")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def echo(text: str) -> str:
        return text

    @server.tool()
    def fail(why: str) -> str:
        raise ToolError(why)

    @server.tool()
    async def wait(ctx: Context[Any], steps: int, step: float) -> str:
        """Report progress after each step."""
        for done in range(steps):
            await anyio.sleep(step)
            await ctx.report_progress(done + 1, steps, f"step {done + 1}")
        return "done"

    @server.tool()
    async def grow(ctx: Context[Any]) -> str:
        """Add one tool, and send a change notification."""
        server.add_tool(lambda: "new", name="grown.tool", description="It was not there before.")
        await ctx.notify_tools_changed()
        # The line above reaches clients of the modern era only.
        await ctx.session.send_tool_list_changed()
        return "grown"

    @server.prompt()
    def review(code: str) -> str:
        """Review some code."""
        return f"Please review: {code}"

    return server


if __name__ == "__main__":
    sdk_server().run("stdio")
