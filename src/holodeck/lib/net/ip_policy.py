"""The IP addresses that may be dialled. Judges the address itself, never the host name that resolved to it."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Iterable
from typing import Any

from holodeck.lib.record import record

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NOT_PUBLIC_V4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # "this" network: loopback on most systems
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT; one cloud has its metadata service there
        "127.0.0.0/8",
        "168.63.129.16/32",  # the host service of one cloud, in a public range
        "169.254.0.0/16",  # link-local: the metadata service of most clouds
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments; the metadata service of one cloud
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
# All that is routed globally; mapped, local and multicast addresses are outside.
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC_V6 = tuple(
    ipaddress.IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments, with Teredo, which embeds other addresses
        "2001:db8::/32",
        "2002::/16",  # 6to4 embeds an IPv4 address
        "3fff::/20",
    )
)
# A network without IPv4 reaches public IPv4 servers through this prefix.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


# Domains that are reserved for private networks, or that private networks use and the Internet does not have.
_PRIVATE_DOMAINS = (
    ".localhost",
    ".local",
    ".internal",
    ".intranet",
    ".private",
    ".corp",
    ".home",
    ".lan",
    ".home.arpa",
)


class RefusedAddressError(OSError):
    """The policy forbids this address; it was not dialled."""

    def __init__(self) -> None:
        super().__init__(errno.EACCES, "its address is not a public one, and only public ones are dialled here")


def is_public(address: str) -> bool:
    """Return whether an address is reachable from the whole Internet. False for text that is no plain address."""
    parsed = _parse_address(address)
    if parsed is None:
        return False
    if isinstance(parsed, ipaddress.IPv4Address):
        return not any(parsed in network for network in _NOT_PUBLIC_V4)
    if parsed in _NAT64:
        return is_public(str(ipaddress.IPv4Address(int(parsed) & 0xFFFF_FFFF)))
    return parsed in _GLOBAL_V6 and not any(parsed in network for network in _NOT_PUBLIC_V6)


def is_public_host(host: str) -> bool:
    """Return whether a host can be one of the whole Internet, as far as its name tells: nothing is resolved.

    False for an address that is not public, for a name without a dot, and for names that only a private network has.
    """
    name = host.lower().removesuffix(".")
    if _parse_address(name) is not None:
        return is_public(name)
    return "." in name and not name.endswith(_PRIVATE_DOMAINS)


@record
class IPPolicy:
    """Allows public addresses and the addresses of `networks`."""

    networks: tuple[Network, ...] = ()

    def is_allowed(self, address: str) -> bool:
        if is_public(address):
            return True
        parsed = _parse_address(address)
        return parsed is not None and any(parsed in network for network in self.networks)

    def create_socket(self, info: tuple[Any, Any, int, str, tuple[Any, ...]]) -> socket.socket:
        """Create the socket for an entry of `getaddrinfo`, or raise `RefusedAddressError`.

        Judges the very address that is dialled next, so that a name that resolves differently the second time does
        not get past it.
        """
        family, kind, protocol, _, address = info
        if not self.is_allowed(str(address[0])):
            raise RefusedAddressError
        return socket.socket(family, kind, protocol)


def parse_networks(entries: Iterable[str]) -> tuple[Network, ...]:
    """Return the entries that are addresses or networks; others, such as host names, are skipped."""
    found: list[Network] = []
    for entry in entries:
        try:
            found.append(ipaddress.ip_network(entry, strict=False))
        except ValueError:
            continue
    return tuple(found)


def is_in_networks(address: str, networks: Iterable[Network]) -> bool:
    """Return whether a text is an address in one of these networks."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in networks)


ANY_ADDRESS = IPPolicy(networks=parse_networks(("0.0.0.0/0", "::/0")))
"""The policy for a host that the operator has configured."""


def _parse_address(address: str) -> Address | None:
    """Return None for text that is no plain address, and for one with a scope, which is link-local."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return None
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.scope_id is not None:
        return None
    return parsed
