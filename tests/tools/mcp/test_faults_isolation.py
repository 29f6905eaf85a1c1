"""One server's trouble stays its own: others are as quick as ever, and no secret of one is in an error of another."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from pathlib import Path

import pytest
from async_tests import async_test
from patience import patience
from tools.mcp.misbehaving_server import (
    ERAS,
    TRANSPORT_VARIANTS,
    TransportVariant,
    open_misbehaving,
    require_failure,
    wait_all_gone,
)

from holodeck.lib.secret import Secret
from holodeck.models.tool import CommandType, MCPTool
from holodeck.testing import Era, stand_in
from holodeck.tools.mcp.factory import create_mcp_plugin

TELLTALE = "sk-very-secret-4711"


@pytest.mark.parametrize("over", ["stdio", "http"])
@pytest.mark.parametrize("mode", ["hangs-at-start", "dies-at-start", "hangs", "http-500", "huge-stderr"])
@pytest.mark.proves("000:SC-006", "004:SC-004", "D-14")
@async_test(40)
async def test_a_slow_or_dead_server_never_delays_another(tmp_path: Path, mode: str, over: TransportVariant) -> None:
    fields = {"startup_timeout": 1.0, "request_timeout": 1}
    async with (
        open_misbehaving(mode, over, tmp_path, name="bad", fields=fields) as bad,
        open_misbehaving("normal", over, tmp_path, name="good", is_alone=False) as good,
    ):
        await good.check_works()
        trouble = [asyncio.create_task(bad.echo()) for _ in range(4)]
        began = time.monotonic()
        for _ in range(20):
            await good.check_works()
        assert time.monotonic() - began < patience(10), "half of what it takes when each waits for the other"
        for result in await asyncio.gather(*trouble):
            assert result.success or "'bad'" in str(result.error)
        await good.check_works()


@pytest.mark.proves("000:EDGE-7", "001:DEC-8")
@async_test
async def test_the_same_server_under_two_names_is_two_servers(tmp_path: Path) -> None:
    async with (
        open_misbehaving("dies-mid-call", "stdio", tmp_path, name="one", on="tools/call:add") as one,
        open_misbehaving("normal", "stdio", tmp_path, name="two", is_alone=False) as two,
    ):
        await one.check_works()
        await two.check_works()
        require_failure(await one.plugin.call_tool("add", a=1, b=2), server="one")
        assert (await two.plugin.call_tool("add", a=1, b=2)).text == "3"
        assert not set(one.pids()) & set(two.pids())


@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@pytest.mark.proves("000:EDGE-2", "001:DEC-9")
@async_test
async def test_slow_calls_of_one_server_run_side_by_side(tmp_path: Path, over: TransportVariant) -> None:
    async with open_misbehaving("normal", over, tmp_path) as subject:
        slow = [asyncio.create_task(subject.plugin.call("slow", {"seconds": 60, "steps": 1})) for _ in range(32)]
        await subject.wait_received("tools/call", 32)
        await subject.check_works()
        assert (await subject.plugin.call_tool("release")).success
        assert [result.text for result in await asyncio.gather(*slow)] == ["done"] * 32


@pytest.mark.proves("001:PRAC-2", "D-15")
@async_test
async def test_a_secret_that_a_dying_server_prints_is_masked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    blabs = "import os, sys; sys.exit('cannot log in with ' + os.environ['API_KEY'])"
    path = stand_in(tmp_path, [sys.executable, "-c", blabs])["PATH"]
    env = {"PATH": Secret(path), "API_KEY": Secret(TELLTALE)}
    tool = MCPTool(name="blab", server="blab", command=CommandType.NPX, env=env, allow_unsafe_args=True)
    async with create_mcp_plugin(tool, base_dir=tmp_path) as plugin:
        error = require_failure(await plugin.call_tool("echo"), "cannot log in with ***", server="blab")
        assert TELLTALE not in f"{error} {error!r} {error.details} {error.__cause__!r} {error.__context__!r}"
    assert TELLTALE not in caplog.text


@pytest.mark.proves("001:PRAC-2")
@async_test
async def test_a_secret_that_a_server_sends_back_in_an_error_is_masked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    headers = {"Authorization": Secret(f"Bearer {TELLTALE}"), "X-Key": Secret(TELLTALE)}
    async with open_misbehaving("normal", "http", tmp_path, fields={"headers": headers}) as subject:
        error = require_failure(await subject.plugin.call_tool("fail", message=f"no right for {TELLTALE}"), "***")
        assert TELLTALE not in f"{error} {error.details}"
    assert TELLTALE not in caplog.text


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.proves("002:STATE-1", "002:STATE-2", "002:STATE-5")
@async_test
async def test_a_connection_goes_through_its_states_in_order(tmp_path: Path, era: Era) -> None:
    async with open_misbehaving("late", "stdio", tmp_path, era=era) as subject:
        plugin = subject.plugin
        assert plugin.state == "created"
        assert not subject.journal.pids  # nothing starts before its first use
        start = asyncio.create_task(plugin.connect())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert plugin.state == "connecting"
        await start
        assert plugin.state == "connected"
        assert plugin.era == era
        await plugin.disconnect()
        assert plugin.state == "disconnected"
        await plugin.disconnect()
        assert plugin.state == "disconnected"


@pytest.mark.proves("002:STATE-6")
@async_test(30)
async def test_a_server_that_must_be_killed_leaves_its_connection_in_error(tmp_path: Path) -> None:
    async with open_misbehaving("ignores-term", "stdio", tmp_path) as subject:
        await subject.check_works()
        await subject.plugin.disconnect()
        assert subject.plugin.state == "error"
        await wait_all_gone(subject.pids())


@pytest.mark.proves("002:STATE-6")
@async_test
async def test_a_server_that_is_gone_when_its_session_is_ended_leaves_its_connection_in_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with open_misbehaving("normal", "http", tmp_path) as subject:
        await subject.check_works()
        assert subject.server is not None
        await subject.server.go_down()
        await subject.plugin.disconnect()  # it is no fault of the caller
        assert subject.plugin.state == "error"
        assert "mcp.close_failed" in caplog.text
        await subject.server.come_up()
        await subject.plugin.connect()
        await subject.check_works()
        await subject.plugin.disconnect()
        assert subject.plugin.state == "disconnected"
