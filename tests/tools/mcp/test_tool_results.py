"""Results are returned, cut, checked and marked; requests of a server are answered only where it is allowed."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from tools.mcp.local_servers import remote_tool
from tools.mcp.test_supervisor import faulty_tool

from holodeck.testing import FaultyMCPServer
from holodeck.tools.mcp.content import MCPToolResult
from holodeck.tools.mcp.factory import create_mcp_plugin
from holodeck.tools.mcp.protocol.server_requests import Callbacks

ERAS = ["legacy", "modern"]


@pytest.mark.parametrize("mode", ["slow-schema-regex", "slow-schema-ref"])
@async_test
async def test_a_schema_that_takes_forever_neither_stalls_us_nor_costs_the_answer(mode: str) -> None:
    async with FaultyMCPServer(mode, era="modern") as remote, create_mcp_plugin(remote_tool(remote.url)) as server:
        await server.connect()
        slow = asyncio.create_task(server.call_tool("structured"))
        others = 0
        while not slow.done():
            assert (await server.call_tool("echo", text="meanwhile")).success
            others += 1
        result = await slow
        assert result.success
        assert others > 1
        assert any("schema" in warning for warning in result.metadata["warnings"])


@async_test
async def test_structured_content_that_breaks_its_schema_is_returned_with_a_warning() -> None:
    async with (
        FaultyMCPServer("schema-mismatch", era="modern") as remote,
        create_mcp_plugin(remote_tool(remote.url)) as server,
    ):
        result = await server.call_tool("structured")
        assert result.success
        assert result.structured == {"total": "three"}
        assert any("does not fit its schema" in warning for warning in result.metadata["warnings"])
        remote.mode = "normal"
        assert "warnings" not in (await server.call_tool("structured")).metadata


@async_test
async def test_the_text_of_a_result_names_binary_content_by_type_and_size_instead_of_base64() -> None:
    async with FaultyMCPServer() as remote, create_mcp_plugin(remote_tool(remote.url)) as server:
        lines = (await server.call_tool("many_blocks")).text.splitlines()
    assert lines == [
        "first",
        "[image: image/png, 70 bytes]",
        "[audio: audio/wav, 44 bytes]",
        "notes",
        "[resource: test://data.bin (application/octet-stream, 6 bytes)]",
        "[resource: test://far.pdf (application/pdf)]",
        "last",
    ]


def test_a_picture_that_structured_content_repeats_is_no_base64_in_the_text() -> None:
    picture = base64.b64encode(b"x" * 3000).decode()
    structured = {"result": [{"type": "image", "data": picture, "mimeType": "image/png"}], "data": "plain"}
    text = MCPToolResult(success=True, structured=structured).text
    assert json.loads(text) == {
        "result": [{"type": "image", "data": "[3000 bytes]", "mimeType": "image/png"}],
        "data": "plain",
    }


@async_test
async def test_an_answer_over_the_limit_is_cut_and_marked(tmp_path: Path) -> None:
    async with create_mcp_plugin(
        faulty_tool(tmp_path, "huge-line", max_result_bytes=40_000_000, request_timeout=25)
    ) as server:
        result = await server.call_tool("echo", text="x")
        assert result.success
        assert result.metadata["truncated"] is True
        assert result.metadata["full_size"] >= 50_000_000
        assert len(result.text) < 40_001_000


@async_test
async def test_a_line_that_is_much_too_long_is_dropped_and_fails_its_call_only(tmp_path: Path) -> None:
    tool = faulty_tool(tmp_path, "huge-line", max_result_bytes=1_000_000, times=1, request_timeout=25)
    async with create_mcp_plugin(tool) as server:
        result = await server.call_tool("echo", text="x")
        assert "max_result_bytes" in str(result.error)
        assert (await server.call_tool("echo", text="next")).text == "next"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.proves("000:FR-027")
@async_test
async def test_a_server_logs_to_a_logger_of_its_own(era: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holodeck.mcp.server.remote")
    async with FaultyMCPServer(era=era) as remote, create_mcp_plugin(remote_tool(remote.url)) as server:
        assert (await server.call_tool("log", level="warning", text="mind the gap")).success
    assert ("holodeck.mcp.server.remote", logging.WARNING, "mind the gap") in [
        (record.name, record.levelno, record.getMessage().rpartition(": ")[2]) for record in caplog.records
    ]


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_an_elicitation_is_shown_only_where_a_user_can_answer(era: Any) -> None:
    questions: list[Mapping[str, Any]] = []

    async def person(params: Mapping[str, Any]) -> Mapping[str, Any]:
        questions.append(params)
        return {"action": "accept", "content": {}}

    async with FaultyMCPServer(era=era) as remote:
        async with create_mcp_plugin(remote_tool(remote.url), callbacks=Callbacks(elicitation=person)) as server:
            answered = await server.call_tool("ask_elicitation")
            assert answered.success, answered.error
            assert len(questions) == 1
        async with create_mcp_plugin(remote_tool(remote.url)) as server:
            await server.call_tool("ask_elicitation")
            assert len(questions) == 1


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_sampling_needs_the_operators_permission(era: Any) -> None:
    async def model(params: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"role": "assistant", "content": {"type": "text", "text": "written"}, "model": "rehearsal"}

    async with FaultyMCPServer(era=era) as remote:
        allowed = remote_tool(remote.url, sampling="allow")
        async with create_mcp_plugin(allowed, callbacks=Callbacks(sampling=model)) as server:
            assert "written" in (await server.call_tool("ask_sampling")).text
        async with create_mcp_plugin(remote_tool(remote.url), callbacks=Callbacks(sampling=model)) as server:
            assert "written" not in (await server.call_tool("ask_sampling")).text


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.proves("000:US2-2", "000:FR-011")
@async_test
async def test_allowed_directories_reach_the_server_as_roots(era: Any, tmp_path: Path) -> None:
    async with FaultyMCPServer(era=era) as remote:
        tool = remote_tool(remote.url, config={"allowed_directories": [str(tmp_path)]})
        async with create_mcp_plugin(tool) as server:
            assert tmp_path.as_uri() in (await server.call_tool("ask_roots")).text
