"""`holodeck mcp serve` as a client sees it that has started it: a process that reads and writes lines."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from agent_project import AgentProject
from forked_process import ForkedProcess, fork
from holodeck_command import INHERITED

VERSION = "2025-11-25"


class ServedFile:
    """The process, message by message."""

    def __init__(self, process: ForkedProcess, stdin: int) -> None:
        self.process = process
        self._stdin = stdin

    async def write(self, data: bytes) -> None:
        """Write to its standard input, however long it takes to read it."""
        view = memoryview(data)
        while view:
            view = view[await asyncio.to_thread(os.write, self._stdin, view) :]

    async def send(self, message: Any) -> None:
        await self.write(json.dumps(message).encode() + b"\n")

    async def receive(self) -> dict[str, Any]:
        """The next message. A line that is none fails here."""
        line = await self.process.stdout.readline()
        assert line, f"it has ended: {(await self.process.stderr.read()).decode()}"
        message: dict[str, Any] = json.loads(line)
        return message

    async def request(self, method: str, request_id: int | str = 1, **params: Any) -> dict[str, Any]:
        """The response to a request; what comes before it is not looked at."""
        await self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        while (message := await self.receive()).get("id") != request_id or "method" in message:
            pass
        return message

    async def initialize(self, **capabilities: Any) -> None:
        about = {"name": "raw", "version": "1"}
        await self.request("initialize", protocolVersion=VERSION, capabilities=capabilities, clientInfo=about)
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def start_call(self, name: str, request_id: int = 1, **arguments: Any) -> None:
        """Send a call without waiting for its response."""
        params = {"name": name, "arguments": arguments}
        await self.send({"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params})

    async def call(self, name: str, **arguments: Any) -> str:
        """The text of the result of a call."""
        result = (await self.request("tools/call", name=name, arguments=arguments))["result"]
        return "\n".join(block["text"] for block in result["content"])

    async def list_tools(self) -> list[str]:
        return [tool["name"] for tool in (await self.request("tools/list"))["result"]["tools"]]

    def close_stdin(self) -> None:
        """Leave, as a client does."""
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    async def wait_exit(self) -> tuple[int, str, str]:
        """Its exit code, and the rest of its standard output and error."""
        out, err = await self.process.communicate()
        return await self.process.wait(), out.decode(), err.decode()


@asynccontextmanager
async def serve_file(
    project: AgentProject, *options: str, environ: Mapping[str, str] | None = None, stdin: int | None = None
) -> AsyncIterator[ServedFile]:
    """The process for the agent file of a project; killed at the end if it still runs.

    `stdin`: a file descriptor instead of a pipe.
    """
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    env = {**inherited, "HOME": str(project.path.parent), **project.env, **(environ or {})}
    theirs, ours = os.pipe() if stdin is None else (stdin, -1)
    args = ["mcp", "serve", str(project.path / "agent.yaml"), *options]
    process = await fork(args, cwd=project.path, environ=env, stdin=theirs)
    served = ServedFile(process, ours)
    try:
        yield served
    finally:
        served.close_stdin()
        if process.returncode is None:
            process.kill()
            await process.communicate()
