"""The URLs that are accepted for MCP servers and models. Judges the parsed host, never a prefix of the text."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import urlsplit

from holodeck.lib.net.urls import host_problem

HTTPS_REQUIRED = "'url' must use https:// (or http:// for localhost)"
CLEARTEXT_KEY = "'endpoint' must use https:// (or http:// for localhost): the key would be sent in the clear"
ALLOW_INSECURE = "Use https://, or list the host in 'allow_insecure_hosts' if the network between is yours."
HTTP_SCHEMES = ("https", "http")


class Endpoint(NamedTuple):
    """The components of a URL that decide whether it is accepted."""

    scheme: str
    host: str
    is_loopback: bool


class BadURLError(ValueError):
    """The text is not an acceptable URL; the message says why."""


def parse_endpoint(url: str) -> Endpoint:
    """Parse a URL. Raises `BadURLError`, also for text that different clients, or people, would read differently."""
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
    problem = host_problem(parts.netloc)
    if problem is not None:
        raise BadURLError(f"'url' {problem}")
    return Endpoint(parts.scheme.lower(), host.lower(), is_loopback(host))


def is_loopback(host: str) -> bool:
    """Return whether a host is `localhost`, in 127.0.0.0/8 (also mapped into IPv6), or ::1."""
    if host.lower().removesuffix(".") == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        return address.scope_id is None and (address.ipv4_mapped or address).is_loopback
    return address.is_loopback


def is_sent_in_cleartext(url: str, allow_insecure_hosts: object) -> bool:
    """Return whether credentials in requests to this URL can be read on the network."""
    try:
        endpoint = parse_endpoint(url)
    except BadURLError:
        # A malformed URL is refused by another rule.
        return False
    listed = allow_insecure_hosts if isinstance(allow_insecure_hosts, list) else []
    is_listed = endpoint.host in {str(host).lower() for host in listed}
    return endpoint.scheme == "http" and not endpoint.is_loopback and not is_listed


def wrong_scheme(schemes: tuple[str, ...]) -> str:
    """Return the problem of a URL with another scheme than these."""
    return f"'url' must use {' or '.join(f'{scheme}://' for scheme in schemes)}"


def url_problem(
    url: str, *, schemes: tuple[str, ...] = HTTP_SCHEMES, allow_insecure_hosts: Collection[str] = ()
) -> str | None:
    """Return why this URL is refused for an MCP server, or None.

    Plain `http://` is accepted for the loopback interface and for the listed hosts.
    """
    try:
        scheme, host, loopback = parse_endpoint(url)
    except BadURLError as error:
        return str(error)
    if schemes != HTTP_SCHEMES:
        return None if scheme in schemes else wrong_scheme(schemes)
    insecure_is_fine = loopback or host in {allowed.lower() for allowed in allow_insecure_hosts}
    if scheme == "https" or (scheme == "http" and insecure_is_fine):
        return None
    return HTTPS_REQUIRED
