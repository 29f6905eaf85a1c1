"""A server that dies: the call in flight fails at once and is never repeated silently, and the next call works."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from async_tests import async_test
from patience import patience
from tools.mcp.misbehaving_server import (
    DUPLEX,
    ERAS,
    HTTP,
    TRANSPORT_VARIANTS,
    TransportVariant,
    open_misbehaving,
    require_failure,
    wait_all_gone,
)

from holodeck.lib.errors import MCPConnectionError
from holodeck.lib.net.urls import shown_origin
from holodeck.testing import Era
from holodeck.tools.mcp.protocol.server_requests import Callbacks

SOON = 10.0  # seconds: the calls and the children would take a minute


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@pytest.mark.proves("000:US5-2", "000:FR-023", "004:EDGE-1", "D-13", "D-15", "D-16")
@async_test
async def test_a_call_in_flight_fails_with_an_unknown_outcome_and_the_next_works(
    tmp_path: Path, over: TransportVariant, era: Era
) -> None:
    async with open_misbehaving("dies-mid-call", over, tmp_path, era=era, on="tools/call:add", times=1) as subject:
        await subject.check_works()
        error = require_failure(
            await subject.plugin.call_tool("add", a=1, b=2), "not known whether the call took effect"
        )
        assert isinstance(error, MCPConnectionError)
        assert error.details["outcome"] == "unknown"
        if over == "stdio":
            assert "exit code 1" in str(error)
            assert "the server ran out of luck" in str(error)
            assert error.details["exit_code"] == 1
        await subject.check_works()
        assert subject.plugin.state == "connected"
        assert len(subject.calls("add")) == 1


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@pytest.mark.proves("D-16")
@async_test
async def test_a_call_that_the_operator_calls_idempotent_is_repeated_once(
    tmp_path: Path, over: TransportVariant, era: Era
) -> None:
    fields = {"idempotent_tools": ["ad*"]}
    async with open_misbehaving(
        "dies-mid-call", over, tmp_path, era=era, fields=fields, on="tools/call:add", times=1
    ) as subject:
        result = await subject.plugin.call_tool("add", a=1, b=2)
        assert result.success, result.error
        assert result.text == "3"
        assert len(subject.calls("add")) == 2


@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@pytest.mark.proves("D-16")
@async_test
async def test_a_call_is_repeated_at_most_once_even_if_idempotent(tmp_path: Path, over: TransportVariant) -> None:
    fields = {"idempotent_tools": ["add"]}
    async with open_misbehaving("dies-mid-call", over, tmp_path, on="tools/call:add", fields=fields) as subject:
        require_failure(await subject.plugin.call_tool("add", a=1, b=2))
        assert len(subject.calls("add")) == 2


@pytest.mark.proves("D-13", "D-16")
@async_test
async def test_a_call_that_cannot_have_been_sent_is_repeated_without_an_error(tmp_path: Path) -> None:
    lost = asyncio.Event()
    callbacks = Callbacks(on_message=lambda message: lost.set() if isinstance(message, Exception) else None)
    async with open_misbehaving("normal", "stdio", tmp_path, callbacks=callbacks) as subject:
        await subject.check_works()
        for _ in range(3):
            lost.clear()
            os.kill(subject.journal.pids[-1], signal.SIGKILL)
            await lost.wait()
            assert subject.plugin.state == "error"
            await subject.check_works()
        assert len(subject.calls("echo")) == 4


@pytest.mark.proves("D-13", "D-16")
@async_test
async def test_a_server_that_died_unseen_is_started_again_and_the_call_runs_once(tmp_path: Path) -> None:
    async with open_misbehaving("normal", "stdio", tmp_path) as subject:
        await subject.check_works()
        for _ in range(3):
            os.kill(subject.journal.pids[-1], signal.SIGKILL)
            result = await subject.echo("again")
            if not result.success:  # sent before the end could be seen: then, and only then, its outcome is unknown
                require_failure(result, "signal 9", "not known whether")
                result = await subject.echo("again")
            assert result.text == "again"
        assert len(subject.journal.pids) == 4


@pytest.mark.parametrize("over", [each for each in TRANSPORT_VARIANTS if each != "stdio"])
@pytest.mark.proves("D-13", "D-16")
@async_test
async def test_a_server_that_went_away_between_calls_is_reached_again_when_it_is_back(
    tmp_path: Path, over: TransportVariant
) -> None:
    async with open_misbehaving("normal", over, tmp_path) as subject:
        assert subject.server is not None
        await subject.check_works()
        await subject.server.go_down()
        require_failure(await subject.echo("lost"), shown_origin(subject.server.url))
        await subject.server.come_up()
        await subject.check_works()
        assert "lost" not in [call.params["arguments"]["text"] for call in subject.calls("echo")]


@pytest.mark.parametrize("over", ["stdio"])
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.proves("D-15", "D-17")
@async_test
async def test_every_call_in_flight_fails_at_once_when_the_server_is_killed(
    tmp_path: Path, over: TransportVariant, era: Era
) -> None:
    async with open_misbehaving("normal", over, tmp_path, era=era) as subject:
        await subject.check_works()
        calls = [asyncio.create_task(subject.plugin.call("slow", {"seconds": 60, "steps": 1})) for _ in range(8)]
        await subject.wait_received("tools/call", 9)
        os.kill(subject.journal.pids[-1], signal.SIGKILL)
        async with asyncio.timeout(patience(SOON)):
            for result in await asyncio.gather(*calls):
                error = require_failure(result, "signal 9", "not known whether the call took effect")
                assert error.details["exit_code"] == -signal.SIGKILL
        await subject.check_works()


@pytest.mark.parametrize("over", HTTP)
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.proves("D-15")
@async_test
async def test_over_http_only_the_call_whose_connection_broke_fails(
    tmp_path: Path, over: TransportVariant, era: Era
) -> None:
    async with open_misbehaving("dies-mid-call", over, tmp_path, era=era, on="tools/call:add") as subject:
        assert subject.server is not None
        slow = asyncio.create_task(subject.plugin.call("slow", {"seconds": 60, "steps": 1}))
        await subject.wait_received("tools/call")
        for _ in range(3):
            require_failure(await subject.plugin.call_tool("add", a=1, b=2))
        await subject.check_works()
        subject.server.release()
        assert (await slow).text == "done"


@pytest.mark.proves("D-17", "000:FR-024")
@pytest.mark.parametrize("mode", ["wrapper", "leaves-child", "child-holds-pipe"])
@async_test
async def test_child_processes_of_a_server_end_with_it(tmp_path: Path, mode: str) -> None:
    async with open_misbehaving(mode, "stdio", tmp_path) as subject:
        await subject.check_works()
        pids = subject.pids()
        assert len(set(pids)) == 2
        await subject.plugin.close()
        await wait_all_gone(pids)


@pytest.mark.proves("D-15", "D-17")
@pytest.mark.parametrize("mode", ["leaves-child", "child-holds-pipe"])
@async_test
async def test_a_death_is_seen_although_a_child_lives_on(tmp_path: Path, mode: str) -> None:
    async with open_misbehaving(mode, "stdio", tmp_path) as subject:
        await subject.check_works()
        pids = subject.pids()
        call = asyncio.create_task(subject.plugin.call("slow", {"seconds": 60, "steps": 1}))
        await subject.wait_received("tools/call", 2)
        os.kill(subject.journal.pids[0], signal.SIGKILL)
        async with asyncio.timeout(patience(SOON)):
            require_failure(await call, "signal 9")
        await subject.check_works()
        await wait_all_gone(pids)


@pytest.mark.proves("D-15", "D-17")
@async_test
async def test_the_death_of_the_real_server_behind_a_wrapper_is_seen(tmp_path: Path) -> None:
    async with open_misbehaving("wrapper", "stdio", tmp_path) as subject:
        await subject.check_works()
        call = asyncio.create_task(subject.plugin.call("slow", {"seconds": 60, "steps": 1}))
        await subject.wait_received("tools/call", 2)
        os.kill(subject.journal.pids[0], signal.SIGKILL)
        async with asyncio.timeout(patience(SOON)):
            require_failure(await call, "not known whether the call took effect")
        await subject.check_works()


@pytest.mark.proves("D-17", "000:FR-025")
@pytest.mark.parametrize("mode", ["ignores-eof", "ignores-term"])
@async_test
async def test_a_server_that_will_not_end_is_ended(tmp_path: Path, mode: str) -> None:
    async with open_misbehaving(mode, "stdio", tmp_path) as subject:
        await subject.check_works()
        pids = subject.pids()
        async with asyncio.timeout(patience(SOON)):
            await subject.plugin.close()
        await wait_all_gone(pids)


@pytest.mark.parametrize("over", DUPLEX)
@pytest.mark.proves("000:FR-023", "D-13")
@async_test
async def test_a_server_that_crashes_again_and_again_serves_every_call_in_between(
    tmp_path: Path, over: TransportVariant
) -> None:
    async with open_misbehaving("crash-loop", over, tmp_path, every=3) as subject:
        results = [await subject.echo(str(number)) for number in range(9)]
        failed = [number for number, result in enumerate(results) if not result.success]
        assert failed == [2, 5, 8]
        for number in failed:
            require_failure(results[number], "not known whether the call took effect")
        assert len(subject.calls("echo")) == 9
