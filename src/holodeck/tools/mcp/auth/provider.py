"""What proves to a remote server who we are: headers for every request, and a second chance when they are refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from holodeck.lib.errors import MCPConnectionError
from holodeck.lib.secret import Secret

REFUSED_STATUSES = (401, 403)
"""The statuses that a provider is asked about."""


@dataclass(frozen=True, kw_only=True)
class AuthRefusal:
    """A request that the server answered with 401 or 403."""

    status: int
    url: str
    method: str = "POST"
    www_authenticate: str = ""
    """What the server asks for; several such headers are joined with commas."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The headers of the answer."""
    body: bytes = field(default=b"", repr=False)
    sent: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What `headers()` gave for this request: a provider whose token has changed since then need not renew it again."""
    attempt: int = 1
    """Counted from 1 for each request that the caller wants answered."""


@runtime_checkable
class MCPAuthProvider(Protocol):
    """One per server, shared by all its calls. `headers` never waits when what it has is fresh."""

    async def headers(self, method: str = "POST", url: str = "") -> Mapping[str, str]:
        """What to send with a request. Concurrent callers share one renewal."""
        ...

    async def refused(self, refusal: AuthRefusal) -> bool:
        """Whether `headers` now gives something better, so that the request may be sent again."""
        ...


class NoAuth:
    """Nothing to prove."""

    async def headers(self, method: str = "POST", url: str = "") -> Mapping[str, str]:
        return {}

    async def refused(self, refusal: AuthRefusal) -> bool:
        return False


class StaticHeaders:
    """Headers from the file, the same for every request."""

    def __init__(self, headers: Mapping[str, Secret]) -> None:
        self._headers = dict(headers)

    async def headers(self, method: str = "POST", url: str = "") -> Mapping[str, str]:
        return {name: value.reveal() for name, value in self._headers.items()}

    async def refused(self, refusal: AuthRefusal) -> bool:
        return False


class StaticBearer:
    """A token that somebody made for us."""

    def __init__(self, token: Secret) -> None:
        self._token = token

    async def headers(self, method: str = "POST", url: str = "") -> Mapping[str, str]:
        return bearer_headers(self._token)

    async def refused(self, refusal: AuthRefusal) -> bool:
        return False


def bearer_headers(token: Secret) -> dict[str, str]:
    return {"Authorization": f"Bearer {token.reveal()}"}


def auth_error(server: str, message: str, **details: Any) -> MCPConnectionError:
    """What went wrong while proving who we are. `message` must hold no secret."""
    return MCPConnectionError(
        f"Server '{server}' (authorize): {message}", server=server, phase="authorize", details=details
    )


_PARAMETER = r'(?:^|[\s,]){name}\s*=\s*(?:"(?P<quoted>[^"]*)"|(?P<plain>[^\s,"]+))'


def challenge_parameter(challenge: str, name: str) -> str:
    """The value of a parameter, such as `error`; empty when there is none."""
    found = re.search(_PARAMETER.format(name=re.escape(name)), challenge, re.IGNORECASE)
    return (found["quoted"] or found["plain"] or "") if found else ""
