"""Which names a gateway answers to, and which web pages may call it; no other page reaches it by a trick."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from holodeck.gateway.problems import WireError
from holodeck.lib.limits import MAX_HOSTS_REMEMBERED
from holodeck.models.url import is_loopback

_HEADER_NAMES = re.compile(r"[A-Za-z0-9-]+( *, *[A-Za-z0-9-]+)*", re.ASCII)


class HostPolicy:
    """Checks `Host` against DNS rebinding and `Origin` against pages that were not invited."""

    def __init__(self, *, allowed_hosts: Collection[str], origins: Collection[str], is_local: bool) -> None:
        self._hosts = {host.lower() for host in allowed_hosts}
        self._origins = set(origins)
        self._is_local = is_local

    def check(self, headers: Mapping[str, str]) -> None:
        """Raise for a request that a browser was tricked into."""
        host = _hostname(headers.get("host", ""))
        if (self._is_local or self._hosts) and host not in self._hosts and not _is_near(host):
            message = f"This gateway does not answer to the host '{host}'. Add it to 'listen.allowed_hosts'."
            raise WireError(421, message, kind="invalid_request", code="unknown_host")
        origin = headers.get("origin")
        if origin is not None and origin not in self._origins and _origin_host(origin) != host:
            message = "Web pages of this origin may not use the gateway. Add it to 'cors_origins'."
            raise WireError(403, message, kind="invalid_request", code="origin_not_allowed")

    def cors(self, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
        """What a browser wants to see for a page that is invited."""
        origin = headers.get("origin")
        if origin is None or origin not in self._origins:
            return []
        wanted = headers.get("access-control-request-headers", "")
        allowed = wanted if _HEADER_NAMES.fullmatch(wanted) else "authorization, content-type"
        return [
            (b"access-control-allow-origin", origin.encode("latin-1", "replace")),
            (b"access-control-allow-headers", allowed.encode()),  # the OpenAI clients send a dozen of their own
            (b"access-control-allow-methods", b"GET, POST, DELETE"),
            # Without these an SDK in a page repeats what must not be repeated, and too soon.
            (b"access-control-expose-headers", b"x-request-id, x-should-retry, retry-after"),
            (b"vary", b"origin"),
        ]


def _origin_host(origin: str) -> str | None:
    """The name of a page's host; None when it has none, as for a page in a sandbox."""
    try:
        return _hostname(urlsplit(origin).netloc) or None
    except ValueError:
        return None


@lru_cache(maxsize=MAX_HOSTS_REMEMBERED)
def _is_near(host: str) -> bool:
    return is_loopback(host)


@lru_cache(maxsize=MAX_HOSTS_REMEMBERED)
def _hostname(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""
