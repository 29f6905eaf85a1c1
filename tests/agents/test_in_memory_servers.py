"""MCP servers of the same program, built with the official SDK and used without a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from async_tests import async_test
from mcp.server import MCPServer as SDKServer
from mcp.server import Server, ServerRequestContext
from mcp.server.mcpserver import Context
from mcp.types import CallToolResult, ListToolsResult, TextContent
from mcp.types import Tool as SDKTool

from holodeck import Agent, ConfigError, MCPServer
from holodeck.lib.errors import MCPConfigError, MCPConnectionError, MCPError, MCPTimeoutError, MCPToolError
from holodeck.testing import ScriptedModel, call, cassette, say


class Shop:
    """A server whose tools wait until the test lets them go on."""

    def __init__(self) -> None:
        self.lives: list[str] = []
        self.waiting = asyncio.Queue[str]()
        self.go_on = asyncio.Event()
        self.ended: list[str] = []
        self.server = SDKServer("Book shop", lifespan=self._live)
        self.server.add_tool(self.price)
        self.server.add_tool(self.wait)
        self.server.add_tool(self.fail)
        self.server.add_tool(self.grow)

    def price(self, book: str) -> str:
        """Price of a book."""
        return f"{book} costs 9 euros"

    async def wait(self, mark: str, ctx: Context[Any]) -> str:
        await ctx.report_progress(1, 2, mark)
        self.waiting.put_nowait(mark)
        try:
            await self.go_on.wait()
        finally:
            self.ended.append(mark)
        return mark

    def fail(self) -> str:
        raise ValueError("no such book")

    async def grow(self, ctx: Context[Any]) -> str:
        self.server.add_tool(lambda: "new", name="grown", description="It was not there before.")
        await ctx.notify_tools_changed()
        # The line above reaches clients of the modern era only.
        await ctx.session.send_tool_list_changed()
        return "grown"

    @asynccontextmanager
    async def _live(self, _: SDKServer) -> AsyncIterator[None]:
        self.lives.append("begin")
        yield
        self.lives.append("end")


def low_level_server() -> Server[Any]:
    async def list_tools(_: ServerRequestContext[Any], __: Any) -> ListToolsResult:
        return ListToolsResult(tools=[SDKTool(name="ping_me", input_schema={"type": "object"})])

    async def call_tool(_: ServerRequestContext[Any], __: Any) -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text="pong")])

    return Server("low", on_list_tools=list_tools, on_call_tool=call_tool)


@pytest.mark.parametrize("protocol", ["auto", "legacy", "modern"])
@async_test
async def test_an_agent_uses_a_server_of_its_own_program_in_each_era(protocol: Any) -> None:
    shop = Shop()
    server = MCPServer.in_memory(shop.server, protocol=protocol)
    model = ScriptedModel(call("price", book="Emma"), say("9"), call("price", book="Persuasion"), say("also 9"))
    async with Agent(model, tools=[server]) as agent:
        assert (await agent.run("Emma?")).output == "9"
        assert (await agent.run("Persuasion?")).output == "also 9"
        assert server.info.name == "Book shop"
        assert shop.lives == ["begin"]
    assert server.name == "book_shop"
    assert shop.lives == ["begin", "end"]
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


def test_run_sync_uses_it_again_and_again() -> None:
    server = MCPServer.in_memory(low_level_server())
    agent = Agent(ScriptedModel(call("ping_me"), say("one"), call("ping_me"), say("two")), tools=[server])
    assert [agent.run_sync("Hi").output, agent.run_sync("Hi").output] == ["one", "two"]
    with server:
        assert server.call_sync("ping_me").text == "pong"


@async_test
async def test_calls_at_once_and_their_progress() -> None:
    shop, reports = Shop(), list[str | None]()
    async with MCPServer.in_memory(shop.server) as server:
        calls = [
            asyncio.create_task(
                server.call_tool("wait", {"mark": mark}, on_progress=lambda *report: reports.append(report[2]))
            )
            for mark in "abc"
        ]
        assert {await shop.waiting.get() for _ in calls} == set("abc")
        shop.go_on.set()
        assert [result.text for result in await asyncio.gather(*calls)] == ["a", "b", "c"]
    assert sorted(map(str, reports)) == ["a", "b", "c"]


@async_test
async def test_a_cancelled_call_and_one_that_takes_too_long_end_in_the_server() -> None:
    shop = Shop()
    async with MCPServer.in_memory(shop.server) as server:
        cancelled = asyncio.create_task(server.call("wait", mark="cancelled"))
        await shop.waiting.get()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        with pytest.raises(MCPTimeoutError):
            await server.call_tool("wait", {"mark": "late"}, timeout=0.2)
        assert (await server.call("price", book="Emma")).text == "Emma costs 9 euros"
    assert shop.ended == ["cancelled", "late"]


@async_test
async def test_a_server_is_closed_while_a_call_is_pending() -> None:
    shop = Shop()
    server = MCPServer.in_memory(shop.server)
    await server.connect()
    pending = asyncio.create_task(server.call("wait", mark="pending"))
    await shop.waiting.get()
    pending.cancel()
    await server.close()
    await asyncio.wait({pending})
    assert (shop.ended, shop.lives) == (["pending"], ["begin", "end"])
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


@async_test
async def test_a_tool_that_raises_is_an_error_of_the_call() -> None:
    async with MCPServer.in_memory(Shop().server) as server:
        with pytest.raises(MCPToolError, match="Error executing tool fail"):
            await server.call("fail")
        assert (await server.call("price", book="Emma")).success


@async_test
async def test_new_tools_are_announced() -> None:
    changed = asyncio.Event()
    async with MCPServer.in_memory(Shop().server, on_tools_changed=changed.set) as server:
        assert "grown" not in {tool.name for tool in await server.tools()}
        await server.call("grow")
        await changed.wait()
        assert "grown" in {tool.name for tool in await server.tools()}


@async_test
async def test_a_server_that_cannot_start_says_why() -> None:
    @asynccontextmanager
    async def break_down(_: SDKServer) -> AsyncIterator[None]:
        async with anyio.create_task_group():
            raise LookupError("the database is not there")
        yield

    with pytest.raises(MCPConnectionError, match="LookupError: the database is not there"):
        await MCPServer.in_memory(SDKServer("broken", lifespan=break_down)).connect()


@async_test
async def test_options_hold_as_for_other_servers() -> None:
    async with MCPServer.in_memory(Shop().server, name="shop", denied_tools=["fail"]) as server:
        assert {tool.name for tool in await server.tools()} == {"price", "wait", "grow"}
        with pytest.raises(MCPError, match="fail"):
            await server.call("fail")


def test_a_recording_is_replayed_without_the_server(tmp_path: Path) -> None:
    shop, path = Shop(), tmp_path / "run.yaml"
    for lives in (["begin", "end"], ["begin", "end"]):
        with cassette(path):
            model = ScriptedModel(call("price", book="Emma"), say("9"))
            agent = Agent(model, tools=[MCPServer.in_memory(shop.server)])
            assert agent.run_sync("Emma?").output == "9"
        assert shop.lives == lives


def test_an_object_that_is_no_server_is_refused() -> None:
    for other in (print, "server.py", Shop):
        with pytest.raises(MCPConfigError, match=r"is no MCP server: give MCPServer\.in_memory an 'MCPServer'"):
            MCPServer.in_memory(other)
    with pytest.raises(MCPConfigError, match="Did you mean 'denied_tools'"):
        MCPServer.in_memory(low_level_server(), denied_tool=["x"])  # type: ignore[call-arg]


def test_an_agent_file_cannot_have_it() -> None:
    agent = Agent("rehearsal", tools=[MCPServer.in_memory(Shop().server)])
    with pytest.raises(ConfigError, match="'book_shop', which is an object of the program"):
        agent.to_yaml()
