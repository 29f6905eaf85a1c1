"""The address of the client behind a request, for the log and the audit log."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

from holodeck.gateway.http.asgi import Scope
from holodeck.lib.net.ip_policy import Network, parse_networks

_FORWARDED_FOR = "x-forwarded-for"


def find_client_address(scope: Scope, headers: Mapping[str, str], trusted_proxies: Sequence[str]) -> str:
    """The address of the connection, or the one that a trusted proxy forwards for it. Empty: not known.

    `X-Forwarded-For` has an entry of each proxy on the way, the last one nearest. An entry counts only if everything
    between it and this process is a trusted proxy: clients may send the header themselves.
    """
    address = str((scope.get("client") or ("",))[0])
    if not trusted_proxies:
        return address
    networks = parse_networks(trusted_proxies)
    for entry in reversed(headers.get(_FORWARDED_FOR, "").split(",")):
        if not _is_in(address, networks):
            break
        forwarded = entry.strip()
        if not _is_address(forwarded):
            break
        address = forwarded
    return address


def _is_in(address: str, networks: Sequence[Network]) -> bool:
    return _is_address(address) and any(ipaddress.ip_address(address) in network for network in networks)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
