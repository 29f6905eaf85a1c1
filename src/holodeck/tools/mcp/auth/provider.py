"""The interface of authentication at MCP servers, and the providers that have nothing to renew.

A provider adds headers to every request of one server, and may renew them when the server answers 401 or 403.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Protocol, runtime_checkable

from holodeck.lib.errors import MCPConnectionError
from holodeck.lib.record import record
from holodeck.lib.secret import Secret

# The statuses after which a transport calls `MCPAuthProvider.refused`.
REFUSED_STATUSES = (401, 403)

_PARAMETER = r'(?:^|[\s,]){name}\s*=\s*(?:"(?P<quoted>[^"]*)"|(?P<plain>[^\s,"]+))'


@record
class AuthRefusal:
    """A request that the server answered with 401 or 403."""

    status: int
    url: str
    method: str = "POST"
    www_authenticate: str = ""
    """The challenge of the server; several headers of this name are joined with commas."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The headers of the server's response."""
    body: bytes = field(default=b"", repr=False)
    sent: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The result of `headers()` for this request: a provider with a newer token need not renew it again."""
    attempt: int = 1
    """Counts the refusals of one request, from 1."""


@runtime_checkable
class MCPAuthProvider(Protocol):
    """Credentials for one server, shared by all its calls. `headers` does not wait while the credentials are fresh."""

    async def headers(self, method: str = "POST", url: str = "") -> Mapping[str, str]:
        """Return the headers to add to a request. Concurrent callers share one renewal. Raises MCPConnectionError."""
        ...

    async def refused(self, refusal: AuthRefusal) -> bool:
        """Renew the credentials if possible. True when `headers` has changed and the request may be sent again."""
        ...


class NoAuth:
    """Adds no headers."""

    async def headers(self, method: str = "POST", url: str = "") -> Mapping[str, str]:
        return {}

    async def refused(self, refusal: AuthRefusal) -> bool:
        return False


class StaticHeaders:
    """The `headers` of the definition, the same for every request."""

    def __init__(self, headers: Mapping[str, Secret]) -> None:
        self._headers = dict(headers)

    async def headers(self, method: str = "POST", url: str = "") -> Mapping[str, str]:
        return {name: value.reveal() for name, value in self._headers.items()}

    async def refused(self, refusal: AuthRefusal) -> bool:
        return False


class StaticBearer:
    """A configured bearer token, which cannot be renewed."""

    def __init__(self, token: Secret) -> None:
        self._token = token

    async def headers(self, method: str = "POST", url: str = "") -> Mapping[str, str]:
        return bearer_headers(self._token)

    async def refused(self, refusal: AuthRefusal) -> bool:
        return False


def bearer_headers(token: Secret) -> dict[str, str]:
    return {"Authorization": f"Bearer {token.reveal()}"}


def auth_error(server: str, message: str, **details: Any) -> MCPConnectionError:
    """Build the error of a failed authentication. `message` must contain no secret."""
    return MCPConnectionError(
        f"Server '{server}' (authorize): {message}", server=server, phase="authorize", details=details
    )


def challenge_parameter(challenge: str, name: str) -> str:
    """Return the value of a parameter of a `WWW-Authenticate` challenge, such as `error`; empty when it is absent."""
    found = re.search(_PARAMETER.format(name=re.escape(name)), challenge, re.IGNORECASE)
    return (found["quoted"] or found["plain"] or "") if found else ""
