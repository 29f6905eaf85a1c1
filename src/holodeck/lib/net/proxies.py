"""The proxies that the environment names."""

from __future__ import annotations

import base64
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass


def find_proxy(url: str) -> str | None:
    """The proxy that the environment names for this URL. Never for loopback."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in {"localhost", "::1"} or host.startswith("127."):
        return None
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return None if proxy is None or proxy_bypass(host) else proxy


def without_login(url: str) -> str:
    """All of a URL but the name and the password in it."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def proxy_login_headers(proxy: str) -> dict[str, str]:
    """What a login in its URL is sent as: in UTF-8, which not every client can do."""
    parts = urlsplit(proxy)
    if parts.username is None:
        return {}
    who = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return {"Proxy-Authorization": f"Basic {base64.b64encode(who).decode()}"}
