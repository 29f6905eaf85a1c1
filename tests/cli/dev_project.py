"""A folder with an MCP server that a test edits, and `holodeck mcp dev` in it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from holodeck_command import INHERITED, run_holodeck
from pty_terminal import TypingTerminal

SERVER = '''
import os
import sys

from mcp.server import MCPServer

server = MCPServer("calc", version="1.2.3")
print("pid", os.getpid(), file=sys.stderr, flush=True)


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def crash() -> str:
    print("it breaks now", file=sys.stderr, flush=True)
    os._exit(3)


server.run("stdio")
'''
"""A server built with the official SDK. Standard error has its process id."""


class DevProject:
    """The folder, and the command in it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "project"
        self.path.mkdir()
        self.script = self.path / "server.py"
        self.script.write_text(SERVER)
        # The `python` of this environment has the SDK.
        self.env = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "200"}

    def run_dev(self, *args: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return run_holodeck("mcp", "dev", *args, cwd=self.path, env=self.env, stdin=stdin)

    def open_terminal(self, *args: str) -> TypingTerminal:
        return TypingTerminal("mcp", "dev", *args, cwd=self.path, env=self.env)

    @asynccontextmanager
    async def start_dev(self, *args: str) -> AsyncIterator[RunningDev]:
        """The command with `--json` while it runs, without a terminal; killed at the end."""
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holodeck", "mcp", "dev", "--json", *args),
            cwd=self.path,
            env={**inherited, **self.env, "HOME": str(self.path.parent)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            limit=2**20,
        )
        try:
            yield RunningDev(process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()


class RunningDev:
    """The command, and the events that it prints."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def wait_event(self, kind: str) -> dict[str, Any]:
        """The next event of this kind."""
        assert self.process.stdout is not None
        seen = []
        while line := await self.process.stdout.readline():
            event: dict[str, Any] = json.loads(line)
            if event["event"] == kind:
                return event
            seen.append(event)
        raise AssertionError(f"it ended without {kind!r}: {seen}")

    def type_line(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())

    async def end_input(self) -> int:
        """End its input, and return the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await self.process.wait()
