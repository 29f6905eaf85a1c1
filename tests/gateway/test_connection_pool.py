"""Connections to servers that requests declare: limited, least recently used closed first, idle ones closed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import pytest
from async_tests import async_test

from holodeck.gateway.mcp.connection_pool import CallerConnectionPool, PoolLimits
from holodeck.gateway.mcp.request_server_policy import RequestServerPolicy
from holodeck.gateway.wire.request.mcp_declarations import MCPDeclaration
from holodeck.lib.errors import MCPConnectionError
from holodeck.models.gateway import RequestServers
from holodeck.testing import FaultyMCPServer

RULES = RequestServerPolicy(
    RequestServers(allow=True, allow_private_hosts=["127.0.0.1"], allow_insecure_hosts=["127.0.0.1"])
)


@asynccontextmanager
async def _pool(**limits: float) -> AsyncIterator[CallerConnectionPool]:
    pool = CallerConnectionPool(RULES, timeout=5, limits=PoolLimits(**limits))  # type: ignore[arg-type] # by name
    try:
        yield pool
    finally:
        await pool.close()


def _at(server: FaultyMCPServer, label: str) -> MCPDeclaration:
    return MCPDeclaration(server_label=label, server_url=server.url)


async def _use(pool: CallerConnectionPool, declaration: MCPDeclaration, caller: str = "alice") -> None:
    with pool.acquire(declaration, caller) as offer:
        await offer.server.list_tools()


def _session_count(server: FaultyMCPServer) -> int:
    return sum(one.method == "initialize" for one in server.requests)


@pytest.mark.proves("D-27")
@async_test
async def test_an_idle_connection_is_closed_after_the_timeout() -> None:
    async with FaultyMCPServer() as server, _pool(idle_seconds=0.05) as pool:
        await _use(pool, _at(server, "a"))
        assert len(pool) == 1
        await server.received("DELETE")
        assert len(pool) == 0


@pytest.mark.proves("D-27")
@async_test
async def test_a_new_connection_replaces_the_least_recently_used_one() -> None:
    async with FaultyMCPServer() as server, _pool(per_caller=2) as pool:
        for label in ("a", "b", "a", "c"):
            await _use(pool, _at(server, label))
        await server.received("DELETE")
        assert (_session_count(server), len(pool)) == (3, 2)
        await _use(pool, _at(server, "a"))
        assert _session_count(server) == 3


@pytest.mark.proves("D-27")
@async_test
async def test_a_caller_at_its_connection_limit_is_refused_and_others_still_connect() -> None:
    async with FaultyMCPServer() as server, _pool(per_caller=2, total=3) as pool:
        with ExitStack() as stack:
            for label in ("a", "b"):
                stack.enter_context(pool.acquire(_at(server, label), "alice"))
            with pytest.raises(MCPConnectionError, match="too many"), pool.acquire(_at(server, "c"), "alice"):
                pass
            await _use(pool, _at(server, "a"), "bob")
            await _use(pool, _at(server, "b"), "bob")
            assert len(pool) == 3
        await _use(pool, _at(server, "c"), "alice")
