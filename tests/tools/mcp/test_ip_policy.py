"""What may be dialled for a stranger: the address decides, at the moment it is dialled."""

from __future__ import annotations

import pytest
from async_tests import async_test

from holodeck.lib.net.http1_pool import ConnectFailedError, HTTP1Pool
from holodeck.lib.net.ip_policy import ANY_ADDRESS, IPPolicy, RefusedAddressError, is_public, parse_networks
from holodeck.testing import FaultyMCPServer

PUBLIC = ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700:4700::1111", "2a00:1450:4001:80b::200e"]
NOT_PUBLIC = [
    *("0.0.0.0", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "169.254.169.254"),
    *("172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1"),
    *("198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "168.63.129.16"),
    *("::", "::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "fe80::1", "fe80::1%eth0", "fc00::1"),
    *("fd00:ec2::254", "fec0::1", "ff02::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1", "5f00::1"),
    *("64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b:1::8.8.8.8", "2001:4860::1%eth0", "localhost", ""),
]


@pytest.mark.proves("D-27")
def test_only_addresses_of_the_public_internet_are_public() -> None:
    assert [address for address in PUBLIC if not is_public(address)] == []
    assert [address for address in NOT_PUBLIC if is_public(address)] == []
    assert is_public("64:ff9b::8.8.8.8")


@pytest.mark.proves("D-27")
def test_an_operator_may_add_networks_and_nothing_beside_them_is_added() -> None:
    rules = IPPolicy(networks=parse_networks(["10.20.0.0/16", "::1", "tools.internal"]))
    assert [address for address in ("10.20.3.4", "::1", "8.8.8.8") if not rules.is_allowed(address)] == []
    assert [address for address in ("10.21.0.1", "127.0.0.1", "::ffff:10.20.3.4") if rules.is_allowed(address)] == []


@pytest.mark.proves("D-27")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
@async_test
async def test_every_connection_of_a_client_is_judged_by_the_address_it_goes_to(host: str) -> None:
    async with FaultyMCPServer() as server:
        pool = HTTP1Pool(f"http://{host}:{server.port}/mcp", connect_timeout=5, ip_policy=IPPolicy())
        with pytest.raises(ConnectFailedError) as refused:
            await pool.send("GET", {})
        assert isinstance(refused.value.reason, RefusedAddressError)
        assert "127.0.0.1" not in str(refused.value)
        assert not server.requests
        pool = HTTP1Pool(f"http://127.0.0.1:{server.port}/mcp", connect_timeout=5, ip_policy=ANY_ADDRESS)
        await pool.send("GET", {})
        await pool.close()
        assert server.requests
