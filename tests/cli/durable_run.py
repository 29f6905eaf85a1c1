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

from agents import Project
from forked_process import ForkedProcess, fork
from warm_holodeck import can_fork

from holodeck.testing.scripted_server import ScriptedServer

_KEPT = ("PATH", "LANG", "SSL_CERT_FILE")


class Begun:
    """A command that runs."""

    def __init__(self, process: ForkedProcess) -> None:
        self.process = process
        self.said = ""

    async def run_id(self) -> str:
        """The id that it tells at the start."""
        return (await self.says(r"run_[0-9a-f]{32}"))[0]

    async def says(self, pattern: str) -> re.Match[str]:
        """Wait until it has said so on stderr."""
        while not (found := re.search(pattern, self.said)):
            line = await self.process.stderr.readline()
            assert line, f"it ended without {pattern!r}: {self.said}"
            self.said += line.decode()
        return found

    async def ends(self, number: signal.Signals | None = None) -> tuple[int, str, str]:
        """Its exit code, stdout and stderr, after a signal if there is one."""
        if number is not None:
            self.process.send_signal(number)
        out, err = await self.process.communicate()
        return await self.process.wait(), out.decode(), self.said + err.decode()


@asynccontextmanager
async def begun(project: Project, *args: str) -> AsyncIterator[Begun]:
    """The command, killed at the end if it still runs."""
    environ = {name: os.environ[name] for name in _KEPT if name in os.environ}
    assert can_fork(project.env)
    process = await fork(args, cwd=project.path, environ={**environ, "HOME": str(project.path.parent), **project.env})
    try:
        yield Begun(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def asked(model: ScriptedServer, times: int) -> None:
    """Wait until the model has been asked so many times."""
    while len(model.received) < times:  # noqa: ASYNC110 - it is asked by another process
        await asyncio.sleep(0.02)


async def listed(project: Project) -> list[dict[str, Any]]:
    """What `holodeck runs list` says, to a program."""
    done = await project.holodeck("runs", "list", "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found
