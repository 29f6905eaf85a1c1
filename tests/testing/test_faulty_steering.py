"""A test steers the server while it runs: down and up, sessions, notices, slow calls, over every network transport."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import websockets
from mcp import Client
from mcp_types import TextContent
from testing.raw_pipes import TIMEOUT, build_request

from holodeck.testing import ABANDONED, Era, Fault, FaultyMCPServer

both_eras = pytest.mark.parametrize("era", ["legacy", "modern"])


@both_eras
def test_a_server_is_down_at_first_comes_up_goes_down_and_comes_up_on_the_same_port(era: Era) -> None:
    async def answers(server: FaultyMCPServer) -> bool:
        try:
            async with aiohttp.ClientSession() as client, client.post(server.url, json={"method": "x"}):
                return True
        except aiohttp.ClientConnectorError:
            return False

    async def main() -> None:
        async with FaultyMCPServer(era=era, down=True) as server:
            url, outcomes = server.url, [await answers(server)]
            for change in (server.come_up, server.go_down, server.come_up):
                await change()
                outcomes.append(await answers(server))
            assert outcomes == [False, True, False, True]
            assert server.url == url

    asyncio.run(main())


@both_eras
def test_going_down_cuts_the_call_in_flight(era: Era) -> None:
    async def main() -> None:
        async with FaultyMCPServer(Fault.HANGS, era=era) as server, aiohttp.ClientSession() as client:
            message = build_request(1, "initialize" if era == "legacy" else "server/discover", era)
            server.misbehave(Fault.HANGS_AT_START)
            headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": message["method"]}
            call = asyncio.ensure_future(client.post(server.url, json=message, headers=headers))
            await server.received(message["method"])
            await server.go_down()
            with pytest.raises(aiohttp.ClientError):
                await asyncio.wait_for(call, TIMEOUT)

    asyncio.run(main())


@both_eras
def test_a_slow_call_is_released_from_the_test(era: Era) -> None:
    async def main() -> None:
        async with FaultyMCPServer(era=era) as server, Client(server.url) as client:
            slow = asyncio.create_task(client.call_tool("slow", {"seconds": 500, "steps": 2}))
            (received,) = await server.received("tools/call", name="slow")
            assert received.params["arguments"] == {"seconds": 500, "steps": 2}
            server.release()
            (block,) = (await asyncio.wait_for(slow, TIMEOUT)).content
            assert isinstance(block, TextContent)
            assert block.text == "done"

    asyncio.run(main())


@both_eras
def test_a_call_that_its_client_gives_up_is_seen_by_the_server(era: Era) -> None:
    async def main() -> None:
        async with FaultyMCPServer(Fault.HANGS, era=era) as server, Client(server.url) as client:
            call = asyncio.create_task(client.call_tool("echo", {"text": "x"}))
            await server.received("tools/call")
            call.cancel()
            await server.received(ABANDONED if era == "modern" else "notifications/cancelled")

    asyncio.run(main())


def test_a_push_reaches_the_stream_of_a_legacy_session_until_the_session_is_dropped() -> None:
    async def main() -> None:
        async with FaultyMCPServer() as server, aiohttp.ClientSession() as client:
            body = build_request(1, "initialize", "legacy", protocolVersion="2025-11-25", capabilities={})
            async with client.post(server.url, json=body) as answer:
                session = {"Mcp-Session-Id": answer.headers["Mcp-Session-Id"]}
            assert list(server.sessions) == [session["Mcp-Session-Id"]]
            async with asyncio.timeout(TIMEOUT), client.get(server.url, headers=session) as stream:
                await server.listening()
                pushing = asyncio.create_task(server.push("notifications/tools/list_changed", times=10_000))
                lines = [await stream.content.readline() for _ in range(30_000)]
                assert sum(b"tools/list_changed" in line for line in lines) == 10_000
                assert await pushing == 1
                server.drop_sessions(status=400)
                assert await stream.content.read() == b""
            async with client.get(server.url, headers=session) as stream:
                assert stream.status == 400

    asyncio.run(main())


@both_eras
def test_a_tool_can_be_added_from_the_test(era: Era) -> None:
    async def main() -> None:
        async with FaultyMCPServer(era=era) as server, Client(server.url) as client:
            name = await server.grow()
            assert name in {tool.name for tool in (await client.list_tools()).tools}
            assert (await client.call_tool(name, {})).content

    asyncio.run(main())


class RawSocket:
    """A client of frames only."""

    def __init__(self, socket: websockets.ClientConnection, era: Era) -> None:
        self._socket = socket
        self._era: Era = era

    async def ask(self, method: str, **params: Any) -> Any:
        await self._socket.send(json.dumps(build_request(1, method, self._era, **params)))
        return json.loads(await asyncio.wait_for(self._socket.recv(), TIMEOUT))

    async def begin(self) -> Any:
        if self._era == "modern":
            return await self.ask("server/discover")
        return await self.ask("initialize", protocolVersion="2025-11-25", capabilities={})


@asynccontextmanager
async def raw_socket(era: Era, mode: Fault) -> AsyncIterator[RawSocket]:
    protocol = websockets.Subprotocol("mcp")
    async with (
        FaultyMCPServer(mode, era=era, transport="websocket") as server,
        websockets.connect(server.url, subprotocols=[protocol], max_size=None) as socket,
    ):
        assert socket.subprotocol == "mcp"
        yield RawSocket(socket, era)


ECHO: dict[str, Any] = {"name": "echo", "arguments": {"text": "hello"}}


@both_eras
def test_it_answers_over_websocket(era: Era) -> None:
    async def main() -> None:
        async with raw_socket(era, Fault.NORMAL) as socket:
            assert "result" in await socket.begin()
            assert (await socket.ask("tools/call", **ECHO))["result"]["content"][0]["text"] == "hello"

    asyncio.run(main())


@both_eras
@pytest.mark.parametrize("mode", [Fault.DIES_MID_CALL, Fault.CUT_STREAM, Fault.INVALID_UTF8])
def test_a_websocket_breaks_in_the_middle_of_a_call(mode: Fault, era: Era) -> None:
    async def main() -> None:
        async with raw_socket(era, mode) as socket:
            await socket.begin()
            with pytest.raises(websockets.ConnectionClosedError):
                await socket.ask("tools/call", **ECHO)

    asyncio.run(main())


def test_a_websocket_is_refused_with_a_status() -> None:
    async def main() -> None:
        async with FaultyMCPServer(Fault.HTTP_503, transport="websocket") as server:
            with pytest.raises(websockets.InvalidStatus):
                await websockets.connect(server.url)

    asyncio.run(main())


def test_a_legacy_stream_of_events_never_says_where_to_post() -> None:
    async def main() -> None:
        async with FaultyMCPServer(Fault.NO_ENDPOINT, transport="sse") as server, aiohttp.ClientSession() as client:
            async with client.get(server.url) as stream:
                assert stream.content_type == "text/event-stream"
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(stream.content.readline(), 0.2)
            await server.received(ABANDONED)

    asyncio.run(main())


def test_a_legacy_post_fails_and_nothing_comes_on_the_stream() -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(TIMEOUT),
            FaultyMCPServer(Fault.POST_500, transport="sse") as server,
            aiohttp.ClientSession() as client,
            client.get(server.url) as stream,
        ):
            await stream.content.readline()
            path = (await stream.content.readline()).decode().strip().removeprefix("data: ")
            endpoint = f"http://127.0.0.1:{server.port}{path}"
            begin = build_request(1, "initialize", "legacy", protocolVersion="2025-11-25", capabilities={})
            outcomes = []
            for message in (begin, build_request(2, "tools/call", "legacy", **ECHO)):
                async with client.post(endpoint, json=message) as answer:
                    outcomes.append(answer.status)
            assert outcomes == [202, 500]

    asyncio.run(main())
