"""The settings of a server take effect: names, permissions, encoding, secrets, sessions, containers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from tools.mcp.local_servers import remote_tool, uvx_tool
from tools.mcp.test_supervisor import faulty_tool

from holodeck.lib.redaction import register_secrets
from holodeck.lib.secret import Secret
from holodeck.models.tool import CommandType, MCPTool
from holodeck.testing import ABANDONED, FaultyMCPServer, Journal, stand_in, stand_in_calls
from holodeck.tools.mcp.errors import MCPToolNotFoundError
from holodeck.tools.mcp.factory import create_mcp_plugin
from holodeck.tools.mcp.names import model_names, normalize_tool_name
from holodeck.tools.mcp.protocol.server_requests import Callbacks

LATIN_SERVER = """
import json, sys
lines = open(0, encoding="latin-1", newline="\\n")
for line in lines:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    if asked["method"] == "initialize":
        info = {"name": "latin", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    elif asked["method"] == "tools/list":
        result = {"tools": [{"name": "greet", "inputSchema": {"type": "object"}}]}
    elif asked["method"] == "tools/call":
        text = "caf\\u00e9 " + asked["params"]["arguments"]["to"]
        result = {"content": [{"type": "text", "text": text}]}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    answer = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}, ensure_ascii=False)
    sys.stdout.buffer.write(answer.encode("latin-1") + b"\\n")
    sys.stdout.buffer.flush()
"""


@pytest.mark.proves("000:US2-4")
@async_test
async def test_the_configured_encoding_is_used_in_both_directions(tmp_path: Path) -> None:
    program = tmp_path / "latin.py"
    program.write_text(LATIN_SERVER)
    async with create_mcp_plugin(uvx_tool(tmp_path, program, encoding="latin-1")) as server:
        assert (await server.call_tool("greet", to="Zoë")).text == "café Zoë"


@async_test
async def test_a_setting_under_the_name_of_a_secret_changes_no_message() -> None:
    # As `API_KEY: required` in a file would: the word stands in every schema, and in answers of the protocol.
    register_secrets("required")
    async with FaultyMCPServer() as remote, create_mcp_plugin(remote_tool(remote.url)) as server:
        add = next(info for info in await server.list_tools() if info.name == "add")
        assert add.input_schema["required"] == ["a", "b"]


@pytest.mark.proves("000:FR-015", "000:US4-3")
@async_test
async def test_a_tool_with_a_strange_name_is_called_by_either_name() -> None:
    async with FaultyMCPServer() as remote, create_mcp_plugin(remote_tool(remote.url)) as server:
        info = next(info for info in await server.list_tools() if info.name == "weird.name/x y")
        assert info.model_name == normalize_tool_name(info.name) == "weird-name-x-y"
        assert (await server.call_tool("weird-name-x-y")).success
        assert (await server.call_tool("weird.name/x y")).success


def test_names_stay_apart_and_short() -> None:
    names = model_names(["a.b", "a-b", "a/b", "a_b", "x" * 70, "x" * 71])
    assert names["a_b"] == "a_b"
    assert len(set(names.values())) == 6
    assert all(len(name) <= 64 for name in names.values())
    assert model_names(reversed(list(names))) == names


@async_test
async def test_a_tool_that_is_not_allowed_is_neither_offered_nor_called() -> None:
    async with FaultyMCPServer() as remote:
        tool = remote_tool(remote.url, allowed_tools=["ec*", "add", "fail"], denied_tools=["fail"])
        async with create_mcp_plugin(tool) as server:
            assert {info.name for info in await server.list_tools()} == {"echo", "add"}
            for name in ("fail", "slow"):
                assert isinstance((await server.call_tool(name)).error, MCPToolNotFoundError)
        assert not remote.calls("fail")
        assert not remote.calls("slow")


@async_test
async def test_nothing_is_listed_when_the_file_says_so() -> None:
    async with FaultyMCPServer() as remote:
        async with create_mcp_plugin(remote_tool(remote.url, load_tools=False, load_prompts=False)) as server:
            await server.connect()
            assert await server.list_tools() == []
            assert await server.list_prompts() == []
            assert (await server.call_tool("echo", text="direct")).text == "direct"
        assert not [one for one in remote.requests if one.method.endswith("/list")]


@pytest.mark.parametrize("terminate", [True, False])
@pytest.mark.proves("000:US8-2")
@async_test
async def test_a_session_is_ended_at_the_server_unless_the_file_says_otherwise(terminate: bool) -> None:
    async with FaultyMCPServer() as remote:
        async with create_mcp_plugin(remote_tool(remote.url, terminate_on_close=terminate)) as server:
            await server.connect()
            assert len(remote.sessions) == 1
        assert len(remote.sessions) == (0 if terminate else 1)


@async_test
async def test_a_secret_that_the_server_prints_is_masked_in_errors(tmp_path: Path) -> None:
    program = tmp_path / "leaky.py"
    program.write_text("import os, sys; sys.exit('bad key: ' + os.environ['API_KEY'])")
    tool = uvx_tool(tmp_path, program)
    tool = tool.model_copy(update={"env": {**tool.env, "API_KEY": Secret("hunter2-hunter2")}})
    async with create_mcp_plugin(tool) as server:
        result = await server.call_tool("any")
    assert result.error is not None
    assert "bad key: ***" in str(result.error)
    assert "hunter2" not in str(result.error) + str(result.error.details)


@async_test
async def test_cancelling_the_caller_closes_the_stream_of_a_modern_server() -> None:
    async with FaultyMCPServer(era="modern") as remote, create_mcp_plugin(remote_tool(remote.url)) as server:
        call = asyncio.create_task(server.call_tool("slow", seconds=30))
        await remote.received("tools/call")
        call.cancel()
        await remote.received(ABANDONED)
        assert (await server.call_tool("echo", text="next")).success


@pytest.mark.parametrize("era", ["legacy", "modern"])
@async_test
async def test_cancelling_the_caller_notifies_a_stdio_server(era: Any, tmp_path: Path) -> None:
    async with create_mcp_plugin(faulty_tool(tmp_path, era=era)) as server:
        call = asyncio.create_task(server.call_tool("slow", seconds=30))
        await Journal(tmp_path / "journal").received("tools/call")
        call.cancel()
        assert await Journal(tmp_path / "journal").received("notifications/cancelled")
        assert (await server.call_tool("echo", text="next")).success


@async_test
async def test_changes_are_noticed_again_after_a_modern_server_was_unavailable() -> None:
    changed = asyncio.Event()
    callbacks = Callbacks(on_tools_changed=changed.set)
    async with (
        FaultyMCPServer(era="modern") as remote,
        create_mcp_plugin(remote_tool(remote.url), callbacks=callbacks) as server,
    ):
        await server.connect()
        await remote.listening()
        await remote.go_down()
        await remote.come_up()
        await remote.listening()
        await changed.wait()
        changed.clear()
        name = await remote.grow()
        await changed.wait()
        assert name in [info.name for info in await server.list_tools()]


@async_test
async def test_a_container_is_named_and_removed(tmp_path: Path) -> None:
    path = stand_in(tmp_path, FaultyMCPServer.command(), name="docker")
    tool = MCPTool(
        name="boxed",
        server="example/image",
        command=CommandType.DOCKER,
        env={name: Secret(value) for name, value in path.items()},
        allow_unsafe_args=True,
    )
    async with create_mcp_plugin(tool) as server:
        assert (await server.call_tool("echo", text="inside")).text == "inside"
    run, *rest = stand_in_calls(tmp_path, "docker")
    name = run[run.index("--name") + 1]
    assert ["rm", "-f", name] in rest
