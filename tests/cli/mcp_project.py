"""A folder with an `mcp.json` whose commands are stand-ins: npx is well, uvx is ill, docker is not there."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from terminal import holodeck

from holodeck.testing import FaultyMCPServer, read_pids, stand_in

LIMIT = 45.0  # for an event that comes at once on an idle machine
NPX = {"command": "npx", "args": ["-y", "some-server"]}
UVX = {"command": "uvx", "args": ["some-server"]}
DOCKER = {"command": "docker", "args": ["run", "-i", "--rm", "some/server"]}


class Project:
    """The folder, and the command in it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "project"
        self.path.mkdir()
        self.programs = folder / "bin"
        self._well = folder / "pids"
        self._ill = folder / "news"
        os.mkfifo(self._ill)
        self._news = os.open(self._ill, os.O_RDWR | os.O_NONBLOCK)
        self._heard = ""
        self.well("normal")

    def well(self, mode: str, **options: Any) -> None:
        """What npx starts."""
        stand_in(self.programs, FaultyMCPServer.command(mode, pid_file=self._well, **options), name="npx")

    def ill(self, mode: str, **options: Any) -> None:
        """What uvx starts."""
        stand_in(self.programs, FaultyMCPServer.command(mode, pid_file=self._ill, **options), name="uvx")

    def program(self, text: str) -> None:
        """What uvx starts: a Python program."""
        file = self.path / "server.py"
        file.write_text(text)
        stand_in(self.programs, [sys.executable, str(file)], name="uvx")

    def servers(self, **servers: Mapping[str, Any]) -> None:
        (self.path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))

    @property
    def env(self) -> dict[str, str]:
        return {"PATH": str(self.programs), "COLUMNS": "200"}

    def run(self, *args: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return holodeck("mcp", *args, cwd=self.path, env=self.env, stdin=stdin)

    @contextmanager
    def started(self, *args: str, stderr: int | IO[bytes] = subprocess.PIPE) -> Iterator[subprocess.Popen[bytes]]:
        """The command while it runs."""
        command = [sys.executable, "-m", "holodeck", "mcp", *args]
        env = {**self.env, "HOME": str(self.path), "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(
            command, cwd=self.path, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def until_ill_started(self) -> None:
        """Wait for the process that uvx stands for."""
        assert select.select([self._news], [], [], LIMIT)[0], "it did not start in time"

    def processes(self) -> list[int]:
        """The processes of servers that are still there."""
        with suppress(BlockingIOError):
            self._heard += os.read(self._news, 4096).decode()
        pids = [int(pid) for pid in self._heard.split()] + (read_pids(self._well) if self._well.exists() else [])
        return [pid for pid in pids if _is_there(pid)]

    def close(self) -> None:
        os.close(self._news)


def interrupt(process: subprocess.Popen[bytes]) -> int:
    """Ctrl-C, and the exit code."""
    process.send_signal(signal.SIGINT)
    return process.wait(LIMIT)


def _is_there(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return not (Path(f"/proc/{pid}/stat").exists() and ") Z " in Path(f"/proc/{pid}/stat").read_text())
    return False
