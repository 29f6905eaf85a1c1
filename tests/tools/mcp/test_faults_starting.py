"""A server that does not start: the error of the call names it and how it ended, and the next call tries again."""

from __future__ import annotations

import asyncio
import gc
import shutil
import time
from pathlib import Path

import pytest
from async_tests import async_test
from patience import patience
from tools.mcp.misbehaving_server import (
    ERAS,
    HTTP,
    TRANSPORT_VARIANTS,
    TransportVariant,
    open_misbehaving,
    require_failure,
)

from holodeck.lib.errors import MCPConnectionError, MCPProtocolError, MCPTimeoutError
from holodeck.lib.net.urls import shown_origin
from holodeck.lib.secret import Secret
from holodeck.models.tool import CommandType, MCPTool
from holodeck.testing import Era, stand_in, stand_in_calls
from holodeck.tools.mcp.connection.supervisor import FIRST_BACKOFF, StartLimits
from holodeck.tools.mcp.executor import MCPExecutor
from holodeck.tools.mcp.factory import create_mcp_plugin


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.proves("000:FR-021", "000:EDGE-6", "002:STATE-3", "D-15", "000:SC-003")
@async_test
async def test_a_server_that_dies_at_start_is_reported_with_its_exit_code_and_stderr(tmp_path: Path, era: Era) -> None:
    async with open_misbehaving("dies-at-start", "stdio", tmp_path, era=era, times=1) as subject:
        error = require_failure(await subject.echo(), "npx", "exit code 1", "FATAL: API_KEY is not set")
        assert error.phase == "start"
        assert isinstance(error, MCPConnectionError)
        assert error.details["exit_code"] == 1
        assert error.details["stderr"] == "FATAL: API_KEY is not set"
        assert subject.plugin.state == "error"
        await subject.check_works()  # a fault that has passed is forgotten


@async_test
async def test_a_server_that_dies_silently_is_reported_with_its_exit_code(tmp_path: Path) -> None:
    async with open_misbehaving("dies-at-start-silently", "stdio", tmp_path) as subject:
        error = require_failure(await subject.echo(), "exit code 3", "nothing to standard error")
        assert error.phase == "start"


@pytest.mark.proves("000:US5-1", "000:FR-021")
@async_test
async def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = {"PATH": Secret(str(tmp_path))}
    tool = MCPTool(name="gone", server="gone", command=CommandType.UVX, env=path, allow_unsafe_args=True)
    async with create_mcp_plugin(tool, base_dir=tmp_path) as plugin:
        error = require_failure(await plugin.call_tool("echo"), "'uvx' is not on PATH", "Install uv", server="gone")
        assert error.phase == "start"


@async_test
async def test_a_command_that_may_not_be_executed_is_named(tmp_path: Path) -> None:
    (tmp_path / "uvx").write_text("#!/bin/sh\n")
    (tmp_path / "uvx").chmod(0o644)
    path = {"PATH": Secret(str(tmp_path))}
    tool = MCPTool(name="shut", server="shut", command=CommandType.UVX, env=path, allow_unsafe_args=True)
    async with create_mcp_plugin(tool, base_dir=tmp_path) as plugin:
        require_failure(await plugin.call_tool("echo"), "'uvx' may not be executed", server="shut")


@async_test
async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    async with open_misbehaving("normal", "stdio", tmp_path, fields={"cwd": "nowhere"}) as subject:
        require_failure(await subject.echo(), "nowhere", "Correct 'cwd'")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@pytest.mark.proves("000:EDGE-6", "D-15")
@async_test
async def test_a_server_that_never_answers_fails_in_time(tmp_path: Path, over: TransportVariant, era: Era) -> None:
    fields = {"startup_timeout": 0.8}
    async with open_misbehaving("hangs-at-start", over, tmp_path, era=era, fields=fields) as subject:
        error = require_failure(await subject.echo(), "did not answer within 0.8 s", "startup_timeout")
        assert isinstance(error, MCPTimeoutError)
        assert error.phase == "start"


@async_test
async def test_a_start_that_fails_after_the_tools_were_listed_without_it_is_reported_when_it_fails(
    tmp_path: Path,
) -> None:
    async with open_misbehaving("hangs-at-start", "stdio", tmp_path, fields={"startup_timeout": 0.8}) as subject:
        executor = MCPExecutor([subject.plugin], discovery_timeout=0.01)
        assert await executor.specs() == ()
        assert "has not said yet" in executor.missing_servers()[0].reason
        await asyncio.wait([task for task in asyncio.all_tasks() if task.get_name().startswith("list tools of")])
        assert "did not answer within 0.8 s" in executor.missing_servers()[0].reason


