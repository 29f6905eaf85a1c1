"""Fills the disk of a gateway while responses with tools are made: no tool acts for a response that is not stored.

`python -m bench.chaos_full_disk [--times N] [--seed N]`: half a minute. Writes of the gateway to files fail from a
random moment on, for a while, and then succeed again. The exit code is 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

from bench.gateway_process import GatewayProcess, write_gateway_file
from bench.table import print_table
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say
from holodeck.testing.model.script import Turn
from holodeck.testing.model.scripted import Received

TIMES = 10  # that the disk is full
AT_ONCE = 8  # clients, each of which asks again at once
LONGEST = 1.5  # seconds that the disk is full, or that it is not
RECOVERED_WITHIN = 30.0  # seconds after the last time


def _turn(received: Received) -> Turn:
    messages = received.json["messages"]
    if messages[-1]["role"] == "tool":
        return [say("Done.")]
    return [call("add", a=int(messages[-1]["content"].rpartition(" ")[2]), b=0)]


class FullDisk:
    """One gateway, the clients that ask it, and the disk that is full at times."""

    def __init__(self, gateway: GatewayProcess, *, times: int, seed: int) -> None:
        self._gateway = gateway
        self._times = times
        self._random = random.Random(seed)
        self._jobs = count(1)
        self._is_over = False
        self.statuses: Counter[int] = Counter()
        """The replies by their HTTP status."""
        self.unready = 0
        """How often the gateway said that it is not ready, at the end of a time with a full disk."""
        self._session: aiohttp.ClientSession

    async def run(self) -> tuple[bool, dict[int, str]]:
        """Whether the gateway is ready again at the end, and the status of each stored job by its number."""
        await self._gateway.start()
        await self._gateway.wait_ready()
        async with aiohttp.ClientSession() as self._session, asyncio.TaskGroup() as group:
            clients = [group.create_task(self._ask()) for _ in range(AT_ONCE)]
            for _ in range(self._times):
                await asyncio.sleep(self._random.uniform(0.1, LONGEST))
                self._fill_disk(is_full=True)
                await asyncio.sleep(self._random.uniform(0.3, LONGEST))
                self.unready += await self._read_status("/readyz") == 503
                self._fill_disk(is_full=False)
            self._is_over = True
            await asyncio.wait(clients)
            deadline = time.monotonic() + RECOVERED_WITHIN
            stored = await self._read_jobs()
            while time.monotonic() < deadline and "in_progress" in stored.values():
                await asyncio.sleep(0.1)
                stored = await self._read_jobs()
            is_ready = False
            while time.monotonic() < deadline and not is_ready:
                is_ready = await self._read_status("/readyz") == 200
            return is_ready, stored

    def _fill_disk(self, *, is_full: bool) -> None:
        _, hard = resource.prlimit(self._gateway.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._gateway.pid, resource.RLIMIT_FSIZE, (0 if is_full else hard, hard))

    async def _ask(self) -> None:
        while not self._is_over:
            body = {"model": "demo", "input": f"Do job {next(self._jobs)}"}
            async with self._session.post(f"{self._gateway.url}/v1/responses", json=body) as answer:
                await answer.read()
            self.statuses[answer.status] += 1
            # A client waits before it asks a gateway again that cannot store.
            await asyncio.sleep(0.01 if answer.status == 200 else 0.1)

    async def _read_status(self, path: str) -> int:
        async with self._session.get(f"{self._gateway.url}{path}") as answer:
            return answer.status

    async def _read_jobs(self) -> dict[int, str]:
        found: dict[int, str] = {}
        page: dict[str, Any] = {"has_more": True, "last_id": ""}
        while page["has_more"]:
            after = f"&after={page['last_id']}" if page["last_id"] else ""
            async with self._session.get(f"{self._gateway.url}/v1/runs?limit=100{after}") as answer:
                page = await answer.json()
            found |= {int(run["question"].rpartition(" ")[2]): run["status"] for run in page["data"]}
        return found


async def run_full_disk(options: argparse.Namespace) -> bool:
    """The whole run; True if every promise was kept."""
    with tempfile.TemporaryDirectory(prefix="holodeck-full-disk-") as folder:
        async with FaultyMCPServer() as server, ScriptedModel(_turn).serve() as scripted:
            file = write_gateway_file(
                Path(folder) / "gateway.yaml",
                model=scripted.url,
                tools=server.url,
                storage=f"sqlite:///{folder}/chaos.db",
            )
            gateway = GatewayProcess(file)
            chaos = FullDisk(gateway, times=options.times, seed=options.seed)
            try:
                is_ready, stored = await chaos.run()
            finally:
                await gateway.kill()
            acted = [int(received.params["arguments"]["a"]) for received in server.calls("add")]
    broken = [f"a tool acted for job {job}, which is not stored" for job in acted if job not in stored]
    broken += [f"job {job} is in progress for ever" for job, status in stored.items() if status == "in_progress"]
    if not is_ready:
        broken.append("the gateway is not ready although there is room")
    rows = [
        ["times that the disk was full", str(options.times)],
        ["of these, the gateway was unready at the end of", str(chaos.unready)],
        ["replies by status", ", ".join(f"{status}: {each}" for status, each in sorted(chaos.statuses.items()))],
        ["calls of tools", str(len(acted))],
        ["stored responses", ", ".join(f"{status}: {each}" for status, each in Counter(stored.values()).items())],
        ["broken promises", str(len(broken))],
    ]
    print_table(f"a disk that is full at times (seed {options.seed})", ["what", "measured"], rows)
    for problem in broken:
        print(f"  BROKEN: {problem}")
    return not broken


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.chaos_full_disk", description=__doc__)
    parser.add_argument("--times", type=int, default=TIMES)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(2)))
    return 0 if asyncio.run(run_full_disk(parser.parse_args())) else 1


if __name__ == "__main__":
    sys.exit(main())
