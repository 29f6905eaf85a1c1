"""A gateway that is terminated while MCP clients wait: their calls are answered first, in either era."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.gateway_process import run_gateway_process, write_gateway_file
from gateway.mcp_endpoint.raw_client import BOTH, META, build_call

from holodeck.testing import FaultyMCPServer

# Requests after the signal, each on its own connection: they take longer than the server needs to stop listening.
PROBES = 100


def _plan_call(version: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The message and the headers of a call without a session."""
    call = build_call("slow", seconds=600, steps=1)
    headers = {"accept": BOTH, "mcp-protocol-version": version}
    if version >= "2026":
        call["params"]["_meta"] = {f"{META}protocolVersion": version, f"{META}clientCapabilities": {}}
        headers |= {"mcp-method": "tools/call", "mcp-name": "slow"}
    return call, headers


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@pytest.mark.proves("D-38")
@async_test(60)
async def test_a_call_without_a_session_is_answered_before_a_terminated_gateway_ends(
    tmp_path: Path, version: str
) -> None:
    async with FaultyMCPServer() as server:
        entry = {"name": "all", "type": "mcp", "description": "all", "transport": "http", "url": server.url}
        file = write_gateway_file(tmp_path, "http://127.0.0.1:9", mcp_servers=[entry], limits={"drain_seconds": 45})
        async with run_gateway_process(file) as served:
            message, headers = _plan_call(version)
            call = asyncio.create_task(served.send("POST", "/mcp", message, headers))
            await server.received("tools/call", name="slow")
            served.stop()
            for _ in range(PROBES):
                assert (await served.send("GET", "/healthz"))[0] == 200
            server.release()
            _, answer, _ = await call
            assert "done" in str(answer)
            assert await served.wait_exit() == 0
