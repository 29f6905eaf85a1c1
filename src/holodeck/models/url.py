"""Which URLs an MCP server may have, judged by the parsed host and never by how the text begins."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import urlsplit

HTTPS_REQUIRED = "'url' must use https:// (or http:// for localhost)"
WEBSOCKET_REQUIRED = "'url' must use wss:// or ws://"


class Endpoint(NamedTuple):
    """The parts of a URL that decide whether it may be dialled."""

    scheme: str
    host: str
    is_loopback: bool


class BadURLError(ValueError):
    """The text is not a URL that can be dialled; the message says why."""


def parse_endpoint(url: str) -> Endpoint:
    """Take a URL apart, refusing what clients and people read differently."""
    if any(char.isspace() or not char.isprintable() for char in url):
        raise BadURLError("'url' must not contain spaces or control characters")
    if "\\" in url:
        raise BadURLError("'url' must not contain a backslash")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise BadURLError(f"'url' is not a valid URL: {str(error).split(':', maxsplit=1)[0]}") from None
    if not parts.scheme or "://" not in url:
        raise BadURLError("'url' must begin with a scheme, such as https://")
    if not host:
        raise BadURLError("'url' has no host")
    if parts.username is not None or parts.password is not None:
        raise BadURLError("'url' must not contain a user name or password: use 'headers' or 'auth'")
    return Endpoint(parts.scheme.lower(), host.lower(), is_loopback(host))


def is_loopback(host: str) -> bool:
    """True for `localhost`, 127.0.0.0/8 and ::1; false for every name that only looks like them."""
    name = host.lower().removesuffix(".")
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def url_problem(url: str, *, websocket: bool, allow_insecure_hosts: Collection[str] = ()) -> str | None:
    """Why this URL is refused for an MCP server, or None."""
    try:
        scheme, host, loopback = parse_endpoint(url)
    except BadURLError as error:
        return str(error)
    if websocket:
        return None if scheme in {"ws", "wss"} else WEBSOCKET_REQUIRED
    insecure_is_fine = loopback or host in {allowed.lower() for allowed in allow_insecure_hosts}
    if scheme == "https" or (scheme == "http" and insecure_is_fine):
        return None
    return HTTPS_REQUIRED
