"""Checks of the host of a URL, origins and redirects, and URLs for messages, without parts that may be secret."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from urllib.parse import SplitResult, urljoin, urlsplit

REDIRECTS = frozenset({301, 302, 303, 307, 308})
# The only redirects that preserve the method and the body.
_REPEATABLE_REDIRECTS = frozenset({307, 308})
_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
UNNAMED = "a malformed URL"
_AUTHORITY = re.compile(r"(?:[^@]*@)?(?:\[(?P<v6>[^\[\]]+)\]|(?P<name>[^\[\]:@]+))(?::[0-9]*)?")
_LABEL = re.compile(r"[\w-]+")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")


def host_problem(authority: str) -> str | None:
    """Return why the host of `user@host:port` is ambiguous, or None if every client reads it the same way.

    `urlsplit` takes `[::1].evil.example` for `::1`, and resolvers take `127.1`, `0177.0.0.1` and `2130706433` for
    addresses: a rule about hosts must not be applied to one of these.
    """
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        return "has a malformed host"
    if match["v6"] is not None:
        return None if _is_ipv6(match["v6"]) else "has a malformed IPv6 address"
    name = match["name"]
    if unicodedata.normalize("NFKC", name).casefold() != name.casefold():
        return "has characters in its host that stand for others"
    *_, last = labels = name.removesuffix(".").split(".")
    if not all(_LABEL.fullmatch(label) for label in labels):
        return "has a malformed host"
    if _NUMBER.fullmatch(last) and not _is_ipv4(name):
        return "has a number for a host: write an address as four decimal numbers, such as 192.0.2.1"
    return None


def shown_origin(url: str) -> str:
    """Return scheme, host and port of a URL, for errors and logs. Its other components may contain secrets."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return UNNAMED
    if not parts.scheme or not host or host_problem(parts.netloc) is not None:
        return UNNAMED
    name = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{name}" + ("" if port is None else f":{port}")


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


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
