"""Builds the aiohttp clients of the process, for OAuth, JWKS and downloads, and reads bodies within a limit.

All clients share one TLS context. A client for an untrusted URL dials only addresses that its `IPPolicy` allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from holodeck.lib.byte_budget import Reservation
from holodeck.lib.limits import HTTP_KEEPALIVE, HTTP_READ_CHUNK
from holodeck.lib.net.http1 import BodyTooLargeError
from holodeck.lib.net.ip_policy import IPPolicy
from holodeck.lib.net.proxies import find_proxy, proxy_login_headers, without_login
from holodeck.lib.net.tls import tls_context
from holodeck.lib.record import record


def create_http_client(*, connect_timeout: float, ip_policy: IPPolicy | None = None) -> aiohttp.ClientSession:
    """Build a client for one server, with its own connections and cookies. The caller closes it.

    It has no total timeout: deadlines belong to the caller. `ip_policy`: which addresses it may dial; None: all, for
    a server that the operator has chosen.
    """
    connector = aiohttp.TCPConnector(
        ssl=tls_context(),
        limit=0,
        keepalive_timeout=HTTP_KEEPALIVE,
        socket_factory=None if ip_policy is None else ip_policy.create_socket,
    )
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None, connect=connect_timeout, sock_connect=connect_timeout),
        read_bufsize=HTTP_READ_CHUNK,
        auto_decompress=True,
    )


@record
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
