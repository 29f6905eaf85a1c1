"""HTTP client for authorization servers, and the only network access of `auth`.

URLs must be https or loopback; redirects are not followed; size and time of a response are bounded; errors contain no
secret. A public MCP server cannot make the client dial private addresses.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Collection, Mapping
from dataclasses import field
from typing import Any, Protocol
from urllib.parse import urlsplit

from holodeck.lib.json.parse import parse_json
from holodeck.lib.limits import KIB
from holodeck.lib.net.http1 import BodyTooLargeError
from holodeck.lib.net.http1_pool import failure_reason, send_once
from holodeck.lib.net.ip_policy import IPPolicy, RefusedAddressError, is_public
from holodeck.lib.net.proxies import find_proxy
from holodeck.lib.net.urls import shown_origin
from holodeck.lib.record import record
from holodeck.lib.system.fd_shortage import SHORTAGE_TEXT, is_file_shortage
from holodeck.models.url import is_loopback, url_problem
from holodeck.tools.mcp.auth.provider import auth_error

# Bytes of one response of an authorization server. Metadata documents and token responses have a few KiB.
MAX_AUTH_BODY_BYTES = 256 * KIB
# Seconds for one request to an authorization server, with its response.
AUTH_TIMEOUT = 30.0


@record
class AuthResponse:
    """A response of an authorization server."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)

    def json(self) -> dict[str, Any] | None:
        """Return the JSON object in the body, or None when the body is anything else."""
        try:
            value = parse_json(self.body)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None


class AuthHTTP(Protocol):
    """Sends one request to an authorization server. Raises MCPConnectionError."""

    async def __call__(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> AuthResponse: ...


class AuthHTTPClient:
    """Sends each request with a connection of its own: requests are rare, and no state may pass between them."""

    def __init__(
        self,
        server: str,
        *,
        allow_insecure_hosts: Collection[str] = (),
        timeout: float = AUTH_TIMEOUT,
        server_url: str = "",
        issuer: str | None = None,
    ) -> None:
        """`server_url`: the MCP server whose metadata names the URLs; empty when the operator configured all of them.

        If that server has a public address, private addresses are dialled only for its own host, the pinned `issuer`
        and the hosts of `allow_insecure_hosts`.
        """
        self._server = server
        self._insecure = tuple(allow_insecure_hosts)
        self._timeout = timeout
        self._server_url = server_url
        named = (_hostname(server_url), _hostname(issuer or ""), *(host.lower() for host in allow_insecure_hosts))
        self._trusted = frozenset(named)

    async def __call__(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> AuthResponse:
        problem = url_problem(url, allow_insecure_hosts=self._insecure)
        if problem:
            why = problem.replace("'url'", "it")
            raise auth_error(self._server, f"{display_url(url)} is refused: {why}.")
        try:
            async with asyncio.timeout(self._timeout):
                return await self._send(method, url, headers or {}, body)
        except TimeoutError:
            text = f"{display_url(url)} did not answer within {self._timeout:g} s."
        except BodyTooLargeError:
            text = f"{display_url(url)} sent more than {MAX_AUTH_BODY_BYTES} bytes."
        except OSError as error:
            if is_file_shortage(error):
                text = f"{display_url(url)} was not asked: {SHORTAGE_TEXT}. Try again in a moment."
                raise auth_error(self._server, text, url=display_url(url), shortage=True) from error
            # The texts of these errors contain host and port, never headers or body.
            text = f"{display_url(url)} cannot be reached: {failure_reason(error)}."
        raise auth_error(self._server, text, url=display_url(url))

    async def _send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> AuthResponse:
        proxy = find_proxy(url)
        ip_policy = await self._choose_ip_policy(url)
        # A proxy dials by itself, where the IP policy cannot check the address.
        if ip_policy is not None and proxy is not None and not _may_be_public(url):
            raise RefusedAddressError
        async with send_once(
            method, url, headers, body or None, connect_timeout=self._timeout, proxy=proxy, ip_policy=ip_policy
        ) as response:
            content = await response.read_all(MAX_AUTH_BODY_BYTES)
            return AuthResponse(status=response.status, headers=response.headers, body=content)

    async def _choose_ip_policy(self, url: str) -> IPPolicy | None:
        """Return the policy for the addresses that may be dialled for a URL; None allows all."""
        if not self._server_url or _hostname(url) in self._trusted:
            return None
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(_hostname(self._server_url), None, type=socket.SOCK_STREAM)
        # Behind a proxy, names of other networks cannot be resolved here.
        except OSError:
            return IPPolicy()
        return IPPolicy() if all(is_public(str(address[0])) for *_, address in found) else None


def display_url(url: str) -> str:
    """Return a URL as messages show it: its origin only."""
    return shown_origin(url)


def _hostname(url: str) -> str:
    return (urlsplit(url).hostname or "").lower()


def _may_be_public(url: str) -> bool:
    """Return False for a private address and for names of this machine."""
    host = _hostname(url)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return not is_loopback(host)
    return is_public(host)
