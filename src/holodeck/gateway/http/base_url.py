"""The address at which the clients of a gateway reach it."""

from __future__ import annotations

from collections.abc import Mapping


def find_base_url(public_url: str | None, headers: Mapping[str, str], scheme: str) -> str:
    """The configured URL, or else the one that a request names, without a slash at its end.

    The latter has no path of a proxy before the gateway, and the scheme of the last connection.
    """
    return public_url.rstrip("/") if public_url else f"{scheme}://{headers.get('host', '')}"
