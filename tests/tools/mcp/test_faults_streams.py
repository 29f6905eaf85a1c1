"""Answers that are streams, and sessions that end: a cut stream is an error, and one that can be resumed is, once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import pytest
from async_tests import async_test
from tools.mcp.misbehaving_server import (
    ERAS,
    HTTP,
    TRANSPORT_VARIANTS,
    TransportVariant,
    open_misbehaving,
    require_failure,
)

from holodeck.lib.errors import MCPTimeoutError
from holodeck.testing import Era
from holodeck.tools.mcp.protocol.server_requests import Callbacks

SLOW = {"seconds": 60, "steps": 1}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@pytest.mark.proves("004:EDGE-1", "D-16")
@async_test
async def test_an_answer_that_is_cut_off_has_an_unknown_outcome(
    tmp_path: Path, over: TransportVariant, era: Era
) -> None:
    async with open_misbehaving("cut-stream", over, tmp_path, era=era, on="tools/call:add") as subject:
        await subject.check_works()
        error = require_failure(
            await subject.plugin.call_tool("add", a=1, b=2), "not known whether the call took effect"
        )
        assert error.details["outcome"] == "unknown"
        await subject.check_works()
        assert len(subject.calls("add")) == 1


@pytest.mark.proves("D-16", "000:US8-1")
@async_test
async def test_a_legacy_stream_that_ends_early_is_resumed_and_the_call_made_once(tmp_path: Path) -> None:
    async with open_misbehaving("stream-ends", "http", tmp_path, on="tools/call:add") as subject:
        assert (await subject.plugin.call_tool("add", a=1, b=2)).text == "3"
        resumed = [each for each in subject.requests if each.method == "GET" and "last-event-id" in each.headers]
        assert len(resumed) == 1
        assert len(subject.calls("add")) == 1


@pytest.mark.proves("D-16")
@async_test
async def test_a_modern_stream_that_ends_early_is_lost(tmp_path: Path) -> None:
    async with open_misbehaving("stream-ends", "http", tmp_path, era="modern", on="tools/call:add") as subject:
        require_failure(
            await subject.plugin.call_tool("add", a=1, b=2), "ended without the answer", "not known whether"
        )
        await subject.check_works()
        assert len(subject.calls("add")) == 1


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@pytest.mark.proves("D-17")
@async_test
async def test_an_event_of_three_megabytes_is_no_trouble(tmp_path: Path, over: TransportVariant, era: Era) -> None:
    async with open_misbehaving("big-event", over, tmp_path, era=era, on="tools/call:add") as subject:
        assert len((await subject.plugin.call_tool("add", a=1, b=2)).text) == 3 * 1024 * 1024
        await subject.check_works()


@pytest.mark.parametrize("over", HTTP)
@pytest.mark.parametrize("mode", ["session-expires-404", "session-expires-400"])
@pytest.mark.proves("D-16")
@async_test
async def test_a_session_that_the_server_dropped_is_replaced_without_an_error(
    tmp_path: Path, mode: str, over: TransportVariant
) -> None:
    async with open_misbehaving(mode, over, tmp_path) as subject:
        await subject.check_works()
        assert subject.count("initialize") == 2
        await subject.check_works()
        assert subject.count("initialize") == 2


@pytest.mark.parametrize("status", [400, 404])
@pytest.mark.proves("D-13", "D-16")
@async_test
async def test_many_calls_on_a_forgotten_session_share_one_new_session(
    tmp_path: Path, status: Literal[400, 404]
) -> None:
    async with open_misbehaving("normal", "http", tmp_path) as subject:
        assert subject.server is not None
        await subject.check_works()
        subject.server.drop_sessions(status=status)
        results = await asyncio.gather(*(subject.echo(str(number)) for number in range(16)))
        assert [result.text for result in results] == [str(number) for number in range(16)]
        assert subject.count("initialize") == 2


@pytest.mark.parametrize("is_notified", [True, False])
@pytest.mark.proves("000:US8-2", "000:FR-007")
@async_test
async def test_the_end_of_a_session_is_sent_if_the_file_says_so(tmp_path: Path, is_notified: bool) -> None:
    async with open_misbehaving("normal", "http", tmp_path, fields={"terminate_on_close": is_notified}) as subject:
        assert subject.server is not None
        await subject.check_works()
        await subject.plugin.close()
        assert subject.count("DELETE") == int(is_notified)
        assert len(subject.server.sessions) == int(not is_notified)


@pytest.mark.proves("000:US6-3", "000:FR-005")
@async_test
async def test_a_stream_that_never_says_where_to_post_fails_in_time(tmp_path: Path) -> None:
    async with open_misbehaving("no-endpoint", "sse", tmp_path, fields={"timeout": 0.5}) as subject:
        error = require_failure(await subject.echo(), "did not say within 0.5 s", "Is 'url' right?")
        assert isinstance(error, MCPTimeoutError)
        assert error.phase == "connect"


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_a_refused_post_fails_its_call_at_once_and_no_other(tmp_path: Path, era: Era) -> None:
    async with open_misbehaving("post-500", "sse", tmp_path, era=era, on="tools/call:add") as subject:
        assert subject.server is not None
        other = asyncio.create_task(subject.plugin.call("slow", SLOW))
        await subject.wait_received("tools/call")
        error = require_failure(await subject.plugin.call_tool("add", a=1, b=2), "HTTP 500", "out of luck")
        assert error.details["status"] == 500
        await subject.check_works()
        subject.server.release()
        assert (await other).text == "done"


@pytest.mark.proves("000:US6-3", "000:FR-005")
@async_test
async def test_a_stream_that_is_silent_for_too_long_is_closed(tmp_path: Path) -> None:
    async with open_misbehaving("hangs", "sse", tmp_path, fields={"sse_read_timeout": 0.4}, times=1) as subject:
        require_failure(await subject.echo(), "silent for 0.4 s", "sse_read_timeout")
        await subject.check_works()


@pytest.mark.parametrize("over", ["http", "http-sse", "sse", "websocket"])
@pytest.mark.proves("000:FR-016", "D-20")
@async_test
async def test_the_stream_for_changes_is_opened_again_when_it_is_lost(tmp_path: Path, over: TransportVariant) -> None:
    changed = asyncio.Event()
    callbacks = Callbacks(on_tools_changed=changed.set)
    async with open_misbehaving("normal", over, tmp_path, era="modern", callbacks=callbacks) as subject:
        assert subject.server is not None
        await subject.check_works()
        await subject.wait_received("subscriptions/listen")
        await subject.server.go_down()
        await subject.server.come_up()
        if over in ("sse", "websocket"):
            await subject.check_works()  # there the stream is the connection, and that is made on the next use
        await subject.wait_received("subscriptions/listen", 2)
        await subject.server.listening()
        changed.clear()
        name = await subject.server.grow()
        await changed.wait()
        assert name in {info.name for info in await subject.plugin.list_tools()}
