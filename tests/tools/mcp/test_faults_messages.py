"""A message that is wrong on the wire fails the one call that it answers, with the raw text; all others continue."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from async_tests import async_test
from tools.mcp.misbehaving_server import (
    DUPLEX,
    ERAS,
    HTTP,
    TRANSPORT_VARIANTS,
    TransportVariant,
    open_misbehaving,
    require_failure,
)

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
@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@pytest.mark.parametrize("mode", BROKEN)
@pytest.mark.proves("004:EDGE-3", "000:FR-022", "000:US5-3", "D-15")
@async_test
async def test_an_unusable_answer_fails_its_own_call_only(
    tmp_path: Path, mode: str, over: TransportVariant, era: Era
) -> None:
    async with open_misbehaving(mode, over, tmp_path, era=era, on="tools/call:add") as subject:
        other = asyncio.create_task(subject.plugin.call("slow", SLOW))
        await subject.wait_received("tools/call")
        error = require_failure(await subject.plugin.call_tool("add", a=1, b=2), BROKEN[mode])
        assert isinstance(error, MCPProtocolError)
        assert error.phase == "call"
        assert len(str(error.details.get("raw", ""))) <= MAX_RAW_SHOWN + len("...")
        await subject.check_works()
        assert (await subject.plugin.call_tool("release")).success
        assert (await other).text == "done"
        assert len(subject.calls("add")) == 1
        assert len(subject.journal.pids) <= 1


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", DUPLEX)
@async_test
async def test_an_error_without_an_id_fails_the_only_pending_call(
    tmp_path: Path, over: TransportVariant, era: Era
) -> None:
    async with open_misbehaving("error-id-null", over, tmp_path, era=era, on="tools/call:add") as subject:
        await subject.plugin.connect()
        await subject.check_works()
        require_failure(await subject.plugin.call_tool("add", a=1, b=2), "does not belong to any request")
        await subject.check_works()


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", [*DUPLEX, "http-sse"])
@async_test
async def test_a_stray_answer_does_not_fail_the_call_beside_it(
    tmp_path: Path, over: TransportVariant, era: Era
) -> None:
    async with open_misbehaving("stray-answer", over, tmp_path, era=era) as subject:
        await subject.check_works()
        await subject.check_works()


@async_test
async def test_the_first_stray_answer_is_a_warning_and_the_call_that_it_replaced_times_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fields = {"request_timeout": 1}
    async with open_misbehaving("wrong-id", "stdio", tmp_path, on="tools/call:add", fields=fields) as subject:
        for _ in range(2):
            require_failure(await subject.plugin.call_tool("add", a=1, b=2), "no answer within 1 s")
        await subject.check_works()
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert sum("mcp.stray_answer" in text for text in warnings) == 1


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", HTTP)
@pytest.mark.parametrize("mode", ["wrong-id", "error-id-null"])
@async_test
async def test_over_http_an_answer_with_a_wrong_id_fails_its_own_call(
    tmp_path: Path, mode: str, over: TransportVariant, era: Era
) -> None:
    async with open_misbehaving(mode, over, tmp_path, era=era, on="tools/call:add") as subject:
        await subject.check_works()
        require_failure(await subject.plugin.call_tool("add", a=1, b=2))
        await subject.check_works()


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", DUPLEX)
@pytest.mark.parametrize("mode", ["garbage", "answers-twice", "batch", "unasked"])
@async_test
async def test_a_message_with_a_harmless_mistake_is_read(
    tmp_path: Path, mode: str, over: TransportVariant, era: Era
) -> None:
    async with open_misbehaving(mode, over, tmp_path, era=era) as subject:
        results = await asyncio.gather(*(subject.echo(str(number)) for number in range(5)))
        assert [result.text for result in results] == [str(number) for number in range(5)]


@pytest.mark.parametrize("over", ["stdio", "websocket"])
@async_test
async def test_a_request_that_we_do_not_know_is_answered_so(tmp_path: Path, over: TransportVariant) -> None:
    async with open_misbehaving("unasked", over, tmp_path) as subject:
        await subject.check_works()
        (answer,) = await subject.wait_received("")
        assert answer.message["id"] == "unasked-1"
        assert answer.message["error"]["code"] == -32601


@pytest.mark.parametrize("mode", ["batch", "pretty-printed", "unasked"])
@pytest.mark.parametrize("over", HTTP)
@async_test
async def test_over_http_a_body_is_a_body_however_it_is_written(
    tmp_path: Path, mode: str, over: TransportVariant
) -> None:
    async with open_misbehaving(mode, over, tmp_path) as subject:
        await subject.check_works()


@pytest.mark.parametrize("mode", ["garbage", "answers-twice"])
@async_test
async def test_over_http_more_than_one_document_is_not_json(tmp_path: Path, mode: str) -> None:
    async with open_misbehaving(mode, "http", tmp_path, on="tools/call:add") as subject:
        require_failure(await subject.plugin.call_tool("add", a=1, b=2), "not JSON", "It begins:")
        await subject.check_works()


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_an_error_says_that_a_message_is_spread_over_lines(tmp_path: Path, era: Era) -> None:
    async with open_misbehaving("pretty-printed", "stdio", tmp_path, era=era, on="tools/call:add") as subject:
        await subject.plugin.connect()
        require_failure(await subject.plugin.call_tool("add", a=1, b=2), "spread over several lines")
        await subject.check_works()
