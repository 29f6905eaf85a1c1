"""The official SDK for Python, version 1."""

from __future__ import annotations

import os

import httpx
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_program import ADDRESS, COMMAND, use_all


async def use(reading, writing):
    async with ClientSession(reading, writing) as session:
        await session.initialize()
        names = [tool.name for tool in (await session.list_tools()).tools]
        result = await session.call_tool("add", {"a": 1, "b": 2})
        return names, result.content[0].text


async def use_stdio():
    parameters = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:], env=dict(os.environ))
    async with stdio_client(parameters) as (reading, writing):
        return await use(reading, writing)


async def use_http(key):
    async with (
        httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}) as http,
        streamable_http_client(ADDRESS, http_client=http) as (reading, writing, _),
    ):
        return await use(reading, writing)


use_all(use_stdio, use_http)
