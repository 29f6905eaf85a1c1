"""A message that is wrong on the wire fails the one call that it answers, with the raw text; all others go on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aio import aio
from tools.mcp.misbehaving import DUPLEX, ERAS, HTTP, OVER, Over, failure, misbehaving

from holodeck.lib.errors import MCPProtocolError
from holodeck.lib.limits import MAX_RAW_SHOWN
from holodeck.testing import Era

SLOW = {"seconds": 60, "steps": 1}
BROKEN = {
    "invalid-utf8": "caf",
    "lone-surrogate": "half",
    "deep-nesting": "[[[[",
    "not-a-result": "a string",
    "protocol-error": "Internal error",
}
"""Modes that make one answer unusable, with a word of it that the error must show."""


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", OVER)
@pytest.mark.parametrize("mode", BROKEN)
@pytest.mark.proves("004:EDGE-3", "000:FR-022", "000:US5-3", "D-15")
@aio
async def test_an_unusable_answer_fails_its_own_call_only(tmp_path: Path, mode: str, over: Over, era: Era) -> None:
    async with misbehaving(mode, over, tmp_path, era=era, on="tools/call:add") as subject:
        other = asyncio.create_task(subject.plugin.call("slow", SLOW))
        await subject.received("tools/call")
        error = failure(await subject.plugin.call_tool("add", a=1, b=2), BROKEN[mode])
        assert isinstance(error, MCPProtocolError)
        assert error.phase == "call"
        assert len(str(error.details.get("raw", ""))) <= MAX_RAW_SHOWN + len("...")
        await subject.works()
        assert (await subject.plugin.call_tool("release")).success
        assert (await other).text == "done"
        assert len(subject.calls("add")) == 1
        assert len(subject.journal.pids) <= 1


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", DUPLEX)
@pytest.mark.parametrize("mode", ["wrong-id", "error-id-null"])
@aio
async def test_an_answer_to_nobody_fails_the_only_call_that_waits(
    tmp_path: Path, mode: str, over: Over, era: Era
) -> None:
    async with misbehaving(mode, over, tmp_path, era=era, on="tools/call:add") as subject:
        await subject.plugin.connect()
        await subject.works()
        failure(await subject.plugin.call_tool("add", a=1, b=2), "does not belong to any request")
        await subject.works()


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", HTTP)
@pytest.mark.parametrize("mode", ["wrong-id", "error-id-null"])
@aio
async def test_over_http_it_is_clear_whose_answer_it_was_meant_to_be(
    tmp_path: Path, mode: str, over: Over, era: Era
) -> None:
    async with misbehaving(mode, over, tmp_path, era=era, on="tools/call:add") as subject:
        await subject.works()
        failure(await subject.plugin.call_tool("add", a=1, b=2))
        await subject.works()


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", DUPLEX)
@pytest.mark.parametrize("mode", ["garbage", "answers-twice", "batch", "unasked"])
@aio
async def test_what_can_be_understood_in_spite_of_it_is_understood(
    tmp_path: Path, mode: str, over: Over, era: Era
) -> None:
    async with misbehaving(mode, over, tmp_path, era=era) as subject:
        results = await asyncio.gather(*(subject.echo(str(number)) for number in range(5)))
        assert [result.text for result in results] == [str(number) for number in range(5)]


@pytest.mark.parametrize("over", ["stdio", "websocket"])
@aio
async def test_a_request_that_we_do_not_know_is_answered_so(tmp_path: Path, over: Over) -> None:
    async with misbehaving("unasked", over, tmp_path) as subject:
        await subject.works()
        (answer,) = await subject.received("")
        assert answer.message["id"] == "unasked-1"
        assert answer.message["error"]["code"] == -32601


@pytest.mark.parametrize("mode", ["batch", "pretty-printed", "unasked"])
@pytest.mark.parametrize("over", HTTP)
@aio
async def test_over_http_a_body_is_a_body_however_it_is_written(tmp_path: Path, mode: str, over: Over) -> None:
    async with misbehaving(mode, over, tmp_path) as subject:
        await subject.works()


@pytest.mark.parametrize("mode", ["garbage", "answers-twice"])
@aio
async def test_over_http_more_than_one_document_is_not_json(tmp_path: Path, mode: str) -> None:
    async with misbehaving(mode, "http", tmp_path, on="tools/call:add") as subject:
        failure(await subject.plugin.call_tool("add", a=1, b=2), "not JSON", "It begins:")
        await subject.works()


@pytest.mark.parametrize("era", ERAS)
@aio
async def test_a_message_spread_over_lines_is_told_to_be_just_that(tmp_path: Path, era: Era) -> None:
    async with misbehaving("pretty-printed", "stdio", tmp_path, era=era, on="tools/call:add") as subject:
        await subject.plugin.connect()
        failure(await subject.plugin.call_tool("add", a=1, b=2), "spread over several lines")
        await subject.works()
