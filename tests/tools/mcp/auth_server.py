"""A real authorization server on loopback that records its requests, and misbehaves on demand."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_plus, urlencode

from aiohttp import web
from loopback_site import serve_site

Reply = Callable[["AuthServer", web.Request, dict[str, str]], Awaitable[web.StreamResponse]]


@dataclass(kw_only=True)
class TokenRequest:
    """One POST to the token endpoint."""

    form: dict[str, str]
    headers: dict[str, str]

    @property
    def basic(self) -> tuple[str, str] | None:
        """Client id and secret of the Authorization header, decoded as RFC 6749 requires."""
        kind, _, value = self.headers.get("Authorization", "").partition(" ")
        if kind != "Basic":
            return None
        name, _, secret = base64.b64decode(value).decode().partition(":")
        return unquote_plus(name), unquote_plus(secret)


@dataclass(kw_only=True)
class AuthServer:
    """Issues `token-1`, `token-2`, ... Set the fields to change what it does."""

    url: str = ""
    path: str = ""
    """The issuer's path, such as `/tenant`."""
    expires_in: Any = 3600
    issuer: str | None = None
    """What the metadata claims. None: the truth."""
    metadata: dict[str, Any] = field(default_factory=dict)
    metadata_paths: tuple[str, ...] = ("/.well-known/oauth-authorization-server",)
    reply: Reply | None = None
    """Answers a token request in place of the usual way."""
    token_gate: asyncio.Event | None = None
    """A token request waits for it."""
    refresh_tokens: bool = True
    requests: list[TokenRequest] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    paths: list[str] = field(default_factory=list)
    authorizations: list[dict[str, str]] = field(default_factory=list)
    registrations: list[dict[str, Any]] = field(default_factory=list)
    valid: set[str] = field(default_factory=set)
    """Access tokens that the resource server should accept."""

    @property
    def token_url(self) -> str:
        return f"{self.url}{self.path}/token"

    @property
    def issuer_url(self) -> str:
        return f"{self.url}{self.path}"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path)
        if request.path in self.metadata_paths:
            return self._metadata()
        match request.path.removeprefix(self.path):
            case "/token":
                return await self._token(request)
            case "/authorize":
                return self._authorize(request)
            case "/register":
                return await self._register(request)
        return web.json_response({"error": "not_found"}, status=404)

    def issue(self, **more: Any) -> web.Response:
        value = f"token-{len(self.requests)}"
        self.valid.add(value)
        content = {"access_token": value, "token_type": "Bearer", "expires_in": self.expires_in, **more}
        return web.json_response({key: value for key, value in content.items() if value is not None})

    def _metadata(self) -> web.Response:
        content = {
            "issuer": self.issuer or self.issuer_url,
            "token_endpoint": self.token_url,
            "authorization_endpoint": f"{self.url}{self.path}/authorize",
            "registration_endpoint": f"{self.url}{self.path}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }
        return web.json_response({**content, **self.metadata})

    async def _token(self, request: web.Request) -> web.StreamResponse:
        form = {key: str(value) for key, value in (await request.post()).items()}
        self.requests.append(TokenRequest(form=form, headers=dict(request.headers)))
        self.arrived.set()
        if self.token_gate is not None:
            await self.token_gate.wait()
        if self.reply is not None:
            return await self.reply(self, request, form)
        if form.get("grant_type") == "authorization_code" and not self._is_verified(form):
            return web.json_response({"error": "invalid_grant", "error_description": "PKCE"}, status=400)
        is_personal = form.get("grant_type") in {"authorization_code", "refresh_token"} and self.refresh_tokens
        return self.issue(**({"refresh_token": f"refresh-{len(self.requests)}"} if is_personal else {}))

    def _is_verified(self, form: dict[str, str]) -> bool:
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        return challenge == self.authorizations[-1]["code_challenge"]

    def _authorize(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        self.authorizations.append(query)
        back = {"code": "the-code", "state": query["state"], "iss": self.issuer_url}
        raise web.HTTPFound(f"{query['redirect_uri']}?{urlencode(back)}")

    async def _register(self, request: web.Request) -> web.Response:
        wanted = await request.json()
        self.registrations.append(wanted)
        known = {"client_id": f"client-{len(self.registrations)}", "token_endpoint_auth_method": "none"}
        return web.json_response({**wanted, **known}, status=201)


@asynccontextmanager
async def run_auth_server(**settings: Any) -> AsyncIterator[AuthServer]:
    server = AuthServer(**settings)
    async with serve_site(server.handle) as url:
        server.url = url
        yield server
