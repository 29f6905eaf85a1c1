"""Gateways as processes of their own on one storage: started, killed, and started again under the same name."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

MAX_LOG_LINES = 200  # lines of a gateway's log that are stored


class GatewayProcess:
    """One `holodeck serve`. Its port is another after each start."""

    def __init__(self, file: Path, environ: Mapping[str, str] | None = None) -> None:
        self._file = file
        self.environ = environ or {}
        self._process: Process | None = None
        self._log_reader: asyncio.Task[None] | None = None
        self.url: str | None = None
        """None while it does not answer."""
        self._answers_event = asyncio.Event()
        self.log_lines: deque[str] = deque(maxlen=MAX_LOG_LINES)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start it. `wait_ready` returns when it answers."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLODECK_")}
        environ["HOLODECK_TRUST"] = "all"
        environ.pop("PYTHONDONTWRITEBYTECODE", None)  # it would have everything compiled again at every start
        environ |= self.environ
        command = (sys.executable, "-m", "holodeck", "serve", str(self._file))
        self._process = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, env=environ
        )
        assert self._process.stderr is not None
        self._log_reader = asyncio.create_task(self._read(self._process.stderr))

    async def wait_ready(self) -> None:
        """Wait until it answers. Raises when it ends before, unless it is killed."""
        await self._answers_event.wait()
        if self.url is None and self._process is not None:
            raise RuntimeError("A gateway ended by itself:\n" + "".join(self.log_lines))

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> int | None:
        """End it, and return its exit code when it has ended; None if it was not running."""
        process, self._process = self._process, None
        self.url = None
        if process is None:
            return None
        if process.returncode is None:
            process.send_signal(number)
        code = await process.wait()
        if self._log_reader is not None:
            await self._log_reader
        self._answers_event.clear()
        return code

    async def pause(self, seconds: float) -> None:
        """Stop it for a while, as a machine that is suspended does: nothing that it has open is closed."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        process.send_signal(signal.SIGCONT)

    async def _read(self, stderr: asyncio.StreamReader) -> None:
        while line := (await stderr.readline()).decode(errors="replace"):
            self.log_lines.append(line)
            found = re.search(r"Serving .* at (http://\S+)/v1", line)
            if found:
                self.url = found[1]
                self._answers_event.set()
        self.url = None
        self._answers_event.set()


def write_gateway_file(path: Path, *, model: str, tools: str, storage: str, **more: Any) -> Path:
    """A gateway file for a model and an MCP server at these addresses. `more` is more of the file."""
    llm = {"provider": "openai_compatible", "name": "scripted", "endpoint": model}
    server = {"name": "tools", "type": "mcp", "description": "Tools.", "transport": "http", "url": tools}
    path.write_bytes(
        orjson.dumps(
            {
                "listen": {"port": 0},
                "models": [{"name": "demo", "model": llm}],
                "mcp_servers": [server | more.pop("tools_entry", {})] if tools else [],
                "storage": {"url": storage},
                **more,
            }
        )
    )
    return path
