"""A folder with an `mcp.json` whose commands are fakes: npx works, uvx fails, docker is missing."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from holodeck_command import run_holodeck
from patience import patience

from holodeck.testing import FaultyMCPServer, read_pids, stand_in

TIMEOUT = 120.0  # for an event that comes at once on an idle machine
KILLED_SECONDS = 1.0  # for a process that was killed to end; one that is left behind is reaped after two seconds
NPX = {"command": "npx", "args": ["-y", "some-server"]}
UVX = {"command": "uvx", "args": ["some-server"]}
DOCKER = {"command": "docker", "args": ["run", "-i", "--rm", "some/server"]}


class MCPProject:
    """The folder, and the command in it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "project"
        self.path.mkdir()
        self.programs = folder / "bin"
        self._npx_pids = folder / "pids"
        self._uvx_pids = folder / "news"
        os.mkfifo(self._uvx_pids)
        self._uvx_pid_pipe = os.open(self._uvx_pids, os.O_RDWR | os.O_NONBLOCK)
        self._uvx_pid_text = ""
        self.set_npx_server("normal")

    def set_npx_server(self, mode: str, **options: Any) -> None:
        """What npx starts."""
        stand_in(self.programs, FaultyMCPServer.command(mode, pid_file=self._npx_pids, **options), name="npx")

    def set_uvx_server(self, mode: str, **options: Any) -> None:
        """What uvx starts."""
        stand_in(self.programs, FaultyMCPServer.command(mode, pid_file=self._uvx_pids, **options), name="uvx")

    def set_uvx_program(self, text: str) -> None:
        """What uvx starts: a Python program."""
        file = self.path / "server.py"
        file.write_text(text)
        stand_in(self.programs, [sys.executable, str(file)], name="uvx")

    def write_servers(self, **servers: Mapping[str, Any]) -> None:
        (self.path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))

    def write_gateway(self, own: Mapping[str, Mapping[str, Any]], **agents: Mapping[str, Mapping[str, Any]]) -> None:
        """A `gateway.yaml` with its own servers, and an agent file for each agent with its servers."""
        # JSON is YAML.
        for name, servers in agents.items():
            (self.path / f"{name}.yaml").write_text(json.dumps({"name": name, "tools": _tool_list(servers)}))
        gateway = {"agents": [{"file": f"{name}.yaml"} for name in agents], "mcp_servers": _tool_list(own)}
        (self.path / "gateway.yaml").write_text(json.dumps(gateway))

    @property
    def env(self) -> dict[str, str]:
        return {"PATH": str(self.programs), "COLUMNS": "200"}

    def run_mcp(self, *args: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return run_holodeck("mcp", *args, cwd=self.path, env=self.env, stdin=stdin)

    @contextmanager
    def start_mcp(self, *args: str, stderr: int | IO[bytes] = subprocess.PIPE) -> Iterator[subprocess.Popen[bytes]]:
        """The command while it runs."""
        command = [sys.executable, "-m", "holodeck", "mcp", *args]
        env = {**self.env, "HOME": str(self.path), "PYTHONUNBUFFERED": "1", "HOLODECK_TRUST": "all"}
        with subprocess.Popen(
            command, cwd=self.path, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def wait_uvx_started(self) -> None:
        """Wait for the process that uvx stands for."""
        assert select.select([self._uvx_pid_pipe], [], [], TIMEOUT)[0], "it did not start in time"

    def running_servers(self) -> list[int]:
        """The processes of servers that are still there, once those that were killed had the time to end."""
        with suppress(BlockingIOError):
            self._uvx_pid_text += os.read(self._uvx_pid_pipe, 4096).decode()
        pids = [int(pid) for pid in self._uvx_pid_text.split()] + (
            read_pids(self._npx_pids) if self._npx_pids.exists() else []
        )
        deadline = time.monotonic() + patience(KILLED_SECONDS)
        while (running := [pid for pid in pids if is_running(pid)]) and time.monotonic() < deadline:
            time.sleep(0.02)
        return running

    def close(self) -> None:
        os.close(self._uvx_pid_pipe)


def interrupt(process: subprocess.Popen[bytes]) -> int:
    """Ctrl-C, and the exit code."""
    process.send_signal(signal.SIGINT)
    return process.wait(TIMEOUT)


def _tool_list(servers: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "mcp", "name": name, "description": "d", **server} for name, server in servers.items()]


def is_running(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return not (Path(f"/proc/{pid}/stat").exists() and ") Z " in Path(f"/proc/{pid}/stat").read_text())
    return False
