"""An MCP server that wants a login, with the authorization server behind it, as an operator of a gateway meets them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web
from gateway.config_entries import server as server_entry
from gateway.running_gateway import RunningGateway
from tools.mcp.auth_server import AuthServer, run_auth_server
from tools.mcp.resource_server import ResourceServer, run_resource_server

from holodeck.testing import FaultyMCPServer

NAME = "tickets"
LOGIN = f"/v1/mcp/servers/{NAME}/login"
CALLBACK = "/v1/mcp/login/callback"
_OWN_HEADERS = {"transfer-encoding", "content-length", "connection", "date", "server"}


@dataclass(kw_only=True)
class LoginSite:
    """`resource` lets requests with a token of `authority` through to `mcp`."""

    authority: AuthServer
    resource: ResourceServer
    mcp: FaultyMCPServer

    def entry(self, **auth: Any) -> dict[str, Any]:
        """The server in a gateway file."""
        return server_entry(NAME, self.resource.mcp, auth={"type": "oauth_authorization_code", **auth})

    @property
    def latest_token(self) -> str:
        """The credentials of the latest request to the server."""
        return self.resource.request_headers[-1].get("Authorization", "")


@asynccontextmanager
async def run_login_site(**settings: Any) -> AsyncIterator[LoginSite]:
    """`settings`: of the authorization server."""
    async with (
        aiohttp.ClientSession() as session,
        FaultyMCPServer(era="modern") as mcp,
        run_auth_server(**settings) as authority,
        run_resource_server(authority) as resource,
    ):

        async def pass_on(request: web.Request) -> web.StreamResponse | None:
            if request.headers.get("Authorization", "").partition(" ")[2] not in authority.valid:
                return None
            data = await request.read()
            async with session.request(request.method, mcp.url, headers=request.headers, data=data) as answer:
                reply = web.StreamResponse(status=answer.status)
                reply.headers.extend(
                    (name, value) for name, value in answer.headers.items() if name.lower() not in _OWN_HEADERS
                )
                await reply.prepare(request)
                async for chunk in answer.content.iter_any():
                    await reply.write(chunk)
                return reply

        resource.judge = pass_on
        yield LoginSite(authority=authority, resource=resource, mcp=mcp)


async def wait_login(gateway: RunningGateway, **options: Any) -> dict[str, Any]:
    """The login of the server once it is over."""
    while True:
        status, login = await gateway.send("GET", LOGIN, **options)
        assert status == 200, login
        if login["status"] != "waiting":
            over: dict[str, Any] = login
            return over
