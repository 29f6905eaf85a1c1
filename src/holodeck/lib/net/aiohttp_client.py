"""The one maker of HTTP clients: one TLS context for all, no redirect to another origin, no unbounded body.

A client for an address that a stranger chose dials only what its `IPPolicy` admits. That is asked of every address at
the moment it is dialled, so that neither a name that resolves differently the second time nor a number gets past.
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
_REPEATABLE_REDIRECTS = frozenset({307, 308})  # the only ones that keep the method and the body
_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class RefusedAddressError(OSError):
    """An address that must not be dialled; it was not."""

    def __init__(self) -> None:
        super().__init__(errno.EACCES, "its address is not a public one, and only public ones are dialled here")


class BodyTooLargeError(ValueError):
    """A body went over the limit that the reader set; nothing more was read."""


def create_http_client(*, connect_timeout: float, ip_policy: IPPolicy | None = None) -> aiohttp.ClientSession:
    """A client for one server: its own connections and cookies, no total time limit (the caller has the deadline).

    `ip_policy`: which addresses it may dial. Absent: all, because the operator has chosen the server.
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
    """How a request goes out: through a proxy, or straight. A proxy's URL is quoted in errors, so it has no login."""

    proxy: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """For the server, unless these are for the proxy alone."""
    proxy_headers: Mapping[str, str] | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Of the request, beside its headers."""
        return {"proxy": self.proxy, "proxy_headers": self.proxy_headers} if self.proxy else {}


def find_proxy_route(url: str) -> ProxyRoute:
    """Through the proxy that the environment names for this URL, if it does."""
    named = find_proxy(url)
    if named is None:
        return ProxyRoute()
    proxy = named if "://" in named else f"http://{named}"
    try:
        bare, login = without_login(proxy), proxy_login_headers(proxy)
    except ValueError:
        return ProxyRoute(proxy="http://")  # which is refused as none; what is written there may have a password in it
    is_tunnelled = urlsplit(url).scheme == "https"
    return ProxyRoute(proxy=bare, headers={} if is_tunnelled else login, proxy_headers=login if is_tunnelled else None)


def _socket_factory(ip_policy: IPPolicy) -> Callable[[aiohttp.AddrInfoType], socket.socket]:
    """The last moment before a connection: what is judged here is what is dialled."""

    def create_socket(info: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, address = info
        if not ip_policy.is_allowed(str(address[0])):
            raise RefusedAddressError
        return socket.socket(family, kind, protocol)

    return create_socket


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port: what must not change on the way."""
    parts: SplitResult = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or _DEFAULT_PORTS.get(parts.scheme)


def is_same_origin(target: str, url: str) -> bool:
    """Whether a URL that a server named leads to that server; one whose host can be read in two ways does not."""
    return host_problem(urlsplit(target).netloc) is None and origin_of(target) == origin_of(url)


def redirect_target(status: int, location: str | None, url: str) -> str | None:
    """Where a request may be repeated, or None when the redirect must not be followed."""
    if status not in _REPEATABLE_REDIRECTS or not location:
        return None
    target = urljoin(url, location)
    return target if is_same_origin(target, url) else None


async def read_body(response: aiohttp.ClientResponse, limit: int, reserved: Reservation | None = None) -> bytes:
    """The whole body, at most `limit` bytes after decompression. `reserved` holds them, or raises `OverBudgetError`."""
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
    """The beginning of a body that is only quoted; the rest is not read."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size >= limit:
            response.close()
            break
    return b"".join(chunks)[:limit]
