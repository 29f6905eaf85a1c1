"""Agents for the commands: a scripted model behind HTTP, and misbehaving servers behind a fake npx."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Unpack

from holodeck_command import run_holodeck

from holodeck.testing import FaultyMCPServer, read_pids, stand_in
from holodeck.testing.mcp.commands import CommandOptions
from holodeck.testing.model.scripted import ScriptedModel, ScriptedServer

GONE_WITHIN = 45.0  # seconds: a killed process ends once the kernel has a moment for it


class AgentProject:
    """A folder with an agent file, and the environment in which its servers are found."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "project"
        self.path.mkdir()
        self.pid_file = folder / "pids"
        self.journal = folder / "journal"
        self.env: dict[str, str] = {}
        self._bin = folder / "bin"

    def write(self, model: ScriptedServer | None, *servers: str, more: str = "") -> None:
        """Write the agent file; `servers` are the lines of its tools, as `npx_server` and `server_at` make them."""
        lines = ["name: demo"]
        if model is not None:
            lines.append(f'model: {{provider: openai_compatible, name: scripted, endpoint: "{model.url}"}}')
        if servers:
            lines += ["tools:", *servers]
        (self.path / "agent.yaml").write_text("\n".join(lines) + f"\n{more}")

    def npx_server(self, name: str, mode: str = "normal", *, more: str = "", **options: Unpack[CommandOptions]) -> str:
        """A server that is a process, started through npx."""
        options.setdefault("pid_file", self.pid_file)
        options.setdefault("journal", self.journal)
        self.env |= stand_in(self._bin, FaultyMCPServer.command(mode, **options))
        return f"  - {{type: mcp, name: {name}, description: d, command: npx, args: [-y, some-server]{more}}}"

    def pids(self) -> list[int]:
        return read_pids(self.pid_file)

    async def wait_servers_gone(self) -> None:
        """Wait until every server that was started has ended. A killed process may take a moment to end."""
        async with asyncio.timeout(GONE_WITHIN):
            for pid in self.pids():
                await _wait_ended(pid)

    async def run_holodeck(self, *args: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run the command while the servers of this test keep running."""
        return await asyncio.to_thread(run_holodeck, *args, cwd=self.path, env=self.env, stdin=stdin)


def server_at(name: str, url: str, *, more: str = "") -> str:
    """A server at a URL."""
    return f'  - {{type: mcp, name: {name}, description: d, transport: http, url: "{url}"{more}}}'


@asynccontextmanager
async def serve_scripted(*turns: Any, chunk: int | None = None) -> AsyncIterator[ScriptedServer]:
    """A model that answers by a script, behind HTTP."""
    async with ScriptedModel(*turns, chunk=chunk).serve() as server:
        yield server


def messages_of_turn(server: ScriptedServer, turn: int) -> list[Mapping[str, Any]]:
    """What the model received as the conversation of one turn, counted from 0."""
    found: list[Mapping[str, Any]] = server.received[turn].json["messages"]
    return found


async def _wait_ended(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
