"""MCP clients of a gateway notice when its servers change, and a withdrawn key ends their sessions."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from async_tests import async_test
from gateway.config_entries import ALICE, BOB, keys, server
from gateway.mcp_endpoint.raw_client import build_call, build_modern_request, build_request, raw_client, read_events
from gateway.running_gateway import run_gateway

from holodeck.gateway.auth.callers import hash_key
from holodeck.testing import FaultyMCPServer


@async_test
async def test_clients_are_told_of_a_server_that_is_added_and_can_use_it(tmp_path: Path) -> None:
    async with FaultyMCPServer() as mcp, run_gateway(tmp_path) as gateway, raw_client(gateway) as client:
        await client.initialize()
        assert (await client.request("tools/list"))["tools"] == []
        async with client.open_stream() as reply:
            assert await gateway.reload(mcp_servers=[server("added", mcp.url)])
            told = [message async for _, message in _take(read_events(reply), 3) if message is not None]
        assert "notifications/tools/list_changed" in [message["method"] for message in told]
        assert "add" in {tool["name"] for tool in (await client.request("tools/list"))["tools"]}
        result = await client.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}})
        assert result["content"][0]["text"] == "2"
        assert await gateway.reload(mcp_servers=[])
        assert (await client.request("tools/list"))["tools"] == []
        async with raw_client(gateway, path="/mcp/added") as other:
            assert (await other.send(build_request("tools/list")))[0] == 404


async def _take(events: Any, count: int) -> Any:
    for _ in range(count):
        yield await anext(events)


@async_test
async def test_a_call_finishes_on_the_server_that_was_removed(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer() as mcp,
        run_gateway(tmp_path, mcp={"tools": mcp}, limits={"drain_seconds": 60}) as gateway,
        raw_client(gateway) as client,
    ):
        await client.initialize()
        calling = asyncio.create_task(client.send(build_call("echo", text="late"), accept="application/json"))
        mcp.mode = "late"
        await mcp.received("tools/call")
        assert await gateway.reload(mcp_servers=[])
        mcp.release()
        _, answer = await calling
        assert answer["result"]["content"][0]["text"] == "late"


@async_test
async def test_a_withdrawn_key_ends_its_sessions_and_streams_and_no_others(tmp_path: Path) -> None:
    new = "hd-alice-2"
    async with (
        FaultyMCPServer() as mcp,
        run_gateway(tmp_path, mcp={"tools": mcp}, keys=[ALICE, BOB]) as gateway,
        raw_client(gateway, key=ALICE) as alice,
        raw_client(gateway, key=new) as renewed,
        raw_client(gateway, key=BOB) as bob,
    ):
        await alice.initialize()
        await bob.initialize()
        async with alice.open_stream() as reply:
            waiting = asyncio.create_task(alice.send(build_call("slow", seconds=60), accept="application/json"))
            await mcp.received("tools/call")
            assert await gateway.reload(keys=[{"name": ALICE, "hash": hash_key(new)}, *keys(BOB)])
            assert (await waiting)[0] == 401
            # Cut, or ended: what matters is that it does not go on.
            with suppress(aiohttp.ClientPayloadError):
                await reply.content.read()
        assert (await alice.send(build_request("tools/list")))[0] == 401
        renewed.session_id = alice.session_id
        assert (await renewed.send(build_request("tools/list")))[0] == 404, "the session has ended with its key"
        assert (await bob.request("tools/list"))["tools"]


@async_test(60)
async def test_a_list_waits_for_a_server_that_is_starting_and_says_so(tmp_path: Path) -> None:
    async with FaultyMCPServer("late", era="legacy", on="initialize") as late, FaultyMCPServer() as other:
        entries = [server("late", late.url, startup_timeout=60), server("other", other.url)]
        async with (
            run_gateway(tmp_path, mcp_servers=entries, limits={"discovery_seconds": 0.1}) as gateway,
            raw_client(gateway) as client,
        ):
            await client.initialize()
            listing = build_request("tools/list", {"_meta": {"progressToken": "list"}})
            async with client.post(listing) as reply:
                events = read_events(reply)
                told = [message async for _, message in _take(events, 2) if message is not None]
                assert told[0]["params"]["message"] == "Waiting for late to start"
                late.release()
                *_, (_, answer) = [each async for each in events]
            names = {tool["name"] for tool in answer["result"]["tools"]}
            assert {"add", "other__add"} <= names
            assert "_meta" not in answer["result"]


LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


@async_test(60)
async def test_a_list_names_the_servers_that_are_missing_and_clients_hear_when_they_are_there(tmp_path: Path) -> None:
    missing = "dev.holodeck/missing_servers"
    wanted = {f"{area}ListChanged": True for area in ("tools", "prompts", "resources")}
    listen, headers = build_modern_request("subscriptions/listen", {"notifications": wanted})
    async with FaultyMCPServer() as up, FaultyMCPServer() as down:
        await down.go_down()
        entries = [server("up", up.url), server("down", down.url)]
        async with (
            run_gateway(tmp_path, mcp_servers=entries) as gateway,
            raw_client(gateway, version="2026-07-28") as client,
            raw_client(gateway, version="2026-07-28", path="/mcp/down") as alone,
        ):
            for method, key in LISTS.items():
                listed = await client.request_modern(method)
                assert listed[key], "one that is down takes nothing of the others away"
                assert list(listed["_meta"][missing]) == ["down"], method
                assert listed["ttlMs"] == 0
                refused = await alone.request_modern(method)
                assert "no server is there: Server 'down'" in refused["message"], method
            unknown = await alone.request_modern("tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}})
            assert unknown["message"].startswith("Unknown tool: add. Not there at this moment: Server 'down'")
            async with client.post(listen, **headers) as reply:
                lines = (line async for line in reply.content if line.startswith(b"data: "))
                assert b"acknowledged" in await anext(lines)
                await down.come_up()
                told = {orjson.loads((await anext(lines)).removeprefix(b"data: "))["method"] for _ in range(3)}
            assert told == {f"notifications/{area}/list_changed" for area in ("tools", "prompts", "resources")}
            for method, key in LISTS.items():
                listed = await alone.request_modern(method)
                assert listed[key], method
                assert "_meta" not in listed


@async_test(60)
async def test_clients_are_told_of_no_change_that_did_not_happen(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer(era="legacy") as legacy,
        FaultyMCPServer(era="modern") as modern,
        run_gateway(
            tmp_path, mcp={"legacy": legacy, "modern": modern}, scopes={ALICE: {}, BOB: {"servers": ["legacy"]}}
        ) as gateway,
        raw_client(gateway, key=ALICE) as client,
    ):
        await client.initialize()
        for method in LISTS:
            await client.request(method)
        assert (await client.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}}))["content"]
        await legacy.listening()
        await modern.listening()
        async with raw_client(gateway, key=ALICE, path="/mcp/legacy") as alone, raw_client(gateway, key=BOB) as bob:
            await alone.initialize()
            await bob.initialize()
            await modern.grow()
            async with client.open_stream() as reply:
                _, told = await anext(read_events(reply))
            assert told["method"] == "notifications/tools/list_changed"
            await legacy.put_resource("test://new.txt", text="New.")
            for each in (alone, bob):
                async with each.open_stream() as reply:
                    _, told = await anext(read_events(reply))
                assert told["method"] == "notifications/resources/list_changed", "the other server is none of theirs"
