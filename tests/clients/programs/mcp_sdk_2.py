"""The official SDK for Python, version 2."""

from __future__ import annotations

import os

import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_program import ADDRESS, COMMAND, use_all


async def use(transport):
    async with Client(transport) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool("add", {"a": 1, "b": 2})
        return names, result.content[0].text


async def use_stdio():
    return await use(stdio_client(StdioServerParameters(command=COMMAND[0], args=COMMAND[1:], env=dict(os.environ))))


async def use_http(key):
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {key}"}) as http:
        return await use(streamable_http_client(ADDRESS, http_client=http))


use_all(use_stdio, use_http)
