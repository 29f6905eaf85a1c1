"""Answers that are odd: empty, unknown, wrong by their own schema, or asking back; each has a defined result."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from async_tests import async_test
from tools.mcp.misbehaving_server import ERAS, TRANSPORT_VARIANTS, TransportVariant, open_misbehaving, require_failure

from holodeck.lib.errors import MCPProtocolError
from holodeck.lib.json.schema_worker import CHECK_BUDGET
from holodeck.models.items import TextContent
from holodeck.testing import Era


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", ["stdio", "http"])
@pytest.mark.parametrize("mode", ["empty-content", "missing-content", "null-content"])
@pytest.mark.proves("000:EDGE-1", "D-19")
@async_test
async def test_an_empty_answer_says_that_it_is_empty(
    tmp_path: Path, mode: str, over: TransportVariant, era: Era
) -> None:
    async with open_misbehaving(mode, over, tmp_path, era=era) as subject:
        result = await subject.echo()
        assert result.success
        assert result.content == []
        assert "empty" in result.text
        assert result.metadata["warnings"] == ["the answer is empty"]


@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@pytest.mark.proves("000:EDGE-3", "D-19")
@async_test
async def test_content_of_an_unknown_kind_is_marked_and_the_rest_is_returned(
    tmp_path: Path, over: TransportVariant
) -> None:
    async with open_misbehaving("unknown-content", over, tmp_path) as subject:
        result = await subject.echo()
        assert result.success
        assert result.content[0] == TextContent(text="known")
        assert "hologram" in result.text
        assert "hologram" in str(result.metadata["warnings"])


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@pytest.mark.proves("000:US5-3", "000:FR-022", "002:RULE-14", "002:ENT-5", "D-19")
@async_test
async def test_a_tool_that_failed_is_an_error_with_its_own_words(
    tmp_path: Path, over: TransportVariant, era: Era
) -> None:
    async with open_misbehaving("error-result", over, tmp_path, era=era) as subject:
        result = await subject.echo()
        require_failure(result, "The disk is full.", "echo")
        assert result.is_error
        assert result.content == [TextContent(text="The disk is full.")]
        assert subject.plugin.state == "connected"


@pytest.mark.parametrize("over", ["stdio", "http"])
@pytest.mark.proves("000:US5-3", "002:ERR-7", "002:RULE-15")
@async_test
async def test_an_error_of_the_protocol_has_its_code_and_data(tmp_path: Path, over: TransportVariant) -> None:
    async with open_misbehaving("protocol-error", over, tmp_path) as subject:
        result = await subject.echo()
        error = require_failure(result, "Internal error", "-32603")
        assert isinstance(error, MCPProtocolError)
        assert error.details["code"] == -32603
        assert error.details["data"] == {"reason": "out of luck"}
        assert result.metadata["duration_ms"] > 0
        assert result.metadata["request_id"] == subject.calls("echo")[0].message["id"]
        assert not result.is_error


@pytest.mark.parametrize("over", ["stdio", "http"])
@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("schema-mismatch", "does not fit its schema"),
        ("slow-schema-regex", "the structured content"),
        ("slow-schema-ref", "was not checked: its schema took more than"),
        ("invalid-schema", "cannot be used"),
        ("remote-ref", "cannot be used"),
    ],
)
@pytest.mark.proves("D-19")
@async_test
async def test_a_promise_that_is_broken_or_cannot_be_checked_is_a_warning_and_no_lost_result(
    tmp_path: Path, mode: str, says: str, over: TransportVariant
) -> None:
    on = "tools/call:structured" if mode == "schema-mismatch" else None
    async with open_misbehaving(mode, over, tmp_path, on=on) as subject:
        await subject.check_works()
        checked = asyncio.create_task(subject.plugin.call_tool("structured"))
        await subject.check_works()  # a check never holds up the event loop
        result = await checked
        assert result.success
        assert result.structured is not None
        assert says in str(result.metadata["warnings"])
        assert subject.count("(schema)") == 0


@async_test
async def test_a_schema_that_took_too_long_is_not_tried_again(tmp_path: Path) -> None:
    async with open_misbehaving("slow-schema-ref", "http", tmp_path) as subject:
        await subject.plugin.call_tool("structured")
        began = time.monotonic()
        for _ in range(5):
            result = await subject.plugin.call_tool("structured")
            assert "took too long before" in str(result.metadata["warnings"])
        assert time.monotonic() - began < 5 * CHECK_BUDGET, "each would take one"


@pytest.mark.parametrize("over", ["stdio", "http", "http-sse"])
@async_test
async def test_a_result_of_an_unknown_type_is_an_error(tmp_path: Path, over: TransportVariant) -> None:
    async with open_misbehaving("unknown-result-type", over, tmp_path, era="modern") as subject:
        require_failure(await subject.echo(), "unknown type 'x-unheard-of'")


@pytest.mark.parametrize("over", ["stdio", "http", "http-sse"])
@async_test
async def test_a_server_that_asks_without_end_is_stopped(tmp_path: Path, over: TransportVariant) -> None:
    async with open_misbehaving("endless-input", over, tmp_path, era="modern") as subject:
        require_failure(await subject.echo(), "asked for input more than 10 times")
        assert len(subject.calls("echo")) <= 11


@pytest.mark.parametrize(
    ("over", "era"),
    [("stdio", "modern"), ("http", "legacy"), ("http-sse", "modern"), ("sse", "legacy"), ("websocket", "modern")],
)
@pytest.mark.proves("D-17", "000:EDGE-4")
@async_test
async def test_fifty_megabytes_in_one_message_are_read(tmp_path: Path, over: TransportVariant, era: Era) -> None:
    async with open_misbehaving("huge-line", over, tmp_path, era=era, on="tools/call:add") as subject:
        result = await subject.plugin.call_tool("add", a=1, b=2)
        assert result.success, result.error
        assert len(result.text) == 50_000_000
        await subject.check_works()


@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@pytest.mark.proves("D-17", "000:EDGE-4")
@async_test
async def test_a_message_over_the_limit_fails_its_call_and_says_which_setting(
    tmp_path: Path, over: TransportVariant
) -> None:
    fields = {"max_result_bytes": 100_000}
    async with open_misbehaving("huge-line", over, tmp_path, on="tools/call:add", fields=fields) as subject:
        require_failure(await subject.plugin.call_tool("add", a=1, b=2), "16777216", "max_result_bytes")
        await subject.check_works()


@pytest.mark.parametrize("over", ["stdio", "http"])
@pytest.mark.proves("D-17", "D-19", "000:EDGE-4")
@async_test
async def test_a_result_over_its_limit_is_cut_and_marked_with_its_full_size(
    tmp_path: Path, over: TransportVariant
) -> None:
    async with open_misbehaving("normal", over, tmp_path, fields={"max_result_bytes": 10_000}) as subject:
        result = await subject.plugin.call_tool("big", bytes=1_000_000)
        assert result.success
        assert result.metadata["truncated"] is True
        assert result.metadata["full_size"] == 1_000_000
        assert len(result.text) < 11_000
        assert "1000000 bytes" in result.text


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.proves("D-17")
@async_test
async def test_fifty_megabytes_on_standard_error_hold_nothing_up(tmp_path: Path, era: Era) -> None:
    async with open_misbehaving("huge-stderr", "stdio", tmp_path, era=era, times=1) as subject:
        await subject.check_works()
        await subject.check_works()