@pytest.mark.parametrize("mode", ["dies-at-start", "dies-at-start-silently"])
@async_test
async def test_a_program_that_ends_by_itself_is_not_started_a_second_time(tmp_path: Path, mode: str) -> None:
    async with open_misbehaving(mode, "stdio", tmp_path) as subject:
        require_failure(await subject.echo(), "exit code")
        assert len(subject.journal.pids) == 1


@async_test
async def test_an_npm_error_is_not_provoked_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_npx = shutil.which("npx")
    assert real_npx is not None
    path = stand_in(tmp_path / "bin", [real_npx, "--yes", "--offline", "no-such-package-for-holodeck"])
    monkeypatch.setenv("PATH", path["PATH"])
    tool = MCPTool(name="typo", server="no-such-package-for-holodeck", command=CommandType.NPX)
    async with create_mcp_plugin(tool, base_dir=tmp_path) as plugin:
        require_failure(await plugin.call_tool("echo"), "npm error", server="typo")
    assert len(stand_in_calls(tmp_path / "bin")) == 1


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", ["stdio", "http", "websocket"])
@async_test
async def test_a_fixed_protocol_sends_no_request_of_the_other_era(
    tmp_path: Path, over: TransportVariant, era: Era
) -> None:
    async with open_misbehaving("normal", over, tmp_path, era=era, fields={"protocol": era}) as subject:
        await subject.check_works()
        assert subject.plugin.era == era
        assert subject.count("initialize" if era == "modern" else "server/discover") == 0


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", ["stdio", "http", "websocket"])
@async_test
async def test_a_server_of_the_other_era_than_the_fixed_one_is_refused_in_words(
    tmp_path: Path, over: TransportVariant, era: Era
) -> None:
    fixed, known = ("legacy", "Its answer: ") if era == "modern" else ("modern", "does not speak 2026-07-28")
    async with open_misbehaving("normal", over, tmp_path, era=era, fields={"protocol": fixed}) as subject:
        require_failure(await subject.echo(), f"'protocol: {fixed}'", known, "Write 'protocol: auto'")
        assert subject.count("server/discover" if fixed == "legacy" else "initialize") == 0


@async_test
async def test_a_server_that_exits_on_the_probe_is_started_once_with_a_fixed_protocol(tmp_path: Path) -> None:
    async with open_misbehaving("exits-on-discover", "stdio", tmp_path, fields={"protocol": "modern"}) as subject:
        require_failure(await subject.echo(), "ExpectedInitializeRequest")
        assert len(subject.journal.pids) == 1
    async with open_misbehaving(
        "exits-on-discover", "stdio", tmp_path, fields={"protocol": "legacy"}, name="old"
    ) as old:
        await old.check_works()
        assert len(old.journal.pids) == 1


@async_test
async def test_a_legacy_event_stream_is_never_probed_for_the_modern_era(tmp_path: Path) -> None:
    async with open_misbehaving("normal", "sse", tmp_path) as subject:
        await subject.check_works()
        await subject.plugin.disconnect()
        await subject.plugin.connect()
        assert subject.count("server/discover") == 0


@pytest.mark.parametrize("over", ["stdio", "websocket"])
@pytest.mark.proves("D-3")
@async_test
async def test_a_server_that_exits_on_the_modern_probe_gets_the_legacy_handshake_from_then_on(
    tmp_path: Path, over: TransportVariant
) -> None:
    async with open_misbehaving("exits-on-discover", over, tmp_path) as subject:
        await subject.check_works()
        assert subject.plugin.era == "legacy"
        if subject.server is None:
            assert len(subject.journal.pids) == 2
        await subject.plugin.disconnect()
        await subject.plugin.connect()
        await subject.check_works()
        assert subject.count("server/discover") == 1
        assert subject.count("initialize") == 2


@pytest.mark.parametrize("over", ["stdio", "websocket", "http"])
@pytest.mark.proves("D-3")
@async_test
async def test_a_server_that_ignores_the_modern_probe_gets_the_legacy_handshake(
    tmp_path: Path, over: TransportVariant
) -> None:
    fields = {"startup_timeout": patience(3)}
    async with open_misbehaving("silent-on-discover", over, tmp_path, on="server/discover", fields=fields) as subject:
        await subject.check_works()
        assert subject.plugin.era == "legacy"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@async_test
