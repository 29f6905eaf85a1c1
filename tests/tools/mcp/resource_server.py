"""An MCP endpoint as far as auth can see it, and a client that sends requests as a transport does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web
from loopback_site import serve_site
from tools.mcp.auth_server import AuthServer

from holodeck.tools.mcp.auth.provider import REFUSED_STATUSES, AuthRefusal, MCPAuthProvider

_ATTEMPTS = 4  # of our transports: the first, and one each for a token, a wider scope and a fresh nonce

Judge = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


@dataclass(kw_only=True)
class ResourceServer:
    """Accepts the tokens that its authorization server has issued and not taken back."""

    auth: AuthServer
    url: str = ""
    authorization_servers: list[str] = field(default_factory=list)
    """The authorization servers in its metadata. Empty: the real one."""
    publishes: bool = True
    """Whether it has metadata, and its challenge says where."""
    judge: Judge | None = None
    """Decides before the token is looked at; None from it goes on."""
    request_headers: list[Mapping[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    @property
    def mcp(self) -> str:
        return f"{self.url}/mcp"

    @property
    def challenge(self) -> str:
        if not self.publishes:
            return "Bearer"
        return f'Bearer resource_metadata="{self.url}/.well-known/oauth-protected-resource/mcp"'

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path)
        if self.publishes and request.path == "/.well-known/oauth-protected-resource/mcp":
            servers = self.authorization_servers or [self.auth.issuer_url]
            return web.json_response({"resource": self.mcp, "authorization_servers": servers})
        if request.path != "/mcp":
            return web.Response(status=404)
        self.request_headers.append(dict(request.headers))
        if self.judge is not None and (answer := await self.judge(request)):
            return answer
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind == "Bearer" and token in self.auth.valid:
            return web.Response(text="welcome")
        return self.unauthorized()

    def unauthorized(self) -> web.Response:
        return web.Response(status=401, headers={"WWW-Authenticate": self.challenge})


@asynccontextmanager
async def run_resource_server(auth: AuthServer) -> AsyncIterator[ResourceServer]:
    server = ResourceServer(auth=auth)
    async with serve_site(server.handle) as url:
        server.url = url
        yield server


async def request_with_auth(auth: MCPAuthProvider, url: str) -> int:
    """One request with as many honest attempts as a transport makes; gives the last status."""
    async with aiohttp.ClientSession() as session:
        for attempt in range(1, _ATTEMPTS + 1):
            auth_headers = await auth.headers("POST", url)
            async with session.post(url, data=b"{}", headers=auth_headers) as response:
                if response.status not in REFUSED_STATUSES:
                    return response.status
                refusal = AuthRefusal(
                    status=response.status,
                    url=url,
                    www_authenticate=response.headers.get("WWW-Authenticate", ""),
                    headers=dict(response.headers),
                    sent=auth_headers,
                    attempt=attempt,
                )
            if not await auth.refused(refusal):
                break
        return refusal.status


async def follow_login(url: str) -> None:
    """Approves at once."""
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        await response.read()
