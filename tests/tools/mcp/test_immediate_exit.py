"""A server that exits before we know that it has started: its end is reported at once, every time."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from async_tests import async_test

from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.factory import create_mcp_plugin

STARTS = 60


@pytest.mark.proves("D-15", "000:EDGE-6")
@async_test(60)
async def test_a_server_that_ends_at_once_is_never_waited_for_and_started_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, starts = tmp_path / "npx", tmp_path / "starts"
    program.write_text(f"#!/bin/sh\necho >> {starts}\nexit 4\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    async def end_of(number: int) -> str:
        tool = MCPTool.model_validate({"name": f"s{number}", "command": "npx", "server": "x"})
        async with create_mcp_plugin(tool) as plugin:
            return str((await plugin.call_tool("any")).error)

    ends = await asyncio.gather(*(end_of(number) for number in range(STARTS)))
    assert [end for end in ends if "ended with exit code 4" not in end] == []
    # It has read nothing: it did not end because of our first message, and needs no second try.
    assert len(starts.read_text().splitlines()) == STARTS
