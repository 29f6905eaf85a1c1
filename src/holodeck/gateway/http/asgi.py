"""Headers of requests: those that may occur once, the addresses in them, and the ASGI types of WebSockets."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from holodeck.gateway.http.errors import APIError
from holodeck.lib.net.ip_policy import is_in_networks, parse_networks

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_FORWARDED_FOR = "x-forwarded-for"
_FORWARDED_PROTO = "x-forwarded-proto"
# Headers that decide what a request may do, or where it ends. They may occur once.
_SINGLE_HEADERS = frozenset(
    (
        *(b"host", b"origin", b"authorization", b"x-api-key", b"api-key", b"cookie", b"sec-fetch-site"),
        *(b"content-length", b"content-type", b"idempotency-key"),
    )
)


def check_duplicate_headers(items: Sequence[tuple[bytes, bytes]]) -> None:
    """Raise `APIError` for a repeated header that may occur once: a proxy may have used the other value."""
    for name, count in Counter(name for name, _ in items).items():
        if count > 1 and name in _SINGLE_HEADERS:
            message = f"The header '{name.decode()}' is there {count} times. Send it once."
            raise APIError(400, message, kind="invalid_request", code="duplicate_header")


def find_client_address(address: str, headers: Mapping[str, str], trusted_proxies: Sequence[str]) -> str:
    """Return the address of the connection, or the one that a trusted proxy forwards for it. Empty: not known.

    `X-Forwarded-For` has an entry of each proxy on the way, the last one nearest. An entry counts only if everything
    between it and this process is a trusted proxy: clients may send the header themselves.
    """
    if not trusted_proxies:
        return address
    networks = parse_networks(trusted_proxies)
    for entry in reversed(headers.get(_FORWARDED_FOR, "").split(",")):
        if not is_in_networks(address, networks):
            break
        forwarded = entry.strip()
        if not _is_address(forwarded):
            break
        address = forwarded
    return address


def find_scheme(address: str, headers: Mapping[str, str], trusted_proxies: Sequence[str]) -> str:
    """Return the scheme by which a client has reached the proxy that forwards its request, or that of the connection.

    The gateway itself speaks no TLS.
    """
    forwarded = headers.get(_FORWARDED_PROTO, "").strip().lower()
    if forwarded not in ("http", "https") or not is_in_networks(address, parse_networks(trusted_proxies)):
        return "http"
    return forwarded


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def find_base_url(public_url: str | None, headers: Mapping[str, str], scheme: str) -> str:
    """Return the configured URL, or else the one that a request names, without a slash at its end.

    The latter has no path of a proxy before the gateway, and the scheme of the last connection.
    """
    return public_url.rstrip("/") if public_url else f"{scheme}://{headers.get('host', '')}"
