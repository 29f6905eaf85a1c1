"""The cookies of one server: a load balancer uses them to send all requests of a session to one machine."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from holodeck.lib.limits import KIB

# Cookies of one server, and bytes of one: what browsers store at least.
MAX_COOKIES = 50
MAX_COOKIE_BYTES = 4 * KIB


class _Cookie(NamedTuple):
    value: str
    path: str
    is_secure: bool
    expires_at: float
    """Seconds since the epoch."""


class CookieJar:
    """Stores the cookies of one origin and returns them to it alone, so that their domain does not matter."""

    def __init__(self) -> None:
        self._cookies: dict[str, _Cookie] = {}

    def store(self, header: str) -> None:
        """Store the cookies of a response. `header`: its `set-cookie` headers, joined by line breaks."""
        for line in header.split("\n"):
            pair, *attributes = line.split(";")
            name, has_value, value = (part.strip() for part in pair.partition("="))
            if not name or not has_value or len(line) > MAX_COOKIE_BYTES:
                continue
            self._cookies.pop(name, None)
            cookie = _parse_attributes(value, attributes)
            if cookie.expires_at > time.time() and len(self._cookies) < MAX_COOKIES:
                self._cookies[name] = cookie

    def header_for(self, path: str, *, is_secure: bool) -> str:
        """Return the value of the `Cookie` header for a request to this path; empty when there is none."""
        now = time.time()
        return "; ".join(
            f"{name}={cookie.value}"
            for name, cookie in self._cookies.items()
            if cookie.expires_at > now and (is_secure or not cookie.is_secure) and _is_below(path, cookie.path)
        )


def _parse_attributes(value: str, attributes: list[str]) -> _Cookie:
    pairs = (attribute.partition("=") for attribute in attributes)
    found = {name.strip().lower(): text.strip() for name, _, text in pairs}
    path = found.get("path", "")
    return _Cookie(
        value=value,
        path=path if path.startswith("/") else "/",
        is_secure="secure" in found,
        expires_at=_expiry(found),
    )


def _expiry(attributes: dict[str, str]) -> float:
    try:
        if "max-age" in attributes:
            return time.time() + int(attributes["max-age"])
        if "expires" in attributes:
            return parsedate_to_datetime(attributes["expires"]).timestamp()
    # A malformed date is as good as none.
    except (ValueError, OverflowError):
        pass
    return float("inf")


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder if folder.endswith("/") else f"{folder}/")
