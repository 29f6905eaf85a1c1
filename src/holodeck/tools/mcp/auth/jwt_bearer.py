"""JWT bearer grant (RFC 7523) for a workload whose platform issues it a JWT, such as a Kubernetes service account."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from holodeck.lib.clock import Clock, wall_clock
from holodeck.lib.limits import MAX_SECRET_FILE_BYTES
from holodeck.lib.secret import Secret
from holodeck.lib.system.files import read_regular_file
from holodeck.tools.mcp.auth.client_credentials import ChooseIdentity, TokenEndpoint
from holodeck.tools.mcp.auth.provider import auth_error
from holodeck.tools.mcp.auth.token import Token

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
