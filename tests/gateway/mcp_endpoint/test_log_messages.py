"""Log messages of servers behind a gateway: each client gets those of the level that it wants."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import mcp
import pytest
from async_tests import async_test
from gateway.mcp_endpoint.raw_client import build_call, build_request, raw_client, read_events
from gateway.mcp_endpoint.sdk_client import connect
from gateway.running_gateway import run_gateway

from holodeck.testing import FaultyMCPServer


def requested_levels(server: FaultyMCPServer) -> list[str]:
    return [each.params["level"] for each in server.requests if each.method == "logging/setLevel"]


@pytest.mark.proves("D-38")
@async_test
async def test_a_client_that_wants_less_does_not_take_messages_from_one_that_wants_more(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer(era="legacy") as server,
        run_gateway(tmp_path, mcp={"all": server}) as gateway,
        raw_client(gateway) as verbose,
        raw_client(gateway) as quiet,
    ):
        await verbose.initialize()
        await quiet.initialize()
        # The server is started by the list: a level that was set before must hold for it as well.
        await verbose.request("logging/setLevel", {"level": "debug"})
        await verbose.send(build_request("tools/list"))
        await quiet.request("logging/setLevel", {"level": "error"})
        async with verbose.post(build_call("log", level="debug", text="details")) as reply:
            messages = [message async for _, message in read_events(reply) if message is not None]
        assert messages[0]["params"] == {"level": "debug", "logger": "faulty", "data": "details"}
        assert requested_levels(server)[-1] == "debug"
        _, answer = await quiet.send(build_call("log", level="debug", text="details"))
        assert answer["result"]["content"][0]["text"] == "logged"
        assert requested_levels(server)[-1] == "debug"


@pytest.mark.proves("D-38")
@async_test
async def test_a_legacy_server_is_asked_for_the_level_of_a_modern_client(tmp_path: Path) -> None:
    heard: list[Any] = []

    async def hear(params: Any) -> None:
        heard.append(params.data)

    async with FaultyMCPServer(era="legacy") as server, run_gateway(tmp_path, mcp={"all": server}) as gateway:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", mcp.MCPDeprecationWarning)
            async with connect(gateway, "auto", logging_callback=hear, log_level="debug") as client:
                await client.call_tool("log", {"level": "debug", "text": "details"})
        assert heard == ["details"]
        assert requested_levels(server)[-1] == "debug"
