"""Subscriptions to resources: updates, listeners that share one, lost connections, and the end."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from tools.mcp.local_servers import remote_tool
from tools.mcp.misbehaving_server import ERAS, TransportVariant, open_misbehaving

from holodeck.lib.errors import MCPError
from holodeck.testing import ABANDONED, Era, FaultyMCPServer
from holodeck.tools.mcp.factory import create_mcp_plugin
from holodeck.tools.mcp.resource_subscriptions import MAX_SUBSCRIPTIONS

NOTES = "test://notes.txt"
DATA = "test://data.bin"
# A legacy server has one stream for all notifications; a modern one has one for lists, and one for each resource.
STREAMS: dict[Era, int] = {"legacy": 1, "modern": 2}


def _count_subscriptions(requests: Any) -> int:
    return sum(
        one.method == "resources/subscribe"
        or (one.method == "subscriptions/listen" and "resourceSubscriptions" in one.params["notifications"])
        for one in requests
    )


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", ["http", "http-sse", "websocket"])
@async_test
async def test_listeners_of_one_resource_share_a_subscription_that_ends_with_the_last_of_them(
    transport: TransportVariant, era: Era, tmp_path: Path
) -> None:
    first: asyncio.Queue[str] = asyncio.Queue()
    second: asyncio.Queue[str] = asyncio.Queue()
    async with open_misbehaving("normal", transport, tmp_path, era=era) as subject:
        assert subject.server is not None
        one = await subject.plugin.subscribe(NOTES, first.put_nowait)
        async with await subject.plugin.subscribe(NOTES, second.put_nowait):
            await subject.server.listening(STREAMS[era])
            assert await subject.server.put_resource(NOTES, text="changed") == 1
            assert [await first.get(), await second.get()] == [NOTES, NOTES]
            assert _count_subscriptions(subject.requests) == 1
        await subject.server.put_resource(NOTES, text="again")
        assert await first.get() == NOTES
        await one.close()
        await one.close()
        end = "notifications/cancelled" if transport == "websocket" else ABANDONED
        await subject.server.received("resources/unsubscribe" if era == "legacy" else end)
        assert first.empty()
        assert second.empty()


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_updates_of_other_resources_and_changes_of_lists_are_not_mixed_up(era: Era) -> None:
    notes: asyncio.Queue[str] = asyncio.Queue()
    data: asyncio.Queue[str] = asyncio.Queue()
    async with FaultyMCPServer(era=era) as remote, create_mcp_plugin(remote_tool(remote.url)) as server:
        tools = await server.list_tools()
        async with await server.subscribe(NOTES, notes.put_nowait), await server.subscribe(DATA, data.put_nowait):
            await remote.listening(STREAMS[era] + (era == "modern"))
            await remote.put_resource(DATA, text="d")
            await remote.put_resource(NOTES, text="n")
            assert [await data.get(), await notes.get()] == [DATA, NOTES]
            assert data.empty()
            assert notes.empty()
            grown = await remote.grow()
            await remote.received("tools/list", count=2)
            assert [info.name for info in await server.list_tools()] == [*(info.name for info in tools), grown]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", ["http", "websocket"])
@async_test
async def test_after_a_restart_of_the_server_the_listener_is_called_once_and_then_for_each_update(
    transport: TransportVariant, era: Era, tmp_path: Path
) -> None:
    updates: asyncio.Queue[str] = asyncio.Queue()
    async with open_misbehaving("normal", transport, tmp_path, era=era) as subject:
        assert subject.server is not None
        async with await subject.plugin.subscribe(NOTES, updates.put_nowait):
            await subject.server.listening(STREAMS[era])
            await subject.server.go_down()
            await subject.server.come_up()
            assert await updates.get() == NOTES
            await subject.server.listening(STREAMS[era])
            assert updates.empty()
            assert await subject.server.put_resource(NOTES, text="changed") == 1
            assert await updates.get() == NOTES


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_a_killed_server_is_started_again_for_its_subscription(era: Era, tmp_path: Path) -> None:
    updates: asyncio.Queue[str] = asyncio.Queue()
    async with open_misbehaving("normal", "stdio", tmp_path, era=era) as subject:
        async with await subject.plugin.subscribe(NOTES, updates.put_nowait):
            os.kill(subject.journal.pids[-1], signal.SIGKILL)
            assert await updates.get() == NOTES
        assert len(subject.journal.pids) == 2
        assert _count_subscriptions(subject.requests) == 2
        if era == "legacy":
            assert subject.count("resources/unsubscribe") == 1


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_a_closed_server_that_is_connected_again_has_its_subscriptions_again(era: Era) -> None:
    updates: asyncio.Queue[str] = asyncio.Queue()
    async with FaultyMCPServer(era=era) as remote, create_mcp_plugin(remote_tool(remote.url)) as server:
        await server.subscribe(NOTES, updates.put_nowait)
        await server.disconnect()
        assert updates.empty()
        await server.connect()
        assert await updates.get() == NOTES
        assert _count_subscriptions(remote.requests) == 2


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_a_subscription_that_the_server_refuses_is_an_error_and_can_be_tried_again(era: Era) -> None:
    async with FaultyMCPServer(era=era) as remote, create_mcp_plugin(remote_tool(remote.url)) as server:
        with pytest.raises(MCPError, match="test://later"):
            await server.subscribe("test://later", lambda _: None)
        await remote.put_resource("test://later", text="now")
        async with await server.subscribe("test://later", lambda _: None):
            assert _count_subscriptions(remote.requests) == 2


@async_test
async def test_subscriptions_to_one_server_are_limited_in_number() -> None:
    async with FaultyMCPServer() as remote, create_mcp_plugin(remote_tool(remote.url)) as server:
        for number in range(MAX_SUBSCRIPTIONS):
            await remote.put_resource(f"test://r/{number}", text="r")
            last = await server.subscribe(f"test://r/{number}", lambda _: None)
        with pytest.raises(MCPError, match=f"there are already {MAX_SUBSCRIPTIONS} subscriptions"):
            await server.subscribe(NOTES, lambda _: None)
        await last.close()
        await server.subscribe(NOTES, lambda _: None)


@async_test
async def test_a_listener_that_fails_keeps_neither_others_nor_calls_from_working() -> None:
    updates: asyncio.Queue[str] = asyncio.Queue()

    def fail(_: str) -> None:
        raise RuntimeError("broken listener")

    async with FaultyMCPServer() as remote, create_mcp_plugin(remote_tool(remote.url)) as server:
        await server.subscribe(NOTES, fail)
        await server.subscribe(NOTES, updates.put_nowait)
        await remote.listening()
        await remote.put_resource(NOTES, text="changed")
        assert await updates.get() == NOTES
        assert (await server.call_tool("echo", text="goes on")).text == "goes on"
