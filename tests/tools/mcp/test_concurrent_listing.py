"""Runs that list the tools of one server at once: each is offered all of them, also while another lists them again."""

from __future__ import annotations

import asyncio
import random

import pytest
from async_tests import async_test
from tools.mcp.local_servers import remote_tool

from holodeck.testing import Era, FaultyMCPServer
from holodeck.tools.mcp.executor import MCPExecutor
from holodeck.tools.mcp.factory import create_mcp_plugin

ERAS: list[Era] = ["legacy", "modern"]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.proves("000:SC-008", "D-13")
@async_test
async def test_offers_that_cross_each_other_all_have_the_tools(era: Era) -> None:
    moments = random.Random(1)
    async with FaultyMCPServer(era=era) as remote, create_mcp_plugin(remote_tool(remote.url)) as server:
        executor = MCPExecutor([server])

        async def ask() -> list[bool]:
            has_tools = []
            for _ in range(20):
                for _ in range(moments.randrange(6)):
                    await asyncio.sleep(0)
                offered = await executor.specs()
                has_tools.append(bool(offered) and executor.can_execute("echo"))
            return has_tools

        found = await asyncio.gather(*(ask() for _ in range(10)))
    assert all(all(each) for each in found)
