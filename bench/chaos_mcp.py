"""Kills an MCP server in the middle of a call, a thousand times: no call may hang, no process stay, no next call fail.

`python -m bench.chaos_mcp [STDIO [HTTP]]` says how many kills of each; the exit code is 1 if a check failed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from bench.processes import wait_ended
from bench.table import print_table
from holodeck.lib.secret import Secret
from holodeck.models.tool import CommandType, MCPTool, TransportType
from holodeck.testing import FaultyMCPServer, stand_in
from holodeck.tools.mcp.connection.supervisor import StartLimits
from holodeck.tools.mcp.content import MCPToolResult
from holodeck.tools.mcp.factory import create_mcp_plugin
from holodeck.tools.mcp.plugin import MCPPlugin

STDIO_KILLS = 1_000
HTTP_KILLS = 200
IN_FLIGHT = 4  # calls that die together
SIDE_BY_SIDE = 4  # servers over stdio
HUNG_AFTER = 45.0  # the call itself would take ten minutes, and its time limit is a minute
BACK_WITHIN = 60.0  # a process has to start, on a machine that is busy with many others that start
ALL_WITHIN = 540.0
OFTEN = StartLimits(starts=1_000_000)
SLOW = {"seconds": 600, "steps": 1}


@dataclass(kw_only=True)
class Tally:
    """What happened to the calls over one transport."""

    kills: int = 0
    failed: int = 0
    hung: int = 0
    unnamed: int = 0
    succeeded_although_killed: int = 0
    next_call_worked: int = 0
    next_call_failed: int = 0
    pids: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)
    """The processes that still run at the end."""
    failed_after: list[float] = field(default_factory=list)
    recovered_after: list[float] = field(default_factory=list)
    causes: Counter[str] = field(default_factory=Counter)

    def count(self, result: MCPToolResult | None, server: str) -> None:
        if result is None:
            self.hung += 1
        elif result.success:
            self.succeeded_although_killed += 1
        else:
            self.failed += 1
            text = str(result.error)
            self.unnamed += f"'{server}'" not in text
            self.causes[text.partition(": ")[2].partition("\n")[0].split(" (")[0][:60]] += 1


async def main() -> int:
    logging.getLogger("holodeck").setLevel(logging.ERROR)  # each loss is a warning: as it should be, but not here
    stdio = int(sys.argv[1]) if len(sys.argv) > 1 else STDIO_KILLS
    http = int(sys.argv[2]) if len(sys.argv) > 2 else HTTP_KILLS
    folder = Path(tempfile.mkdtemp(prefix="holodeck-chaos-"))
    tallies = {"stdio": Tally(), "http": Tally()}
    began = time.monotonic()
    before = len(asyncio.all_tasks())
    try:
        async with asyncio.timeout(ALL_WITHIN):
            await asyncio.gather(
                _chaos_over_stdio(folder, stdio, tallies["stdio"]), _chaos_over_http(http, tallies["http"])
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for each in tallies.values():
        each.left = await wait_ended(each.pids)
    tasks = len(asyncio.all_tasks()) - before
    _show(tallies, time.monotonic() - began, tasks)
    broken = tasks + sum(
        each.hung + each.unnamed + each.succeeded_although_killed + each.next_call_failed + len(each.left)
        for each in tallies.values()
    )
    return 1 if broken else 0


async def _chaos_over_stdio(folder: Path, kills: int, tally: Tally) -> None:
    """Servers that are killed side by side; one of them is a wrapper as npx is, and now it dies, now what it wraps."""
    shares = [kills // SIDE_BY_SIDE + (number < kills % SIDE_BY_SIDE) for number in range(SIDE_BY_SIDE)]
    wanted = [("wrapper" if number == 0 else "normal", share) for number, share in enumerate(shares)]
    await asyncio.gather(
        *(_stdio_server(folder / str(number), *each, tally) for number, each in enumerate(wanted) if each[1])
    )


async def _stdio_server(folder: Path, mode: str, kills: int, tally: Tally) -> None:
    pid_file = folder / "pids"
    path = stand_in(folder / "bin", FaultyMCPServer.command(mode, pid_file=pid_file))
    env = {name: Secret(value) for name, value in path.items()}
    fields = {"command": CommandType.NPX, "args": ["-y", "chaos"], "env": env, "allow_unsafe_args": True}
    tool = MCPTool.model_validate({"name": "chaos", "server": "chaos", **fields})
    async with create_mcp_plugin(tool, base_dir=folder, limits=OFTEN) as plugin:
        await _echo(plugin)
        for number in range(kills):
            calls = await _start_calls(plugin)
            pids = [int(line) for line in pid_file.read_text().split()]
            await _kill_and_call_again(plugin, calls, pids[-1 - number % 2] if mode == "wrapper" else pids[-1], tally)
            if tally.kills % 100 == 0:
                print(f"  stdio: {tally.kills} kills", flush=True)
        tally.pids.update(int(line) for line in pid_file.read_text().split())


async def _chaos_over_http(kills: int, tally: Tally) -> None:
    """A server at a URL that is killed and restarted there as another process."""
    server, url = _start_server(0)
    port = int(url.rpartition(":")[2].partition("/")[0])
    tool = MCPTool(name="chaos", server="chaos", transport=TransportType.HTTP, url=url)
    async with create_mcp_plugin(tool, limits=OFTEN) as plugin:
        await _echo(plugin)
        for _ in range(kills):
            tally.pids.add(server.pid)
            calls = await _start_calls(plugin)
            await _kill_and_await_calls(plugin, calls, server.pid, tally)
            _stop_server(server)
            server, _ = await asyncio.to_thread(_start_server, port)
            await _call_again(plugin, tally)
            if tally.kills % 100 == 0:
                print(f"  http: {tally.kills} kills", flush=True)
    tally.pids.add(server.pid)
    _stop_server(server)


async def _start_calls(plugin: MCPPlugin) -> list[asyncio.Task[MCPToolResult]]:
    """Calls that the server is working on: each has reported its first step."""
    running: list[asyncio.Event] = [asyncio.Event() for _ in range(IN_FLIGHT)]
    calls = [
        asyncio.create_task(plugin.call("slow", SLOW, on_progress=lambda *_, begun=begun: begun.set()))
        for begun in running
    ]
    async with asyncio.timeout(BACK_WITHIN):
        for begun, call in zip(running, calls, strict=True):
            waiting = asyncio.create_task(begun.wait())
            await asyncio.wait({waiting, call}, return_when=asyncio.FIRST_COMPLETED)
            if not begun.is_set():
                waiting.cancel()
                raise RuntimeError(f"a call ended before anything was killed: {call.result().error}")
    return calls


async def _kill_and_call_again(
    plugin: MCPPlugin, calls: list[asyncio.Task[MCPToolResult]], pid: int, tally: Tally
) -> None:
    await _kill_and_await_calls(plugin, calls, pid, tally)
    await _call_again(plugin, tally)


async def _kill_and_await_calls(
    plugin: MCPPlugin, calls: list[asyncio.Task[MCPToolResult]], pid: int, tally: Tally
) -> None:
    """Kill the server, and check the result of each call."""
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    tally.kills += 1
    _, late = await asyncio.wait(calls, timeout=HUNG_AFTER)
    tally.failed_after.append(time.monotonic() - began)
    for call in calls:
        tally.count(None if call in late else call.result(), plugin.name)
        call.cancel()


async def _call_again(plugin: MCPPlugin, tally: Tally) -> None:
    """Make the next call."""
    began = time.monotonic()
    result = await _echo(plugin)
    if result is not None and result.text == "alive":
        tally.next_call_worked += 1
        tally.recovered_after.append(time.monotonic() - began)
    else:
        tally.next_call_failed += 1
        print(f"  the next call failed: {result.error if result is not None else 'no answer'}", flush=True)


async def _echo(plugin: MCPPlugin) -> MCPToolResult | None:
    try:
        async with asyncio.timeout(BACK_WITHIN):
            return await plugin.call_tool("echo", text="alive")
    except TimeoutError:
        return None


def _start_server(port: int) -> tuple[subprocess.Popen[bytes], str]:
    command = FaultyMCPServer.command("normal", transport="http", port=port)
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if server.stdout is None:
        raise BrokenPipeError
    return server, server.stdout.readline().decode().strip()


def _stop_server(server: subprocess.Popen[bytes]) -> None:
    """It ends when its input does, if it has not been killed."""
    for pipe in (server.stdin, server.stdout):
        if pipe is not None:
            pipe.close()
    server.wait()


def _show(tallies: dict[str, Tally], seconds: float, tasks: int) -> None:
    rows = [
        [
            name,
            str(each.kills),
            str(each.failed),
            str(each.hung),
            str(each.unnamed),
            f"{each.next_call_worked} of {each.kills}",
            f"{len(each.left)} of {len(each.pids)}",
            f"{max(each.failed_after, default=0) * 1000:.0f} ms",
            f"{max(each.recovered_after, default=0) * 1000:.0f} ms",
        ]
        for name, each in tallies.items()
    ]
    head = ["over", "kills", "calls told", "hung", "unnamed", "next worked", "processes left", "told within", "back in"]
    print_table(f"SIGKILL in the middle of {IN_FLIGHT} calls ({seconds:.0f} s, {tasks} tasks left)", head, rows)
    for name, each in tallies.items():
        for cause, number in each.causes.most_common():
            print(f"  {name}: {number} x {cause}")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
