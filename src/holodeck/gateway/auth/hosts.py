"""The host names that a gateway answers to, and the web pages that may call it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from holodeck.gateway.http.errors import APIError
from holodeck.lib.net.urls import host_problem
from holodeck.models.url import is_loopback

# Parsed `Host` and `Origin` values in each cache: they are the same in nearly every request.
MAX_HOSTS_REMEMBERED = 256

_PORTS = {"http": 80, "https": 443}
_HEADER_NAMES = re.compile(r"[A-Za-z0-9-]+( *, *[A-Za-z0-9-]+)*", re.ASCII)


class HostPolicy:
    """Checks `Host` against DNS rebinding, and `Origin` against pages that the operator has not allowed."""

    def __init__(
        self,
        *,
        allowed_hosts: Collection[str],
        origins: Collection[str],
        is_local: bool,
        public_url: str | None = None,
    ) -> None:
        """`public_url`: the address of the gateway for its clients, if it is configured."""
        self._hosts = {host.lower() for host in allowed_hosts}
        self._origins = set(origins)
        self._public_origin = None if public_url is None else "{0.scheme}://{0.netloc}".format(urlsplit(public_url))
        self._is_local = is_local

    def check(self, headers: Mapping[str, str]) -> None:
        """Raise `APIError` for a host or an origin that is not allowed."""
        host, port = _parse_authority(headers.get("host", ""))
        if (self._is_local or self._hosts) and host not in self._hosts and not _is_loopback_host(host):
            message = f"This gateway does not answer to the host '{host}'. Add it to 'listen.allowed_hosts'."
            raise APIError(421, message, kind="invalid_request", code="unknown_host")
        origin = headers.get("origin")
        is_known = origin in self._origins or origin == self._public_origin
        if origin is not None and not is_known and not self._is_same_origin(origin, host, port):
            message = "Web pages of this origin may not use the gateway. Add it to 'cors_origins'."
            raise APIError(403, message, kind="invalid_request", code="origin_not_allowed")

    def check_same_origin(self, headers: Mapping[str, str]) -> None:
        """Raise `APIError` unless a page of this gateway has sent the request, for one that a browser authenticates.

        Pages of `cors_origins` have keys of their own: a browser must not act for the person that uses it.
        """
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        host, port = _parse_authority(headers.get("host", ""))
        is_own = origin is not None and (origin == self._public_origin or self._is_same_origin(origin, host, port))
        if not (is_own if site is None else site == "same-origin"):
            message = "A login counts only for the pages of this gateway itself. Other programs and pages need a key."
            raise APIError(403, message, kind="invalid_request", code="cross_site_request")

    def _is_same_origin(self, origin: str, host: str, port: int | None) -> bool:
        """Return whether a page comes from the address that it calls.

        A page on another port of the same host belongs to another program. Behind a proxy that terminates TLS, the
        scheme of the page is not that of the connection, which has none: then the host must be in `allowed_hosts`.
        """
        page = _parse_origin(origin)
        if page is None or not host:
            return False
        addresses = {("http", host, port or _PORTS["http"])}
        if host in self._hosts:
            addresses.add(("https", host, port or _PORTS["https"]))
        return page in addresses

    def cors_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the CORS headers of a reply to a page of an allowed origin; empty for every other request."""
        origin = headers.get("origin")
        if origin is None or origin not in self._origins:
            return {}
        requested = headers.get("access-control-request-headers", "")
        return {
            "access-control-allow-origin": origin,
            # Whatever is requested: the OpenAI clients send a dozen headers of their own.
            "access-control-allow-headers": (
                requested if _HEADER_NAMES.fullmatch(requested) else "authorization, content-type"
            ),
            "access-control-allow-methods": "GET, POST, DELETE",
            # Without these an SDK in a page retries requests that must not be retried, and too soon; and an MCP client
            # in a page has no session.
            "access-control-expose-headers": "x-request-id, x-should-retry, retry-after, mcp-session-id",
            "vary": "origin",
        }


def is_own_address(url: str, headers: Mapping[str, str]) -> bool:
    """Return whether a URL has the origin of the page that sends a request or, without a page, the host of the request.

    Without a page both schemes are accepted: a proxy may terminate TLS. The origin was checked before.
    """
    parts = urlsplit(url)
    address = _parse_origin(f"{parts.scheme}://{parts.netloc}")
    origin = headers.get("origin")
    if origin is not None:
        return address is not None and address == _parse_origin(origin)
    host, port = _parse_authority(headers.get("host", ""))
    return address in {(scheme, host, port or default) for scheme, default in _PORTS.items()} and bool(host)


def _parse_origin(origin: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port of an origin; None for an opaque one, as of a page in a sandbox."""
    scheme, separator, authority = origin.partition("://")
    if not separator or scheme not in _PORTS:
        return None
    host, port = _parse_authority(authority)
    return (scheme, host, port or _PORTS[scheme]) if host else None


@lru_cache(maxsize=MAX_HOSTS_REMEMBERED)
def _is_loopback_host(host: str) -> bool:
    return is_loopback(host)


@lru_cache(maxsize=MAX_HOSTS_REMEMBERED)
def _parse_authority(text: str) -> tuple[str, int | None]:
    """Return host and port of `host:port`; the host is empty where the text is invalid."""
    try:
        parts = urlsplit(f"//{text}")
        if parts.netloc != text or "@" in text or host_problem(text) is not None:
            return "", None
        return (parts.hostname or "").lower(), parts.port
    except ValueError:
        return "", None
