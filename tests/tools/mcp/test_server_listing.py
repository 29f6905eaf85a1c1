"""Tools, change notifications and log messages of a server, in every generation of the protocol."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from async_tests import async_test
from counted_calls import CountedFunctions
from gateway.described_server import DescribedServer
from tools.mcp.local_servers import remote_tool

from holodeck.lib.errors import MCPConnectionError
from holodeck.lib.escape import is_plain_json
from holodeck.models.tool import TransportType
from holodeck.testing import Era as ServerEra
from holodeck.testing import Fault, FaultyMCPServer
from holodeck.tools.mcp.factory import create_mcp_plugin
from holodeck.tools.mcp.protocol.server_requests import Callbacks

ERAS: list[ServerEra] = ["legacy", "modern"]
LEVELS = [
    ("debug", logging.DEBUG),
    ("info", logging.INFO),
    ("notice", logging.INFO),
    ("warning", logging.WARNING),
    ("error", logging.ERROR),
    ("critical", logging.CRITICAL),
    ("alert", logging.CRITICAL),
    ("emergency", logging.CRITICAL),
]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.proves("000:SC-008", "000:US4-1", "000:FR-013")
@async_test
async def test_every_tool_on_every_page_is_there(era: ServerEra) -> None:
    async with (
        FaultyMCPServer(Fault.THOUSAND_TOOLS, era=era) as remote,
        create_mcp_plugin(remote_tool(remote.url)) as server,
    ):
        names = [info.name for info in await server.list_tools()]
        assert len(names) == len(set(names)) == 1000
        assert len([one for one in remote.requests if one.method == "tools/list"]) == 10


@async_test
async def test_of_a_list_that_comes_again_only_what_changed_is_built_again_and_no_short_schema_is_walked() -> None:
    changed = asyncio.Event()
    functions = CountedFunctions("holodeck", excluded="holodeck.testing")
    async with (
        FaultyMCPServer(era="legacy") as remote,
        create_mcp_plugin(remote_tool(remote.url), callbacks=Callbacks(on_tools_changed=changed.set)) as server,
    ):
        with functions.watching(), functions.counting() as counts:
            first = await server.list_tools()
            await remote.listening()
            grown = await remote.grow()
            await changed.wait()
            second = await server.list_tools()
    assert grown in {info.name for info in second}
    built = {info.name for info in second if not any(info is before for before in first)}
    assert built == {grown, *(info.name for info in first if not is_plain_json(orjson.dumps(info.raw)))}
    assert counts["tools.mcp.discovery:_build_plain_tool"] == len(first) + len(built)
    assert not counts["lib.json.schema:_count_nodes"]
    assert not counts["lib.json.schema:check_schema_references"]


@async_test
async def test_a_change_from_a_number_to_true_is_seen_and_line_breaks_of_windows_are_replaced() -> None:
    default: dict[str, object] = {"default": 1}
    tool = {"name": "count", "inputSchema": {"type": "object", "properties": {"n": default}}}
    broken = {"name": "broken", "description": "one\r\ntwo", "inputSchema": {"type": "object"}}
    async with (
        DescribedServer(tool, broken).serve() as remote,
        create_mcp_plugin(remote_tool(remote.url)) as server,
    ):
        for value in (1, True):
            default["default"] = value
            count, lines = await server.list_tools()
            assert count.input_schema["properties"]["n"]["default"] is value
            assert lines.description == lines.raw["description"] == "one\ntwo"
            # The next connection lists again.
            await server.sleep()


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
@pytest.mark.proves("001:DEC-2", "D-3", "000:FR-002")
@async_test
async def test_servers_of_every_older_version_are_used(version: str) -> None:
    changed = asyncio.Event()
    callbacks = Callbacks(on_tools_changed=changed.set)
    async with (
        FaultyMCPServer(protocol_version=version) as remote,
        create_mcp_plugin(remote_tool(remote.url), callbacks=callbacks) as server,
    ):
        assert (await server.call_tool("add", a=2, b=3)).text == "5"
        assert server.protocol_version == version
        assert "f()" in (await server.get_prompt("review", code="f()")).text
        await remote.listening()
        grown = await remote.grow()
        await changed.wait()
        assert grown in [info.name for info in await server.list_tools()]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.proves("D-3", "D-13")
@async_test
async def test_the_era_of_a_server_is_remembered_when_it_was_unavailable(era: ServerEra) -> None:
    lost = asyncio.Event()
    callbacks = Callbacks(on_message=lambda message: lost.set() if isinstance(message, Exception) else None)
    async with FaultyMCPServer(era=era, transport="websocket") as remote:
        async with create_mcp_plugin(remote_tool(remote.url, TransportType.WEBSOCKET), callbacks=callbacks) as server:
            assert (await server.call_tool("echo", text="before")).success
            await remote.go_down()
            await lost.wait()
            await remote.come_up()
            assert (await server.call_tool("echo", text="after")).success
        handshakes = [one.method for one in remote.requests if one.method in ("server/discover", "initialize")]
    again = "server/discover" if era == "modern" else "initialize"
    assert handshakes == ["server/discover", *(["initialize"] if era == "legacy" else []), again]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.proves("000:FR-016", "002:STATE-4", "D-20")
@async_test
async def test_a_change_of_the_prompts_is_noticed(era: ServerEra) -> None:
    changed = asyncio.Event()
    callbacks = Callbacks(on_prompts_changed=changed.set)
    async with (
        FaultyMCPServer(era=era) as remote,
        create_mcp_plugin(remote_tool(remote.url), callbacks=callbacks) as server,
    ):
        await server.connect()
        await remote.listening()
        before = len([one for one in remote.requests if one.method == "prompts/list"])
        await remote.push("notifications/prompts/list_changed")
        await changed.wait()
        await server.list_prompts()
        assert len([one for one in remote.requests if one.method == "prompts/list"]) > before
        assert server.state.name == "CONNECTED"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("word", "level"), LEVELS)
@pytest.mark.proves("000:FR-027", "000:EDGE-8", "001:PRAC-1", "D-20")
@async_test
async def test_each_level_of_a_server_is_a_level_of_python(
    era: ServerEra, word: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="holodeck.mcp.server.remote")
    async with FaultyMCPServer(era=era) as remote, create_mcp_plugin(remote_tool(remote.url)) as server:
        assert (await server.call_tool("log", level=word, text="what happened")).success
    logged = [
        (record.levelno, record.getMessage()) for record in caplog.records if record.name.endswith("server.remote")
    ]
    assert logged == [(level, "faulty: what happened")]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("level", ["debug", "warning"])
@pytest.mark.proves("001:PRAC-1")
@async_test
async def test_a_server_is_set_to_the_log_level_that_is_shown(
    era: ServerEra, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(level.upper(), logger="holodeck.mcp.server.remote")
    async with FaultyMCPServer(era=era) as remote, create_mcp_plugin(remote_tool(remote.url)) as server:
        assert (await server.call_tool("echo", text="x")).success
        if era == "legacy":
            (request,) = await remote.received("logging/setLevel")
            assert request.params["level"] == level
        else:
            (call,) = remote.calls("echo")
            assert call.params["_meta"]["io.modelcontextprotocol/logLevel"] == level


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.proves("000:FR-028")
@async_test
async def test_a_listener_receives_notifications_and_failures(era: ServerEra) -> None:
    messages: list[Mapping[str, Any] | Exception] = []
    failed = asyncio.Event()

    def listen(message: Mapping[str, Any] | Exception) -> None:
        messages.append(message)
        if isinstance(message, Exception):
            failed.set()

    callbacks = Callbacks(on_message=listen)
    async with FaultyMCPServer(era=era, transport="websocket") as remote:
        tool = remote_tool(remote.url, TransportType.WEBSOCKET)
        async with create_mcp_plugin(tool, callbacks=callbacks) as server:
            assert (await server.call_tool("log", level="warning", text="careful")).success
            await remote.go_down()
            await failed.wait()
    notices = [message for message in messages if isinstance(message, Mapping)]
    assert "careful" in [notice["params"].get("data") for notice in notices if "params" in notice]
    (failure,) = [message for message in messages if isinstance(message, Exception)]
    assert isinstance(failure, MCPConnectionError)
