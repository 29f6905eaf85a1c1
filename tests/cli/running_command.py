"""`holodeck run --durable` as a process that goes on beside a test, and is killed by it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agent_project import AgentProject
from forked_process import ForkedProcess, fork
from holodeck_command import INHERITED
from warm_holodeck import can_fork

from holodeck.testing.model.scripted import ScriptedServer


class RunningCommand:
    """A command that runs."""

    def __init__(self, process: ForkedProcess) -> None:
        self.process = process
        self.stderr_text = ""

    async def wait_run_id(self) -> str:
        """The id that it tells at the start."""
        return (await self.wait_stderr(r"run_[0-9a-f]{40}"))[0]

    async def wait_stderr(self, pattern: str) -> re.Match[str]:
        """Wait until it has said so on stderr."""
        while not (found := re.search(pattern, self.stderr_text)):
            line = await self.process.stderr.readline()
            assert line, f"it ended without {pattern!r}: {self.stderr_text}"
            self.stderr_text += line.decode()
        return found

    async def wait_exit(self, number: signal.Signals | None = None) -> tuple[int, str, str]:
        """Its exit code, stdout and stderr, after a signal if there is one."""
        if number is not None:
            self.process.send_signal(number)
        out, err = await self.process.communicate()
        return await self.process.wait(), out.decode(), self.stderr_text + err.decode()


@asynccontextmanager
async def start_command(project: AgentProject, *args: str) -> AsyncIterator[RunningCommand]:
    """The command, killed at the end if it still runs."""
    environ = {name: os.environ[name] for name in INHERITED if name in os.environ}
    assert can_fork(project.env)
    process = await fork(args, cwd=project.path, environ={**environ, "HOME": str(project.path.parent), **project.env})
    try:
        yield RunningCommand(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def wait_model_requests(model: ScriptedServer, times: int) -> None:
    """Wait until the model has received this many requests."""
    while len(model.received) < times:  # noqa: ASYNC110 - it is asked by another process
        await asyncio.sleep(0.02)


async def list_runs(project: AgentProject) -> list[dict[str, Any]]:
    """What `holodeck runs list` says, to a program."""
    done = await project.run_holodeck("runs", "list", "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found
