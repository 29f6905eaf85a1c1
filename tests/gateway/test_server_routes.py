"""What an operator sees of the MCP servers and does with them: their state, a sleep, tools that the lock withholds."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

from async_tests import async_test
from gateway.config_entries import ASK
from gateway.running_gateway import RunningGateway, run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, read_pids, say
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


class BreakableServer:
    """A stdio server that tells its standard error that it serves, and exits with code 7 at its start once broken."""

    def __init__(self, folder: Path) -> None:
        self._pids = folder / "pids"
        self._is_broken = folder / "broken"
        script = folder / "breakable-server"
        start = shlex.join(FaultyMCPServer.command("normal", pid_file=self._pids))
        broken = f"if [ -e {shlex.quote(str(self._is_broken))} ]; then echo 'FATAL: disk full' >&2; exit 7; fi"
        script.write_text(f"#!/bin/sh\n{broken}\necho 'Serving.' >&2\nexec {start}\n")
        script.chmod(0o755)
        entry = {"name": "calc", "command": str(script)}
        self.settings: dict[str, Any] = {
            "mcp_servers": [entry],
            "allow_stdio": True,
            "allowed_commands": [str(script)],
        }

    def kill(self) -> None:
        os.kill(read_pids(self._pids)[-1], signal.SIGKILL)

    def break_starts(self) -> None:
        self._is_broken.touch()


async def wait_state(gateway: RunningGateway, state: str) -> dict[str, Any]:
    while (server := await get_server(gateway))["state"] != state:
        pass
    return server


@async_test
async def test_a_server_whose_process_died_says_how_it_ended(tmp_path: Path) -> None:
    program = BreakableServer(tmp_path)
    async with run_gateway(tmp_path, **program.settings) as gateway:
        _, connected = await gateway.send("POST", "/v1/mcp/servers/calc/refresh")
        assert (connected["state"], connected["last_error"], connected["stderr"]) == ("connected", None, "Serving.")
        program.kill()
        lost = await wait_state(gateway, "error")
        assert lost["last_error"] == ("Server 'calc' (run): it was ended by signal 9. Its last words:\nServing.")
        _, again = await gateway.send("POST", "/v1/mcp/servers/calc/refresh")
        assert (again["state"], again["last_error"]) == ("connected", None)


@async_test
async def test_a_server_that_lost_its_remote_connection_says_why(tmp_path: Path) -> None:
    async with FaultyMCPServer(transport="websocket") as mcp:
        entry = {"name": "calc", "transport": "websocket", "url": mcp.url}
        async with run_gateway(tmp_path, mcp_servers=[entry]) as gateway:
            assert (await gateway.send("POST", "/v1/mcp/servers/calc/refresh"))[1]["state"] == "connected"
            await mcp.go_down()
            assert "the WebSocket was closed" in (await wait_state(gateway, "error"))["last_error"]


@async_test
async def test_the_stderr_of_a_server_is_that_of_its_latest_process(tmp_path: Path) -> None:
    program = BreakableServer(tmp_path)
    async with run_gateway(tmp_path, **program.settings) as gateway:
        await gateway.send("POST", "/v1/mcp/servers/calc/refresh")
        program.break_starts()
        program.kill()
        await wait_state(gateway, "error")
        _, broken = await gateway.send("POST", "/v1/mcp/servers/calc/refresh")
        assert (broken["state"], broken["stderr"]) == ("error", "FATAL: disk full")
        assert "exit code 7" in broken["last_error"]


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
