"""A server that does not answer: the call ends in time, the server is notified, and other calls are not delayed."""

from __future__ import annotations

import asyncio
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
from tools.mcp.virtual_time import in_virtual_time

from holodeck.lib.errors import MCPTimeoutError
from holodeck.testing import ABANDONED, Era
from holodeck.tools.mcp.protocol.pending_requests import MAX_EXTENDED_CALL

SOON = 0.3
NETWORK: tuple[TransportVariant, ...] = ("http", "http-sse", "sse", "websocket")


def cancellation_notice(over: TransportVariant, era: Era) -> str:
    """The notice with which a server learns that a request was cancelled."""
    return ABANDONED if over in ("http", "http-sse") and era == "modern" else "notifications/cancelled"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@pytest.mark.proves("000:US5-4", "002:ERR-6", "D-15")
@async_test
async def test_a_call_without_an_answer_ends_in_time_and_is_cancelled_at_the_server(
    tmp_path: Path, over: TransportVariant, era: Era
) -> None:
    async with open_misbehaving("hangs", over, tmp_path, era=era, on="tools/call:slow") as subject:
        await subject.plugin.connect()
        slow = asyncio.create_task(subject.plugin.call("slow", {}, timeout=SOON))
        await subject.check_works()  # while the other hangs
        error = require_failure(await slow, f"no answer within {SOON} s", "request_timeout", "not known whether")
        assert isinstance(error, MCPTimeoutError)
        assert error.details["outcome"] == "unknown"
        (cancelled,) = await subject.wait_received(cancellation_notice(over, era))
        if cancelled.method != ABANDONED:
            (call,) = subject.calls("slow")
            assert cancelled.params["requestId"] == call.message["id"]
        await subject.check_works()


@pytest.mark.proves("000:US5-4", "000:FR-012")
@async_test
async def test_the_time_limit_is_the_one_of_the_file(tmp_path: Path) -> None:
    async with open_misbehaving("hangs", "http", tmp_path, fields={"request_timeout": 1}) as subject:
        require_failure(await subject.echo(), "no answer within 1 s")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@pytest.mark.proves("D-15")
@async_test
async def test_cancelling_the_caller_cancels_the_call_at_the_server(
    tmp_path: Path, over: TransportVariant, era: Era
) -> None:
    async with open_misbehaving("normal", over, tmp_path, era=era) as subject:
        call = asyncio.create_task(subject.plugin.call("slow", {"seconds": 60}))
        await subject.wait_received("tools/call")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        (cancelled,) = await subject.wait_received(cancellation_notice(over, era))
        if cancelled.method != ABANDONED:
            assert cancelled.params["requestId"] == subject.calls("slow")[0].message["id"]
        await subject.check_works()


@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@async_test
async def test_an_answer_that_comes_too_late_is_not_taken_for_another(tmp_path: Path, over: TransportVariant) -> None:
    async with open_misbehaving("late", over, tmp_path, on="tools/call:add", times=1) as subject:
        await subject.plugin.connect()
        require_failure(await subject.plugin.call("add", {"a": 1, "b": 1}, timeout=SOON), "no answer within")
        released = await subject.plugin.call_tool("release")
        assert released.text == "released"
        for number in range(5):
            assert (await subject.plugin.call_tool("add", a=number, b=1)).text == str(number + 1)


@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.proves("D-15", "000:EDGE-2")
@async_test
async def test_progress_is_reported_and_extends_the_time_of_a_hanging_call(
    tmp_path: Path, over: TransportVariant, era: Era
) -> None:
    async with open_misbehaving("normal", over, tmp_path, era=era) as subject:
        await subject.plugin.connect()
        steps: list[tuple[float, float | None, str | None]] = []
        result = await subject.plugin.call(
            "slow", {"seconds": 2.4, "steps": 6}, on_progress=lambda *step: steps.append(step), timeout=2
        )
        assert result.success, result.error
        assert steps == [(step, 6, f"step {step}") for step in range(1, 7)]


@pytest.mark.parametrize("over", NETWORK)
@pytest.mark.proves("D-15")
@in_virtual_time
async def test_progress_does_not_extend_a_call_for_ever(tmp_path: Path, over: TransportVariant) -> None:
    async with open_misbehaving("normal", over, tmp_path) as subject:
        await subject.plugin.connect()
        loop = asyncio.get_running_loop()
        began = loop.time()
        result = await subject.plugin.call("slow", {"seconds": 3_000, "steps": 100}, timeout=60)
        require_failure(result, "no answer")
        assert MAX_EXTENDED_CALL <= loop.time() - began < MAX_EXTENDED_CALL + 120


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("over", "mode"),
    [
        ("stdio", "unfinished"),
        ("stdio", "trickle"),
        ("sse", "unfinished"),
        ("sse", "trickle"),
        ("websocket", "unfinished"),
    ],
)
@pytest.mark.proves("D-15")
@async_test
async def test_a_stream_that_stops_in_the_middle_of_a_message_is_replaced(
    tmp_path: Path, mode: str, over: TransportVariant, era: Era
) -> None:
    async with open_misbehaving(mode, over, tmp_path, era=era, on="tools/call:add", times=1) as subject:
        await subject.plugin.connect()
        require_failure(
            await subject.plugin.call("add", {"a": 1, "b": 1}, timeout=SOON), "no answer within", "not known"
        )
        await subject.check_works()
        pids = subject.journal.pids
        await wait_all_gone(pids[:-1])


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.proves("D-15")
@in_virtual_time
async def test_a_websocket_that_stops_in_the_middle_of_a_frame_no_longer_answers_pings_and_is_replaced(
    tmp_path: Path, era: Era
) -> None:
    async with open_misbehaving("unfinished", "websocket", tmp_path, era=era, on="tools/call:add", times=1) as subject:
        require_failure(
            await subject.plugin.call_tool("add", a=1, b=1), "the WebSocket was closed", "not known whether"
        )
        await subject.check_works()


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", ["http", "http-sse"])
@pytest.mark.parametrize("mode", ["unfinished", "trickle"])
@pytest.mark.proves("D-15")
@async_test
async def test_an_http_answer_that_never_ends_fails_in_time_and_harms_no_other(
    tmp_path: Path, mode: str, over: TransportVariant, era: Era
) -> None:
    async with open_misbehaving(mode, over, tmp_path, era=era, on="tools/call:add") as subject:
        await subject.plugin.connect()
        bad = asyncio.create_task(subject.plugin.call("add", {"a": 1, "b": 1}, timeout=SOON))
        await subject.check_works()
        require_failure(await bad, "no answer within", "not known whether the call took effect")
        await subject.wait_received(ABANDONED)
        await subject.check_works()


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@pytest.mark.proves("D-15", "000:FR-025")
@async_test
async def test_closing_ends_every_call_that_is_under_way(tmp_path: Path, over: TransportVariant, era: Era) -> None:
    async with open_misbehaving("normal", over, tmp_path, era=era) as subject:
        calls = [asyncio.create_task(subject.plugin.call("slow", {"seconds": 60})) for _ in range(3)]
        await subject.wait_received("tools/call", 3)
        await subject.plugin.close()
        async with asyncio.timeout(patience(10)):
            for result in await asyncio.gather(*calls):
                require_failure(result, "closed", "not known whether the call took effect")
        assert subject.plugin.state == "disconnected"
        require_failure(await subject.echo(), "it was closed")
        await subject.plugin.connect()
        await subject.check_works()
