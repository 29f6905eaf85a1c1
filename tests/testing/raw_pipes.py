"""A client of pipes and lines only, for what a server really writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from holodeck.testing import Era, Fault, FaultyMCPServer

TIMEOUT = 120
"""The longest that anything here may take on a busy machine."""
BIGGEST_LINE = 64 * 1024 * 1024

MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def build_request(number: int, method: str, era: Era, **params: Any) -> dict[str, Any]:
    """Return a request as a client of the era writes it."""
    if era == "modern":
        params["_meta"] = MODERN_META
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


class RawPipes:
    """A server process, and its lines."""

    def __init__(self, process: asyncio.subprocess.Process, era: Era) -> None:
        self.process = process
        self.era: Era = era
        self._numbers = count(1)

    def send(self, method: str, **params: Any) -> int:
        """Send a request and return its id."""
        number = next(self._numbers)
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(build_request(number, method, self.era, **params)).encode() + b"\n")
        return number

    def call(self, tool: str = "echo", **arguments: Any) -> int:
        """Send a tool call and return its id."""
        return self.send("tools/call", name=tool, arguments=arguments or {"text": "hello"})

    async def read_line(self) -> bytes:
        """Return the next line, or what there is of one at the end."""
        assert self.process.stdout is not None
        async with asyncio.timeout(TIMEOUT):
            return await self.process.stdout.readline()

    async def read_message(self) -> dict[str, Any]:
        """Return the next line as a message."""
        message: dict[str, Any] = json.loads(await self.read_line())
        return message

    async def shake_hands(self) -> dict[str, Any]:
        """Do the handshake of the era."""
        if self.era == "modern":
            self.send("server/discover")
        else:
            self.send("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "t"})
        return await self.read_message()

    async def wait_exit_code(self) -> int:
        """Return the exit code when the process has ended."""
        async with asyncio.timeout(TIMEOUT):
            return await self.process.wait()

    async def read_stderr(self) -> bytes:
        """Return all of stderr when the process has ended."""
        assert self.process.stderr is not None
        async with asyncio.timeout(TIMEOUT):
            return await self.process.stderr.read()

    def end_input(self) -> None:
        """Close the server's standard input."""
        assert self.process.stdin is not None
        self.process.stdin.close()


@asynccontextmanager
async def start_raw_pipes(mode: Fault, era: Era = "legacy", **options: Any) -> AsyncIterator[RawPipes]:
    """Start the server as a process, and kill it in the end."""
    async with start_raw_command(FaultyMCPServer.command(mode, era=era, **options), era) as pipes:
        yield pipes


@asynccontextmanager
async def start_raw_command(
    command: list[str], era: Era = "legacy", env: dict[str, str] | None = None
) -> AsyncIterator[RawPipes]:
    """Start a command, and kill it in the end."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=pipe, limit=BIGGEST_LINE, env=env
    )
    pipes = RawPipes(process, era)
    try:
        yield pipes
    finally:
        if process.returncode is None:
            process.kill()
        pipes.end_input()
        await process.communicate()
