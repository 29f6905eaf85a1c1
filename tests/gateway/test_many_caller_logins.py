"""Many callers at many servers at once: each call has the token of its caller for its server."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from async_tests import async_test
from gateway.config_entries import server as server_entry
from gateway.personal_server import PersonalServer
from gateway.running_gateway import run_gateway

from holodeck.gateway.mcp.token_store import SHARED
from holodeck.tools.mcp.callers_plugin import CallersPlugin

AT_ONCE = 50


async def check_callers(folder: Path, callers: int, servers: int) -> None:
    """Have each caller call each server, all at once, and compare who the server has seen."""
    people = {
        number: {f"Bearer token-{number}-{caller}": f"caller-{caller}" for caller in [*range(callers), "operator"]}
        for number in range(servers)
    }
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(PersonalServer(people[number]).serve()) for number in range(servers)]
        auth = {"type": "oauth_authorization_code", "per": "caller"}
        entries = [server_entry(f"s{number}", each.url, auth=auth) for number, each in enumerate(running)]
        gateway = await stack.enter_async_context(run_gateway(folder, mcp_servers=entries, keys=["hd-any"]))
        service, slots = gateway.service, asyncio.Semaphore(AT_ONCE)
        plugins = service.configurations.current.servers.servers

        async def log_in(number: int, caller: int | str) -> None:
            owner = SHARED if caller == "operator" else f"key:{caller}"
            tokens, key = service.logins.open_tokens(f"s{number}", owner), f"{running[number].url}\n"
            async with slots, tokens.lock(key):
                await tokens.save(key, {"tokens": {"access_token": f"token-{number}-{caller}"}})

        async def call(number: int, caller: int) -> tuple[int, int, str]:
            plugin = plugins[f"s{number}"]
            assert isinstance(plugin, CallersPlugin)
            async with slots:
                result = await plugin.call("whoami", {}, caller_id=f"key:{caller}")
            assert result.success, result.error
            return number, caller, result.text

        pairs = [(number, caller) for caller in range(callers) for number in range(servers)]
        await asyncio.gather(*(log_in(*pair) for pair in pairs), *(log_in(number, "operator") for number in people))
        seen = await asyncio.gather(*(call(*pair) for pair in pairs))
        assert [each for each in seen if each[2] != f"You are caller-{each[1]}."] == []
        assert len(seen) == callers * servers


@async_test(60)
async def test_twenty_callers_at_three_servers_are_themselves_at_each(tmp_path: Path) -> None:
    await check_callers(tmp_path, callers=20, servers=3)


@pytest.mark.long
@async_test(300)
async def test_a_hundred_callers_at_twenty_servers_are_themselves_at_each(tmp_path: Path) -> None:
    await check_callers(tmp_path, callers=100, servers=20)
