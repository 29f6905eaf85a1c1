"""OAuth client credentials grant. The secret is sent only to the configured token endpoint or issuer.

Nothing that the MCP server publishes can change where the secret goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from urllib.parse import urlencode

from holodeck.lib.clock import Clock, wall_clock
from holodeck.lib.secret import Secret
from holodeck.tools.mcp.auth.auth_http import AuthHTTP
from holodeck.tools.mcp.auth.client_authentication import ClientIdentity
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
