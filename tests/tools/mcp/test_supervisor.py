"""A server that fails is started again, never too often, and a call that may have taken effect is never made twice."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from tools.mcp.local_servers import remote_tool

from holodeck.lib.secret import Secret
from holodeck.models.tool import CommandType, MCPTool
from holodeck.testing import FaultyMCPServer, Journal, read_pids, stand_in
from holodeck.tools.mcp.connection.connection import ConnectionState
from holodeck.tools.mcp.connection.supervisor import StartLimits
from holodeck.tools.mcp.errors import MCPConnectionError, MCPTimeoutError
from holodeck.tools.mcp.factory import create_mcp_plugin
from holodeck.tools.mcp.protocol.server_requests import Callbacks


def faulty_tool(folder: Path, mode: str = "normal", **options: Any) -> MCPTool:
    """The misbehaving server as a process behind `uvx`; its process ids are in `pids`, its journal in `journal`."""
    fields = {key: options.pop(key) for key in list(options) if key in MCPTool.model_fields}
    command = FaultyMCPServer.command(mode, pid_file=folder / "pids", journal=folder / "journal", **options)
    path = stand_in(folder / "bin", command, name="uvx")
    env = {name: Secret(value) for name, value in path.items()}
    return MCPTool(
        **{
            "name": "faulty",
            "server": "faulty",
            "command": CommandType.UVX,
            "env": env,
            "allow_unsafe_args": True,
            "request_timeout": 3,
            **fields,
        }
    )


def hearing_of(lost: asyncio.Event) -> Callbacks:
    """Callbacks that set the event when the connection is lost."""
    return Callbacks(on_message=lambda message: lost.set() if isinstance(message, Exception) else None)


def starts(folder: Path) -> int:
    return len(Journal(folder / "journal").events("start"))


@pytest.mark.proves("000:US5-2", "000:FR-023", "000:SC-006")
@async_test
async def test_a_killed_server_gives_the_call_an_error_and_the_next_call_works(tmp_path: Path) -> None:
    async with create_mcp_plugin(faulty_tool(tmp_path)) as server:
        await server.connect()
        call = asyncio.create_task(server.call_tool("slow", seconds=30))
        await Journal(tmp_path / "journal").received("tools/call")
        os.kill(read_pids(tmp_path / "pids")[-1], signal.SIGKILL)
        result = await call
        assert isinstance(result.error, MCPConnectionError)
        assert "'faulty'" in str(result.error)
        assert "signal 9" in str(result.error)
        assert result.error.details["outcome"] == "unknown"
        assert (await server.call_tool("echo", text="again")).text == "again"
        assert starts(tmp_path) == 2


@pytest.mark.proves("000:US5-1", "000:FR-021")
@async_test
async def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    tool = faulty_tool(tmp_path).model_copy(update={"env": {"PATH": Secret(str(tmp_path))}})
    async with create_mcp_plugin(tool) as server:
        result = await server.call_tool("echo", text="x")
    assert "'uvx' is not on PATH" in str(result.error)
    assert server.state is ConnectionState.DISCONNECTED


@async_test
async def test_the_error_of_a_server_that_dies_at_start_has_its_stderr(tmp_path: Path) -> None:
    async with create_mcp_plugin(faulty_tool(tmp_path, "dies-at-start")) as server:
        result = await server.call_tool("echo", text="x")
        assert "API_KEY is not set" in str(result.error)
        assert result.error is not None
        assert result.error.details["exit_code"] == 1
        assert server.state is ConnectionState.ERROR


@async_test(30)
async def test_a_server_in_a_crash_loop_is_not_started_for_a_while_and_then_tried_again(tmp_path: Path) -> None:
    limits = StartLimits(starts=2, window=60, pause=0.3)
    async with create_mcp_plugin(faulty_tool(tmp_path, "dies-after-init", era="modern"), limits=limits) as server:
        for _ in range(2):
            assert not (await server.call_tool("echo", text="x")).success
        before = starts(tmp_path)
        refused = await server.call_tool("echo", text="x")
        assert "unavailable" in str(refused.error)
        assert starts(tmp_path) == before
        while "unavailable" in str((await server.call_tool("echo", text="x")).error):
            pass
        assert starts(tmp_path) > before


@async_test
async def test_a_server_that_exits_on_the_modern_probe_is_restarted_in_the_legacy_era(tmp_path: Path) -> None:
    lost = asyncio.Event()
    tool = faulty_tool(tmp_path, "exits-on-discover")
    async with create_mcp_plugin(tool, callbacks=hearing_of(lost)) as server:
        assert (await server.call_tool("echo", text="x")).success
        assert server.era == "legacy"
        assert starts(tmp_path) == 2
        os.kill(read_pids(tmp_path / "pids")[-1], signal.SIGKILL)
        await lost.wait()
        assert (await server.call_tool("echo", text="x")).success
        assert starts(tmp_path) == 3, "the era is remembered: one start was enough"


@async_test
async def test_only_a_tool_marked_idempotent_is_called_again_after_a_loss(tmp_path: Path) -> None:
    once = faulty_tool(tmp_path / "a", "dies-mid-call", times=1)
    async with create_mcp_plugin(once) as server:
        result = await server.call_tool("echo", text="x")
        assert "not known whether the call took effect" in str(result.error)
    twice = faulty_tool(tmp_path / "b", "dies-mid-call", times=1, idempotent_tools=["ec*"])
    async with create_mcp_plugin(twice) as server:
        assert (await server.call_tool("echo", text="x")).text == "x"


@async_test
async def test_a_hung_server_is_started_anew_after_timeouts_in_a_row(tmp_path: Path) -> None:
    lost = asyncio.Event()
    async with create_mcp_plugin(faulty_tool(tmp_path), callbacks=hearing_of(lost)) as server:
        await server.connect()
        pid = read_pids(tmp_path / "pids")[-1]
        os.kill(pid, signal.SIGSTOP)
        for _ in range(2):
            assert isinstance((await server.call("echo", {"text": "x"}, timeout=0.2)).error, MCPTimeoutError)
        await lost.wait()
        assert (await server.call("echo", {"text": "anew"}, timeout=60)).text == "anew"
        assert starts(tmp_path) == 2


@pytest.mark.parametrize("status", [400, 404])
@async_test
async def test_a_dropped_session_is_replaced_without_an_error(status: Any) -> None:
    async with FaultyMCPServer() as faulty_server, create_mcp_plugin(remote_tool(faulty_server.url)) as server:
        assert (await server.call_tool("echo", text="1")).success
        faulty_server.drop_sessions(status=status)
        assert (await server.call_tool("echo", text="2")).text == "2"


@pytest.mark.parametrize("era", ["legacy", "modern"])
@async_test
async def test_a_server_that_was_down_works_when_it_comes_up(era: Any) -> None:
    async with (
        FaultyMCPServer(era=era, down=True) as faulty_server,
        create_mcp_plugin(remote_tool(faulty_server.url)) as server,
    ):
        down = await server.call_tool("echo", text="1")
        assert "cannot be reached" in str(down.error)
        await faulty_server.come_up()
        assert (await server.call_tool("echo", text="2")).success
        await faulty_server.go_down()
        assert not (await server.call_tool("echo", text="3")).success
        await faulty_server.come_up()
        assert (await server.call_tool("echo", text="4")).success


@async_test
async def test_a_refused_request_reports_its_status_and_when_to_retry() -> None:
    async with (
        FaultyMCPServer("http-429", era="modern", on="tools/call", times=1) as faulty_server,
        create_mcp_plugin(remote_tool(faulty_server.url)) as server,
    ):
        refused = await server.call_tool("echo", text="1")
        assert refused.error is not None
        assert (refused.error.details["status"], refused.error.details["retry_after"]) == (429, "7")
        assert (await server.call_tool("echo", text="2")).success


@async_test
async def test_callers_waiting_for_an_abandoned_start_get_an_error_and_are_not_cancelled() -> None:
    async with FaultyMCPServer("hangs-at-start") as hanging, create_mcp_plugin(remote_tool(hanging.url)) as server:
        call = asyncio.create_task(server.call_tool("echo", text="x"))
        await hanging.received("server/discover")
        await server.disconnect()
        result = await call
        assert not result.success
        assert "closed before it was there" in str(result.error)