async def test_a_server_of_an_unknown_version_has_an_error_of_its_own(
    tmp_path: Path, over: TransportVariant, era: Era
) -> None:
    async with open_misbehaving("unknown-version", over, tmp_path, era=era) as subject:
        error = require_failure(await subject.echo(), "2999-01-01" if era == "modern" else "1999-01-01", "2026-07-28")
        assert isinstance(error, MCPProtocolError)
        assert error.phase == "initialize"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@pytest.mark.proves("000:FR-023")
@async_test
async def test_a_server_that_dies_after_the_handshake_is_started_again(
    tmp_path: Path, over: TransportVariant, era: Era
) -> None:
    async with open_misbehaving("dies-after-init", over, tmp_path, era=era, times=1) as subject:
        result = await subject.echo("first")
        if not result.success:  # a race: the end may or may not be seen before the call is sent
            require_failure(result)
        await subject.check_works()
        assert len(subject.calls("echo")) <= 2


@pytest.mark.parametrize("over", [each for each in TRANSPORT_VARIANTS if each != "stdio"])
@pytest.mark.proves("D-14", "000:FR-021", "002:ERR-5")
@async_test
async def test_a_server_that_is_down_at_first_is_used_when_it_comes_up(tmp_path: Path, over: TransportVariant) -> None:
    async with open_misbehaving("normal", over, tmp_path, down=True) as subject:
        assert subject.server is not None
        error = require_failure(
            await subject.echo(),
            shown_origin(subject.server.url),
            "cannot be reached: Connection refused. Is the server",
        )
        assert error.phase == "connect"
        await subject.server.come_up()
        await subject.check_works()
        await subject.server.go_down()


@pytest.mark.parametrize("over", ["stdio", "http"])
@pytest.mark.proves("D-13", "000:EDGE-2")
@async_test
async def test_callers_that_come_together_share_one_start_and_one_list(tmp_path: Path, over: TransportVariant) -> None:
    async with open_misbehaving("normal", over, tmp_path) as subject:
        results = await asyncio.gather(*(subject.echo(str(number)) for number in range(20)))
        assert [result.text for result in results] == [str(number) for number in range(20)]
        assert subject.count("initialize") == 1
        assert subject.count("tools/list") == 1


@pytest.mark.proves("D-13")
@async_test(30)
async def test_a_server_in_a_crash_loop_gets_a_pause_before_the_next_start(tmp_path: Path) -> None:
    limits = StartLimits(starts=3, window=60, pause=0.5)
    async with open_misbehaving("dies-at-start-silently", "stdio", tmp_path, limits=limits) as subject:
        for pause in (0.0, FIRST_BACKOFF, 2 * FIRST_BACKOFF):  # each try waits longer than the one before
            began = time.monotonic()
            require_failure(await subject.echo(), "exit code 3")
            assert time.monotonic() - began >= pause
        starts = len(subject.journal.pids)
        error = require_failure(await subject.echo(), "unavailable", "exit code 3")
        assert 0 < error.details["retry_after"] <= 0.5
        assert len(subject.journal.pids) == starts
        await asyncio.sleep(error.details["retry_after"])
        require_failure(await subject.echo(), "(start)", "exit code 3")
        assert len(subject.journal.pids) > starts


@pytest.mark.parametrize("over", HTTP)
@async_test
async def test_the_limit_on_starts_also_holds_for_a_server_at_a_url(tmp_path: Path, over: TransportVariant) -> None:
    limits = StartLimits(starts=2, window=60, pause=60)
    async with open_misbehaving("http-500", over, tmp_path, limits=limits) as subject:
        require_failure(await subject.echo(), "HTTP 500")
        require_failure(await subject.echo(), "HTTP 500")
        seen = len(subject.requests)
        require_failure(await subject.echo(), "unavailable", "HTTP 500")
        assert len(subject.requests) == seen


@pytest.mark.proves("D-17")
# A process that is still starting ends by SIGTERM two seconds later; on a busy machine all seven do.
@async_test(90)
async def test_a_start_that_is_cancelled_at_any_moment_leaves_nothing(tmp_path: Path) -> None:
    for passes in (0, 1, 2, 3, 4, 6, 9):
        async with open_misbehaving("normal", "stdio", tmp_path, name=f"early-{passes}") as subject:
            start = asyncio.create_task(subject.plugin.connect())
            for _ in range(passes):
                await asyncio.sleep(0)
            start.cancel()
            with pytest.raises(asyncio.CancelledError):
                await start
            await subject.plugin.close()
            gc.collect()  # an unclosed pipe is a warning here, and a warning is a failure
