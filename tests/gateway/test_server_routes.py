"""What an operator sees of the MCP servers and does with them: their state, a sleep, tools that the lock withholds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from async_tests import async_test
from gateway.config_entries import ASK
from gateway.running_gateway import RunningGateway, run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say
from holodeck.tools.mcp.lock.drift import ServerLock
from holodeck.tools.mcp.lock.lock_file import LockFile, read_lock, write_lock


async def get_server(gateway: RunningGateway) -> dict[str, Any]:
    _, listed = await gateway.send("GET", "/v1/mcp/servers")
    server: dict[str, Any] = listed["data"][0]
    return server


@async_test
async def test_a_server_that_sleeps_is_started_again_by_its_next_use(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = FaultyMCPServer.command("normal", pid_file=pids)
    entry = {"name": "calc", "command": sys.executable, "args": program[1:], "allow_unsafe_args": True}
    script = ScriptedModel(call("add", a=1, b=2), say("3"), call("add", a=1, b=2), say("3"))
    settings: dict[str, Any] = {"allow_stdio": True, "allowed_commands": [sys.executable]}
    async with run_gateway(tmp_path, script, mcp_servers=[entry], **settings) as gateway:
        assert (await gateway.send("POST", "/v1/responses", ASK))[0] == 200
        awake = await get_server(gateway)
        assert (awake["state"], awake["restarts"]) == ("connected", 0)
        assert awake["tools"] >= 1
        assert awake["start_seconds"] > 0
        status, asleep = await gateway.send("POST", "/v1/mcp/servers/calc/sleep")
        assert (status, asleep["state"]) == (200, "created")
        assert (await gateway.send("POST", "/v1/responses", ASK))[0] == 200
        again = await get_server(gateway)
        assert (again["state"], again["restarts"]) == ("connected", 1)
        assert len(pids.read_text().split()) == 2


@async_test
async def test_a_server_has_the_durations_of_its_calls(tmp_path: Path) -> None:
    script = ScriptedModel([call("add", a=1, b=2), call("add", a=3, b=4)], say("3 and 7"))
    async with FaultyMCPServer() as mcp, run_gateway(tmp_path, script, mcp={"calc": mcp}) as gateway:
        before = await get_server(gateway)
        assert (before["calls"], before["call_seconds_p50"], before["call_seconds_p95"]) == (0, None, None)
        assert (await gateway.send("POST", "/v1/responses", ASK))[0] == 200
        after = await get_server(gateway)
        assert after["calls"] == 2
        assert 0 < after["call_seconds_p50"] <= after["call_seconds_p95"]


@async_test
async def test_a_withheld_tool_is_offered_once_the_operator_accepts_what_was_seen(tmp_path: Path) -> None:
    write_lock(tmp_path, LockFile(files={"gateway.yaml": {"calc": ServerLock()}}))
    async with (
        FaultyMCPServer() as mcp,
        run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), mcp={"calc": mcp}) as gateway,
    ):
        await gateway.send("POST", "/v1/responses", ASK)
        assert not gateway.model_requests[-1].get("tools")
        withheld = {each["tool"]: each for each in (await get_server(gateway))["withheld"]}
        assert withheld["add"]["kind"] == "new"
        seen = {each["field"]: each for each in withheld["add"]["changes"]}
        assert seen["description"] == {"field": "description", "locked": "", "current": "Adds two numbers."}
        assert "a*: number, b*: number" in seen["input_schema"]["current"]
        status, said = await gateway.send("POST", "/v1/mcp/servers/calc/accept", {"tools": {"add": "sha256:other"}})
        assert (status, said["error"]["code"]) == (409, "tool_changed")
        status, server = await gateway.send(
            "POST", "/v1/mcp/servers/calc/accept", {"tools": {"add": withheld["add"]["digest"]}}
        )
        assert status == 200, server
        await gateway.send("POST", "/v1/responses", ASK)
        assert [tool["function"]["name"] for tool in gateway.model_requests[-1]["tools"]] == ["add"]
        lock = read_lock(tmp_path)
        assert lock is not None
        assert list(lock.files["gateway.yaml"]["calc"].tools) == ["add"]
