"""Sessions of MCP clients in storage: held by one gateway at a time, and found by all until they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from async_tests import async_test

from holodeck.storage.factory import open_store
from holodeck.storage.mcp_sessions import MCPSessionStore, StoredMCPSession
from holodeck.storage.store import ResponseStore

SESSION = StoredMCPSession(id="one", caller_id="key:ada", server="", scope="", state=b'{"version":"2025-11-25"}')


@asynccontextmanager
async def open_stores(folder: Path, url: str, count: int = 2) -> AsyncIterator[list[ResponseStore]]:
    async with AsyncExitStack() as stack:
        stores = [open_store(url, folder=folder) for _ in range(count)]
        for store in stores:
            stack.push_async_callback(store.close)
        yield stores


async def find(store: MCPSessionStore, session_id: str = "one") -> StoredMCPSession:
    found = await store.find_session(session_id)
    assert found is not None
    return found


@pytest.mark.proves("D-38", "D-28")
@async_test
async def test_a_session_is_taken_over_by_one_gateway_once_its_own_has_released_it_or_is_gone(
    tmp_path: Path, url: str
) -> None:
    async with open_stores(tmp_path, url, 3) as stores:
        held, other, third = (store.mcp_sessions for store in stores)
        await held.add_session(SESSION)
        assert await find(other) == replace(SESSION, gateway_id=held.gateway_id)
        assert not await other.take_session("one", 0), "its gateway is alive"
        await held.release_sessions(["one"])
        taken = await asyncio.gather(*(store.take_session("one", 0) for store in (other, third)))
        assert sorted(taken) == [False, True]
        winner, loser = (other, third) if taken[0] else (third, other)
        assert await find(held) == replace(SESSION, gateway_id=winner.gateway_id, epoch=1)
        await stores[1 if taken[0] else 2].close()
        assert not (await find(held)).is_alive
        assert not await loser.take_session("one", 0), "another gateway has had it since"
        assert await loser.take_session("one", 1)
        assert await loser.list_held_sessions() == {"one"}


@pytest.mark.proves("D-38", "D-28")
@async_test
async def test_only_its_gateway_changes_a_session_and_it_is_gone_with_its_caller(tmp_path: Path, url: str) -> None:
    async with open_stores(tmp_path, url) as stores:
        held, other = (store.mcp_sessions for store in stores)
        for session_id, caller_id in (("one", "key:ada"), ("two", "key:eve"), ("three", "jwt:ada")):
            await held.add_session(replace(SESSION, id=session_id, caller_id=caller_id))
        await other.update_session("one", b"{}", "narrow")
        await other.delete_session("one")
        await other.release_sessions(["one"])
        assert await find(other) == replace(SESSION, gateway_id=held.gateway_id)
        await held.update_session("one", b"{}", "narrow")
        assert await find(other) == replace(SESSION, gateway_id=held.gateway_id, state=b"{}", scope="narrow")
        await other.delete_sessions_of({"key:ada", "jwt:"})
        assert await held.list_held_sessions() == {"two"}
        await held.delete_session("two")
        assert await other.find_session("two") is None


@pytest.mark.proves("D-38", "D-28")
@async_test
async def test_messages_of_a_relay_are_read_in_their_order_and_end_with_it(tmp_path: Path, url: str) -> None:
    async with open_stores(tmp_path, url) as stores:
        sender, answering = (store.mcp_sessions for store in stores)
        await answering.add_session(SESSION)
        await sender.open_relay("relay", answering.gateway_id, b"question")
        assert (await answering.list_relays(), await sender.list_relays()) == ({"relay"}, set())
        assert await answering.read_requests({"relay", "other"}) == {"relay": b"question"}
        for number in (1, 2, 3):
            assert await answering.add_message("relay", number, b"%d" % number)
        assert await sender.read_messages(["relay"]) == [("relay", n, b"%d" % n) for n in (1, 2, 3)]
        await sender.delete_messages({"relay": 2})
        assert await sender.read_messages(["relay"]) == [("relay", 3, b"3")]
        await sender.close_relay("relay")
        assert await answering.list_relays() == set()
        assert not await answering.add_message("relay", 4, b"4"), "nobody waits for it"
        assert await sender.read_messages(["relay"]) == []


@pytest.mark.proves("D-38", "D-28")
@async_test
async def test_a_relay_is_lost_with_either_of_its_gateways(tmp_path: Path, url: str) -> None:
    async with open_stores(tmp_path, url, 3) as stores:
        sender, answering, gone = (store.mcp_sessions for store in stores)
        for store in (answering, gone):
            await store.add_session(replace(SESSION, id=str(store.gateway_id)))
        await sender.open_relay("living", answering.gateway_id, b"")
        await sender.open_relay("sent", gone.gateway_id, b"")
        await gone.open_relay("received", answering.gateway_id, b"")
        assert await sender.list_lost_relays() == await answering.list_lost_relays() == set()
        await stores[2].close()
        assert await sender.list_lost_relays() == {"sent"}
        assert await answering.list_lost_relays() == {"received"}
