"""Builds the aiohttp clients of the process, and reads their responses within limits.

All clients share one TLS context. Redirects are followed only within the origin of the request, and no body is read
without a limit. A client for an untrusted URL dials only addresses that its `IPPolicy` allows. The policy judges each
IP address when its socket is created, so that a name that resolves differently the second time does not get past it.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

import aiohttp

from holodeck.lib.byte_budget import Reservation
from holodeck.lib.limits import HTTP_KEEPALIVE, HTTP_READ_CHUNK
from holodeck.lib.net.ip_policy import IPPolicy
from holodeck.lib.net.proxies import find_proxy, proxy_login_headers, without_login
from holodeck.lib.net.tls import tls_context
from holodeck.lib.net.urls import host_problem

REDIRECTS = frozenset({301, 302, 303, 307, 308})
# The only redirects that preserve the method and the body.
_REPEATABLE_REDIRECTS = frozenset({307, 308})
_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class RefusedAddressError(OSError):
    """The policy forbids this address; it was not dialled."""

    def __init__(self) -> None:
        super().__init__(errno.EACCES, "its address is not a public one, and only public ones are dialled here")


class BodyTooLargeError(ValueError):
    """A body exceeds the reader's limit; the rest was not read."""


def create_http_client(*, connect_timeout: float, ip_policy: IPPolicy | None = None) -> aiohttp.ClientSession:
    """Build a client for one server, with its own connections and cookies. The caller closes it.

    It has no total timeout: deadlines belong to the caller. `ip_policy`: which addresses it may dial; None: all, for
    a server that the operator has chosen.
    """
    connector = aiohttp.TCPConnector(
        ssl=tls_context(),
        limit=0,
        keepalive_timeout=HTTP_KEEPALIVE,
        socket_factory=None if ip_policy is None else _socket_factory(ip_policy),
    )
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None, connect=connect_timeout, sock_connect=connect_timeout),
        read_bufsize=HTTP_READ_CHUNK,
        auto_decompress=True,
    )


@dataclass(frozen=True, kw_only=True)
class ProxyRoute:
    """The proxy of a request, or none. The URL of the proxy is quoted in errors, so it has no credentials."""

    proxy: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers to add to the request: the proxy credentials, where the proxy reads the request itself (http)."""
    proxy_headers: Mapping[str, str] | None = None
    """Headers for the CONNECT request of a tunnel (https)."""

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of an aiohttp request, besides `headers`."""
        return {"proxy": self.proxy, "proxy_headers": self.proxy_headers} if self.proxy else {}


def find_proxy_route(url: str) -> ProxyRoute:
    """Return the route to a URL, through the proxy that the environment names for it, if any."""
    named = find_proxy(url)
    if named is None:
        return ProxyRoute()
    proxy = named if "://" in named else f"http://{named}"
    try:
        bare, login = without_login(proxy), proxy_login_headers(proxy)
    except ValueError:
        # A malformed proxy URL may contain a password, so it is not quoted. aiohttp refuses this one.
        return ProxyRoute(proxy="http://")
    is_tunnelled = urlsplit(url).scheme == "https"
    return ProxyRoute(proxy=bare, headers={} if is_tunnelled else login, proxy_headers=login if is_tunnelled else None)


def _socket_factory(ip_policy: IPPolicy) -> Callable[[aiohttp.AddrInfoType], socket.socket]:
    """Return a socket factory that applies the policy to the very address that is dialled next."""

    def create_socket(info: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, address = info
        if not ip_policy.is_allowed(str(address[0])):
            raise RefusedAddressError
        return socket.socket(family, kind, protocol)

    return create_socket


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Return the origin of a URL: scheme, host and port."""
    parts: SplitResult = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or _DEFAULT_PORTS.get(parts.scheme)


def is_same_origin(target: str, url: str) -> bool:
    """Return whether `target`, named by the server of `url`, has the same origin. An ambiguous host never has."""
    return host_problem(urlsplit(target).netloc) is None and origin_of(target) == origin_of(url)


def redirect_target(status: int, location: str | None, url: str) -> str | None:
    """Return the URL at which the request may be repeated, or None if the redirect must not be followed."""
    if status not in _REPEATABLE_REDIRECTS or not location:
        return None
    target = urljoin(url, location)
    return target if is_same_origin(target, url) else None


async def read_body(response: aiohttp.ClientResponse, limit: int, reserved: Reservation | None = None) -> bytes:
    """Read the whole body, at most `limit` bytes after decompression, counted in `reserved`.

    Raises `BodyTooLargeError`, and `OverBudgetError` where `reserved` cannot be extended.
    """
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > limit:
            response.close()
            raise BodyTooLargeError(f"more than {limit} bytes")
        if reserved is not None:
            reserved.extend(len(chunk))
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def read_excerpt(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Read the first `limit` bytes of a body that is only quoted in an error."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size >= limit:
            response.close()
            break
    return b"".join(chunks)[:limit]
