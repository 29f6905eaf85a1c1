"""A process that can open no more files starts and dials no server, and does not take one for broken."""

from __future__ import annotations

from pathlib import Path

import pytest
from async_tests import async_test
from open_file_limit import exhaust_open_files
from tools.mcp.misbehaving_server import TRANSPORT_VARIANTS, TransportVariant, open_misbehaving, require_failure
from tools.mcp.test_auth_calls import plugin, run_servers

from holodeck.tools.mcp.connection.supervisor import StartLimits

LIMITS = StartLimits(starts=2, window=60, pause=60)


@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@async_test
async def test_a_server_that_could_not_be_connected_is_connected_as_soon_as_files_are_free(
    tmp_path: Path, over: TransportVariant
) -> None:
    async with open_misbehaving("normal", over, tmp_path, name="first", is_alone=False) as other:
        await other.check_works()  # all that it takes is loaded
    async with open_misbehaving("normal", over, tmp_path, limits=LIMITS) as subject:
        with exhaust_open_files():
            for _ in range(4):
                error = require_failure(await subject.echo(), "it was not tried: this machine has too many files")
                assert error.details["shortage"]
        await subject.check_works()


@async_test
async def test_a_token_that_could_not_be_fetched_is_fetched_as_soon_as_files_are_free() -> None:
    async with run_servers() as (_, server, _), plugin(server) as first, plugin(server, limits=LIMITS) as tickets:
        await first.list_tools()  # all that it takes is loaded
        with exhaust_open_files():
            for _ in range(4):
                error = require_failure(
                    await tickets.call_tool("meet"), "was not asked: this machine has", server="tickets"
                )
                assert error.details["shortage"]
        assert (await tickets.call_tool("meet")).text == "hello"
