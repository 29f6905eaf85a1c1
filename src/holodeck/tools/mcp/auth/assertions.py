"""Tokens for an identity that somebody else vouches for: a workload's JWT, or a person's enterprise login (ID-JAG)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from urllib.parse import urlencode

from holodeck.lib.clock import Clock, wall_clock
from holodeck.lib.secret import Secret
from holodeck.tools.mcp.auth.client_credentials import TokenEndpoint
from holodeck.tools.mcp.auth.client_identity import ClientIdentity
from holodeck.tools.mcp.auth.door import Door
from holodeck.tools.mcp.auth.token import Token, read_token

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 - the name of a grant
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - the name of a kind
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"

AssertionSource = Callable[[], Awaitable[Secret]]
"""Gives the JWT to present; called at each renewal, since a platform rotates it."""


class JwtBearer:
    """RFC 7523: a JWT that the authorization server trusts is the grant. A refusal is final: no second way is tried."""

    def __init__(
        self,
        endpoint: TokenEndpoint,
        identity: ClientIdentity,
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
        return await self._endpoint.ask(form, self._identity, clock=self._clock, secrets=(assertion,))


class IdentityAssertion:
    """The first leg of enterprise-managed authorization (RFC 8693): the company's identity provider turns a person's
    ID token into a grant (ID-JAG) for one authorization server and one MCP server."""

    def __init__(
        self,
        *,
        server: str,
        door: Door,
        token_url: str,
        identity: ClientIdentity,
        id_token: AssertionSource,
        target: TokenEndpoint,
        resource: str,
        clock: Clock = wall_clock,
    ) -> None:
        self._server = server
        self._door = door
        self._token_url = token_url
        self._identity = identity
        self._id_token = id_token
        self._target = target
        self._resource = resource
        self._clock = clock

    async def __call__(self) -> Secret:
        id_token = await self._id_token()
        form = {
            "grant_type": TOKEN_EXCHANGE,
            "requested_token_type": ID_JAG,
            "subject_token": id_token.reveal(),
            "subject_token_type": ID_TOKEN,
            "audience": (await self._target.locate()).issuer,
            "resource": self._resource,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        await self._identity.sign(form, headers, audience=self._token_url)
        answer = await self._door("POST", self._token_url, headers=headers, body=urlencode(form).encode())
        secrets = (*self._identity.secrets(), id_token)
        return read_token(
            answer, server=self._server, endpoint=self._token_url, now=self._clock(), secrets=secrets, kind="n_a"
        ).value
