"""The proxy of a URL, from the environment, and credentials in URLs."""

from __future__ import annotations

import base64
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass


def find_proxy(url: str) -> str | None:
    """Return the proxy that the environment names for this URL, or None. Loopback never has one."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in {"localhost", "::1"} or host.startswith("127."):
        return None
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return None if proxy is None or proxy_bypass(host) else proxy


def proxy_login_headers(proxy: str) -> dict[str, str]:
    """Return the header for the credentials in a proxy URL; empty if it has none."""
    parts = urlsplit(proxy)
    login = encode_basic_auth(parts.username, parts.password)
    return {"Proxy-Authorization": login} if login else {}


def encode_basic_auth(username: str | None, password: str | None) -> str | None:
    """Return `Basic ...` for the credentials of a URL, or None without a user name. Encoded as UTF-8."""
    if username is None:
        return None
    credentials = f"{unquote(username)}:{unquote(password or '')}".encode()
    return f"Basic {base64.b64encode(credentials).decode()}"
