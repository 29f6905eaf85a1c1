"""FastMCP's client, with both ways in the form of an `mcp.json`."""

from __future__ import annotations

import os

from fastmcp import Client
from mcp_program import ADDRESS, COMMAND, use_all


async def use(entry):
    async with Client({"mcpServers": {"holodeck": entry}}) as client:
        names = [tool.name for tool in await client.list_tools()]
        result = await client.call_tool("add", {"a": 1, "b": 2})
        return names, result.content[0].text


async def use_stdio():
    return await use({"command": COMMAND[0], "args": COMMAND[1:], "env": dict(os.environ)})


async def use_http(key):
    return await use({"url": ADDRESS, "headers": {"Authorization": f"Bearer {key}"}})


use_all(use_stdio, use_http)
