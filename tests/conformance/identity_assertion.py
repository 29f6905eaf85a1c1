"""A person's enterprise login as a grant (ID-JAG): the first leg of enterprise-managed authorization."""

from __future__ import annotations

from urllib.parse import urlencode

from holodeck.lib.clock import Clock, wall_clock
from holodeck.lib.secret import Secret
from holodeck.tools.mcp.auth.auth_http import AuthHTTP
from holodeck.tools.mcp.auth.client_authentication import ClientIdentity
from holodeck.tools.mcp.auth.client_credentials import AssertionSource, TokenEndpoint
from holodeck.tools.mcp.auth.token import read_token

TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"


class IdentityAssertion:
    """The first leg of enterprise-managed authorization (RFC 8693): the company's identity provider turns a person's
    ID token into a grant (ID-JAG) for one authorization server and one MCP server."""

    def __init__(
        self,
        *,
        server: str,
        http: AuthHTTP,
        token_url: str,
        identity: ClientIdentity,
        id_token: AssertionSource,
        target: TokenEndpoint,
        resource: str,
        clock: Clock = wall_clock,
    ) -> None:
        self._server = server
        self._http = http
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
        answer = await self._http("POST", self._token_url, headers=headers, body=urlencode(form).encode())
        secrets = (*self._identity.secrets(), id_token)
        return read_token(
            answer, server=self._server, endpoint=self._token_url, now=self._clock(), secrets=secrets, kind="n_a"
        ).value
