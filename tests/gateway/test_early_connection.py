"""`holodeck serve` connects an MCP server when a request needs it, or, where the file says so, at its start."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.config_entries import server
from gateway.gateway_process import GatewayProcess, run_gateway_process, write_gateway_file
from gateway.running_gateway import MODEL, run_gateway
from pty_terminal import CTRL_C, TypingTerminal

from holodeck.testing import Fault, FaultyMCPServer, ScriptedModel, say
from holodeck.tools.mcp.server_tools import MAX_CONNECTING

NOWHERE = "http://127.0.0.1:9/v1"
SECONDS = 90.0
START: dict[str, Any] = {"mcp_connect": "start"}


async def _wait_event(served: GatewayProcess, event: str, name: str) -> dict[str, Any]:
    """Wait for the log line of an event about a server. The time limit of the test bounds it."""
    while True:
        for line in served.stderr_lines:
            fields = orjson.loads(line)
            if fields["event"] == event and fields.get("server") == name:
                return dict(fields)
        await asyncio.sleep(0.02)


@async_test(SECONDS)
async def test_each_server_is_reported_before_any_request(tmp_path: Path) -> None:
    async with FaultyMCPServer() as good, FaultyMCPServer(Fault.REQUIRES_TOKEN, token="open-sesame") as closed:
        wrong = {**server("closed", closed.url), "headers": {"Authorization": "Bearer ${TOKEN}"}}
        file = write_gateway_file(tmp_path, NOWHERE, mcp_servers=[server("good", good.url), wrong], **START)
        async with run_gateway_process(file, "--log-format=json", environ={"TOKEN": "wrong-word"}) as served:
            found = await _wait_event(served, "mcp.discovered", "good")
            missing = await _wait_event(served, "mcp.unavailable", "closed")
            assert (await served.send("GET", "/readyz"))[0] == 200
            served.stop()
            assert await served.wait_exit() == 0
        assert not [line for line in served.stderr_lines if "wrong-word" in line]
        assert good.requests, "nothing but the start has asked for it"
    assert found["tools"] > 0
    assert (found["era"], found["version"]) == ("legacy", "2025-11-25")
    assert found["seconds"] >= 0
    assert missing["level"] == "warning"
    assert missing["phase"]
    assert "401" in missing["reason"]
    assert missing["next_try_seconds"] > 0


@async_test(SECONDS)
async def test_a_server_that_hangs_delays_neither_readiness_nor_other_requests_nor_the_end(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer(Fault.HANGS, on="initialize") as hanging,
        ScriptedModel(lambda _: say("Hi.")).serve() as scripted,
    ):
        llm = {"provider": "openai_compatible", "name": "scripted", "endpoint": scripted.url}
        models = [{"name": "demo", "model": llm, "use_mcp": False}]
        file = write_gateway_file(
            tmp_path, scripted.url, models=models, mcp_servers=[server("hanging", hanging.url)], **START
        )
        async with run_gateway_process(file, "--log-format=json") as served:
            await hanging.received("initialize")
            assert (await served.send("GET", "/readyz"))[0] == 200
            assert (await served.create_response())[0] == 200
            served.stop(signal.SIGINT)
            assert await served.wait_exit() == 0
    assert not [line for line in served.stderr_lines if '"level":"error"' in line]


@async_test(SECONDS)
async def test_only_a_few_servers_are_connected_at_once_and_a_request_does_not_wait_for_its_turn(
    tmp_path: Path,
) -> None:
    hanging = [FaultyMCPServer(Fault.HANGS, on="initialize") for _ in range(MAX_CONNECTING)]
    async with AsyncExitStack() as stack:
        for each in (*hanging, last := FaultyMCPServer()):
            await stack.enter_async_context(each)
        mcp = {f"hanging-{number}": each for number, each in enumerate(hanging)} | {"last": last}
        async with run_gateway(tmp_path, mcp=mcp, **START) as gateway:
            for each in hanging:
                await each.received("initialize")
            assert not last.requests, "it waits for its turn"
            _, listed = await gateway.send("GET", "/v1/mcp/servers/last/tools")
            assert listed["data"], "a request does not"


@pytest.mark.proves("004:US1-1", "D-14")
@async_test(SECONDS)
async def test_by_default_nothing_is_connected_before_a_request_needs_it(tmp_path: Path) -> None:
    async with FaultyMCPServer() as mcp:
        model = ScriptedModel(lambda _: say("Hi."))
        async with run_gateway(tmp_path, model, mcp={"tools": mcp}) as gateway:
            await gateway.send("GET", "/readyz")
            assert not mcp.requests
            await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go"})
            assert mcp.requests


@async_test(SECONDS)
async def test_a_server_that_is_added_while_it_runs_is_connected_too(tmp_path: Path) -> None:
    async with FaultyMCPServer() as added, run_gateway(tmp_path, **START) as gateway:
        assert await gateway.reload(mcp_servers=[server("added", added.url)])
        await added.received("tools/list")


@async_test(SECONDS)
async def test_a_server_that_only_callers_can_log_in_to_is_left_alone(tmp_path: Path) -> None:
    async with FaultyMCPServer() as theirs, FaultyMCPServer() as ours:
        entries = [{**server("theirs", theirs.url), "caller_authorization": True}, server("ours", ours.url)]
        async with run_gateway(tmp_path, mcp_servers=entries, **START) as gateway:
            await ours.received("tools/list")
            assert not theirs.requests
            assert await gateway.send("GET", "/readyz") == (200, {"status": "ok"})


@async_test(120)
async def test_a_terminal_shows_each_server_on_a_line(tmp_path: Path) -> None:
    async with FaultyMCPServer() as good:
        entries = [server("good", good.url), server("gone", "http://127.0.0.1:9/mcp")]
        file = write_gateway_file(tmp_path, NOWHERE, mcp_servers=entries, **START)
        async with TypingTerminal("serve", file, cwd=tmp_path, env={"HOLODECK_TRUST": "all"}) as terminal:
            await terminal.wait_for("Console: http://127.0.0.1:")
            wanted = ("mcp.discovered server=good", "mcp.unavailable server=gone")
            while not all(text in terminal.text for text in wanted):  # noqa: ASYNC110 - in any order
                await asyncio.sleep(0.02)
            terminal.type_text(CTRL_C)
            assert await terminal.wait_exit() == 0
    lines = [line for line in terminal.text.splitlines() if "server=gone" in line]
    assert len(lines) == 1
    assert "phase=connect" in lines[0]
    assert "next_try_seconds=" in lines[0]
