"""OAuth grants of a program: its client credentials, or a JWT that its platform issues to it (RFC 7523).

A secret is sent only to the configured token endpoint or issuer: nothing that the MCP server publishes can change where
it goes. A platform that issues JWTs to workloads is Kubernetes, with its service accounts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import urlencode

from holodeck.lib.clock import Clock, wall_clock
from holodeck.lib.limits import MAX_SECRET_FILE_BYTES
from holodeck.lib.secret import Secret
from holodeck.lib.system.files import read_regular_file
from holodeck.tools.mcp.auth.auth_http import AuthHTTP
from holodeck.tools.mcp.auth.client_authentication import ClientIdentity
from holodeck.tools.mcp.auth.provider import auth_error
from holodeck.tools.mcp.auth.server_metadata import AuthorizationServer, discover_server
from holodeck.tools.mcp.auth.token import Token, read_token

ChooseIdentity = Callable[[AuthorizationServer], ClientIdentity]


class TokenEndpoint:
    """A token endpoint, configured by its URL or discovered once from the metadata of a configured issuer."""

    def __init__(self, *, server: str, http: AuthHTTP, token_url: str | None = None, issuer: str | None = None) -> None:
        if not token_url and not issuer:
            raise ValueError("a token endpoint needs a token_url or an issuer")
        self._server = server
        self._http = http
        self._issuer = issuer
        self._server_metadata: AuthorizationServer | None = None
        if token_url:
            self._server_metadata = AuthorizationServer(issuer=issuer or token_url, token_endpoint=token_url)

    async def locate(self) -> AuthorizationServer:
        if self._server_metadata is None:
            self._server_metadata = await discover_server(self._issuer or "", server=self._server, http=self._http)
        return self._server_metadata

    async def request_token(
        self, form: Mapping[str, str], identity: ClientIdentity, *, clock: Clock, secrets: Iterable[Secret] = ()
    ) -> Token:
        """Send one token request. `secrets` in the form are masked in errors. Raises MCPConnectionError."""
        server = await self.locate()
        content = dict(form)
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        await identity.sign(content, headers, audience=server.issuer)
        answer = await self._http("POST", server.token_endpoint, headers=headers, body=urlencode(content).encode())
        return read_token(
            answer,
            server=self._server,
            endpoint=server.token_endpoint,
            now=clock(),
            secrets=(*identity.secrets(), *secrets),
        )


class ClientCredentials:
    """The client credentials grant: the client obtains a token for itself."""

    def __init__(
        self,
        endpoint: TokenEndpoint,
        identity: ChooseIdentity,
        *,
        scopes: Iterable[str] = (),
        resource: str | None = None,
        clock: Clock = wall_clock,
    ) -> None:
        self._endpoint = endpoint
        self._identity = identity
        self._form = {"grant_type": "client_credentials"}
        if scope := " ".join(scopes):
            self._form["scope"] = scope
        if resource:
            self._form["resource"] = resource
        self._clock = clock

    async def obtain(self) -> Token:
        identity = self._identity(await self._endpoint.locate())
        return await self._endpoint.request_token(self._form, identity, clock=self._clock)


JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"

AssertionSource = Callable[[], Awaitable[Secret]]
"""Returns the JWT to present. Called at each renewal, since a platform rotates it."""


class AssertionFile:
    """Reads the JWT from a file that the platform writes. Raises MCPConnectionError."""

    def __init__(self, path: Path, *, server: str) -> None:
        self._path = path
        self._server = server

    async def __call__(self) -> Secret:
        try:
            text = (await asyncio.to_thread(read_regular_file, self._path, MAX_SECRET_FILE_BYTES)).decode("ascii")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it holds no JWT"
            raise auth_error(self._server, f"the assertion {self._path} cannot be read: {reason}.") from None
        return Secret(text.strip())


class JwtBearer:
    """Exchanges a JWT that the authorization server trusts for a token. No other grant is tried after a refusal."""

    def __init__(
        self,
        endpoint: TokenEndpoint,
        identity: ChooseIdentity,
        assertion: AssertionSource,
        *,
        scopes: Iterable[str] = (),
        resource: str | None = None,
        clock: Clock = wall_clock,
    ) -> None:
        self._endpoint = endpoint
        self._identity = identity
        self._assertion = assertion
        self._scope = " ".join(scopes)
        self._resource = resource
        self._clock = clock

    async def obtain(self) -> Token:
        assertion = await self._assertion()
        form = {"grant_type": JWT_BEARER, "assertion": assertion.reveal()}
        if self._scope:
            form["scope"] = self._scope
        if self._resource:
            form["resource"] = self._resource
        identity = self._identity(await self._endpoint.locate())
        return await self._endpoint.request_token(form, identity, clock=self._clock, secrets=(assertion,))
