"""Auth seen from a plugin: calls run side by side, a refused token costs one renewal, and errors show no secrets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from async_tests import async_test
from tools.mcp.auth_server import AuthServer, run_auth_server
from tools.mcp.resource_server import ResourceServer, run_resource_server

from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.auth.provider import MCPAuthProvider
from holodeck.tools.mcp.connection.supervisor import StartLimits
from holodeck.tools.mcp.factory import create_mcp_plugin
from holodeck.tools.mcp.plugin import MCPPlugin

SECRET = "s3cr3t-of-the-client"
TOOLS = [{"name": "meet", "inputSchema": {"type": "object"}}]


class Meeting:
    """An MCP server with one tool, which answers when `size` calls are there at the same time."""

    def __init__(self, server: ResourceServer) -> None:
        self._barrier = asyncio.Barrier(1)
        self._server = server
        server.judge = self._answer

    def expect(self, size: int) -> None:
        self._barrier = asyncio.Barrier(size)

    async def _answer(self, request: web.Request) -> web.StreamResponse | None:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind != "Bearer" or token not in self._server.auth.valid:
            return None
        message = json.loads(await request.read())
        result: dict[str, Any] = {"resultType": "complete"}
        match message["method"]:
            case "server/discover":
                result |= {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
            case "tools/list":
                result |= {"tools": TOOLS}
            case "tools/call":
                await self._barrier.wait()
                result |= {"content": [{"type": "text", "text": "hello"}]}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})


@asynccontextmanager
async def run_servers() -> AsyncIterator[tuple[AuthServer, ResourceServer, Meeting]]:
    async with run_auth_server() as authority, run_resource_server(authority) as server:
        yield authority, server, Meeting(server)


def plugin(
    server: ResourceServer, *, auth: MCPAuthProvider | None = None, limits: StartLimits | None = None
) -> MCPPlugin:
    settings = {
        "type": "oauth_client_credentials",
        "client_id": "holodeck",
        "client_secret": SECRET,
        "token_url": server.auth.token_url,
    }
    definition = {"name": "tickets", "transport": "http", "url": server.mcp, "description": "d", "server": "s"}
    return create_mcp_plugin(MCPTool.model_validate({**definition, "auth": settings}), auth=auth, limits=limits)


@pytest.mark.proves("004:FR-011", "004:FR-013")
@async_test
async def test_fifty_calls_are_in_the_server_at_the_same_time_with_one_token() -> None:
    async with run_servers() as (authority, server, meeting), plugin(server) as tickets:
        await tickets.list_tools()
        meeting.expect(50)
        results = await asyncio.gather(*(tickets.call_tool("meet") for _ in range(50)))
        assert all(result.success for result in results)
        assert len(authority.requests) == 1


@pytest.mark.proves("D-30")
@async_test
async def test_a_token_that_was_taken_back_is_renewed_once_and_no_call_fails() -> None:
    async with run_servers() as (authority, server, meeting), plugin(server) as tickets:
        await tickets.list_tools()
        authority.valid.clear()
        meeting.expect(20)
        results = await asyncio.gather(*(tickets.call_tool("meet") for _ in range(20)))
        assert all(result.success for result in results)
        assert len(authority.requests) == 2


@async_test
async def test_a_server_that_refuses_every_token_is_named_and_the_secret_is_not() -> None:
    async with run_servers() as (authority, server, _), plugin(server) as tickets:
        await tickets.list_tools()

        async def never(request: web.Request) -> web.StreamResponse:
            return server.unauthorized()

        server.judge = never
        result = await tickets.call_tool("meet")
        assert not result.success
        assert "'tickets'" in str(result.error)
        assert "refused a token that was just issued" in str(result.error)
        assert SECRET not in f"{result!r} {tickets!r}"
        assert len(authority.requests) == 2


@async_test
async def test_a_token_endpoint_that_is_down_fails_the_call_and_the_next_one_works() -> None:
    async def down(server: AuthServer, request: web.Request, form: dict[str, str]) -> web.StreamResponse:
        return web.Response(status=503)

    async with run_servers() as (authority, server, _), plugin(server) as tickets:
        await tickets.list_tools()
        authority.valid.clear()
        authority.reply = down
        result = await tickets.call_tool("meet")
        assert "token endpoint" in str(result.error)
        assert "503" in str(result.error)
        authority.reply = None
        assert (await tickets.call_tool("meet")).success
