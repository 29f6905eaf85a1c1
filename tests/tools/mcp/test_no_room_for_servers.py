"""A process that can open no more files starts and dials no server, and does not take one for broken."""

from __future__ import annotations

from pathlib import Path

import pytest
from aio import aio
from scarcity import no_more_files
from tools.mcp.misbehaving import OVER, Over, failure, misbehaving
from tools.mcp.test_auth_calls import plugin, world

from holodeck.tools.mcp.starts import StartLimits

LIMITS = StartLimits(starts=2, window=60, pause=60)


@pytest.mark.parametrize("over", OVER)
@aio
async def test_a_server_that_could_not_be_tried_is_tried_as_soon_as_there_is_room(tmp_path: Path, over: Over) -> None:
    async with misbehaving("normal", over, tmp_path, name="first", is_alone=False) as other:
        await other.works()  # all that it takes is loaded
    async with misbehaving("normal", over, tmp_path, limits=LIMITS) as subject:
        with no_more_files():
            for _ in range(4):
                error = failure(await subject.echo(), "it was not tried: this machine has too many files")
                assert error.details["shortage"]
        await subject.works()


@aio
async def test_a_token_that_could_not_be_fetched_is_fetched_as_soon_as_there_is_room() -> None:
    async with world() as (_, server, _), plugin(server) as first, plugin(server, limits=LIMITS) as tickets:
        await first.list_tools()  # all that it takes is loaded
        with no_more_files():
            for _ in range(4):
                error = failure(await tickets.call_tool("meet"), "was not asked: this machine has", server="tickets")
                assert error.details["shortage"]
        assert (await tickets.call_tool("meet")).text == "hello"
