"""Kills gateways while background responses with side effects are made: all are finished, and nothing is done twice.

Gateways are also stopped for a while and go on (SIGSTOP), their model breaks off in the middle of answers, and the
network to PostgreSQL loses answers to commits.

`python -m bench.chaos_runs [--responses N] [--kills N] [--stops N] [--losses N] [--seed N] [--storage NAME]`:
without a storage, one gateway on SQLite and then two on PostgreSQL, of which either is killed or stopped. The exit code
is 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from bench.chaos_model import ChaosModel
from bench.chaos_tools import IDEMPOTENT
from bench.chaos_verdict import Event, Verdict, judge_run
from bench.gateway_process import GatewayProcess, write_gateway_file
from bench.postgres import lossy_network, running_postgres
from bench.table import print_table
from holodeck.testing.model.scripted import ScriptedServer

RESPONSES = 100
KILLS = 20
STOPS = 4
LOSSES = 4  # of answers to commits; with PostgreSQL only
GATEWAYS = {"sqlite": 1, "postgres": 2}
READERS = 10  # responses whose streams are read while gateways die
AT_ONCE = 12  # runs that a gateway begins: so that some always wait, and those are killed as well
LIFE = 2.0  # seconds at most that a gateway answers before it is killed
EARLY = 0.15  # of the kills happen while the gateway is still starting, ...
STARTING = 1.5  # ... within as many seconds
STOPPED = 13.0  # seconds at most that a gateway is stopped: longer than it waits for its database
ENDED = ("completed", "failed", "cancelled", "incomplete")
FINISHED_WITHIN = 150.0  # seconds after the last kill
SHOWN_PROBLEMS = 20


Fault = Callable[[], Awaitable[None]]
"""Makes one fault, and returns when it is over."""


class Chaos:
    """One storage, the gateways on it, and the jobs that are done meanwhile."""

    def __init__(self, gateways: list[GatewayProcess], options: argparse.Namespace, lose_commit: Fault | None) -> None:
        self._gateways = gateways
        self._responses = options.responses
        self._random = random.Random(options.seed)
        self._faults: list[Fault] = [*[self._kill] * options.kills, *[self._stop] * options.stops]
        if lose_commit is not None:
            self._faults += [lose_commit] * options.losses
        self._random.shuffle(self._faults)
        self._submit_permits = asyncio.Semaphore(0)
        self.response_ids: dict[str, str] = {}
        """The response of each job that was answered for."""
        self.unanswered = 0
        self.followed_events: dict[str, list[Event]] = {}
        self._session: aiohttp.ClientSession

    async def run(self) -> tuple[dict[str, Any], dict[str, list[Event]]]:
        """The finished responses and their streams, by job."""
        timeout = aiohttp.ClientTimeout(total=None, sock_read=30)
        async with aiohttp.ClientSession(timeout=timeout) as self._session:
            for gateway in self._gateways:
                await gateway.start()
            await asyncio.gather(*(gateway.wait_ready() for gateway in self._gateways))
            async with asyncio.TaskGroup() as group:
                group.create_task(self._submit_all(group))
                group.create_task(self._make_faults())
            finals = {job: await self._wait_ended(response_id) for job, response_id in self.response_ids.items()}
            streams = {job: await self._read_stream(response_id, -1) for job, response_id in self.response_ids.items()}
            await self._wait_all_ended()
        return finals, streams

    async def _make_faults(self) -> None:
        released = 0
        for number, fault in enumerate(self._faults, start=1):
            while released < self._responses * number // len(self._faults):
                self._submit_permits.release()
                released += 1
            await fault()
            if number % 5 == 0:
                print(f"  {number} faults, {len(self.response_ids)} responses begun", flush=True)

    async def _kill(self) -> None:
        gateway = self._random.choice(self._gateways)
        if self._random.random() < EARLY:
            await asyncio.sleep(self._random.uniform(0, STARTING))
        else:
            await gateway.wait_ready()
            await asyncio.sleep(self._random.uniform(0, LIFE))
        await gateway.kill()
        await gateway.start()

    async def _stop(self) -> None:
        gateway = self._random.choice(self._gateways)
        await gateway.wait_ready()
        await asyncio.sleep(self._random.uniform(0, LIFE))
        await gateway.pause(self._random.uniform(0, STOPPED))

    async def _submit_all(self, group: asyncio.TaskGroup) -> None:
        for number in range(self._responses):
            await self._submit_permits.acquire()
            group.create_task(self._submit(number, group))

    async def _submit(self, number: int, group: asyncio.TaskGroup) -> None:
        """A client without an answer requests another job: the first one was not acknowledged."""
        for attempt in range(1, 1000):
            job = f"{number}.{attempt}"
            body = {"model": "demo", "input": f"Do job {job}", "background": True}
            try:
                async with self._session.post(f"{await self._pick_url()}/v1/responses", json=body) as answer:
                    answer.raise_for_status()
                    self.response_ids[job] = (await answer.json())["id"]
                break
            except (aiohttp.ClientError, OSError):
                self.unanswered += 1
        if number % (self._responses // min(READERS, self._responses)) == 0:
            group.create_task(self._follow(job))

    async def _follow(self, job: str) -> None:
        """A reader that reconnects after every crash and requests the events that it has not received."""
        events = self.followed_events[job] = []
        while not events or events[-1]["type"].removeprefix("response.") not in ENDED:
            events += await self._read_stream(self.response_ids[job], len(events) - 1)

    async def _read_stream(self, response_id: str, after: int) -> list[Event]:
        """What can be read of a stream in one go."""
        events: list[Event] = []
        path = f"/v1/responses/{response_id}?stream=true&starting_after={after}"
        try:
            async with self._session.get(await self._pick_url() + path) as answer:
                answer.raise_for_status()
                async for line in answer.content:
                    if line.startswith(b"data: {") and line.endswith(b"\n"):
                        events.append(orjson.loads(line[6:]))
        except (aiohttp.ClientError, OSError, TimeoutError):
            await asyncio.sleep(0.05)
        return events

    async def _wait_ended(self, response_id: str) -> dict[str, Any]:
        """A response, once it has ended; as it is, when that takes too long."""
        deadline = time.monotonic() + FINISHED_WITHIN
        while True:
            try:
                async with self._session.get(f"{await self._pick_url()}/v1/responses/{response_id}") as answer:
                    found: dict[str, Any] = await answer.json()
                if found.get("status") in ENDED or time.monotonic() > deadline:
                    return found
            except (aiohttp.ClientError, OSError):
                pass
            await asyncio.sleep(0.1)

    async def _wait_all_ended(self) -> None:
        """Wait also for the jobs whose request got no answer: they are done all the same."""
        deadline = time.monotonic() + FINISHED_WITHIN
        statuses = ["in_progress", "queued"]  # the last first: a run that is not queued any more is in progress
        while statuses and time.monotonic() < deadline:
            path = f"/v1/runs?status={statuses[-1]}&limit=1"
            async with self._session.get(await self._pick_url() + path) as answer:
                answer.raise_for_status()
                if (await answer.json())["data"]:
                    await asyncio.sleep(0.1)
                else:
                    statuses.pop()

    async def _pick_url(self) -> str:
        """Any gateway that answers, as a load balancer picks one."""
        while not (urls := [gateway.url for gateway in self._gateways if gateway.url]):  # noqa: ASYNC110 - elsewhere
            await asyncio.sleep(0.02)
        return self._random.choice(urls)


@asynccontextmanager
async def _run_tool_server(journal: Path) -> AsyncIterator[str]:
    command = [sys.executable, "-m", "bench.chaos_tools", str(journal)]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()


async def run_chaos_on(storage: str, options: argparse.Namespace) -> bool:
    """Everything on one storage; True if every check passed."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holodeck-chaos-")))
        url, environ, lose_commit = f"sqlite:///{folder}/chaos.db", {}, None
        if storage == "postgres":
            server = stack.enter_context(running_postgres())
            network, port = await stack.enter_async_context(lossy_network(server.port))
            database = await asyncio.to_thread(server.new_database)
            url, environ = "${DATABASE_URL}", {"DATABASE_URL": database.replace(f":{server.port}/", f":{port}/")}
            lose_commit = network.lose_commit
        journal, model = folder / "journal", ChaosModel(options.seed)
        scripted: ScriptedServer = await stack.enter_async_context(model.build().serve())
        tools = await stack.enter_async_context(_run_tool_server(journal))
        file = write_gateway_file(
            folder / "gateway.yaml",
            model=scripted.url,
            tools=tools,
            storage=url,
            tools_entry={"idempotent_tools": list(IDEMPOTENT)},
            background={"durable": True, "at_once": AT_ONCE},
            limits={"key": {"in_flight": 1000}},
        )
        gateways = [GatewayProcess(file, environ) for _ in range(GATEWAYS[storage])]
        chaos = Chaos(gateways, options, lose_commit)
        began = time.monotonic()
        try:
            finals, streams = await chaos.run()
        finally:
            for gateway in gateways:
                await gateway.kill()
        requests = [received.json for received in scripted.received]
        verdict = judge_run(journal, requests, finals, streams, chaos.followed_events)
        completed = sum(final.get("status") == "completed" for final in finals.values())
        faults = [
            ["gateways killed", str(options.kills)],
            ["gateways stopped and continued", str(options.stops)],
            ["answers to commits lost", str(options.losses if lose_commit is not None else 0)],
            ["answers that the model broke off", str(model.broken)],
        ]
        _show(storage, len(gateways), options, completed, chaos, verdict, faults, time.monotonic() - began)
        if verdict.broken:
            _explain(verdict, gateways)
    return not verdict.broken and completed == options.responses


def _show(
    storage: str,
    gateways: int,
    options: argparse.Namespace,
    completed: int,
    chaos: Chaos,
    verdict: Verdict,
    faults: list[list[str]],
    seconds: float,
) -> None:
    rows = [
        ["responses completed", f"{completed} of {options.responses}"],
        *faults,
        ["requests that a kill left without an answer", str(chaos.unanswered)],
        ["turns asked again", str(verdict.repeated_requests)],
        ["calls executed, by the tools' journal", str(verdict.executed)],
        ["repeated with the same key", str(verdict.repeated)],
        ["told to the model as unknown", f"{verdict.unknown}, of which {verdict.unknown_done} had taken effect"],
        ["lost", str(verdict.lost)],
        ["duplicated without a key", str(verdict.duplicated)],
        [
            "gaps in streams",
            f"{verdict.gaps} in {completed}, {len(chaos.followed_events)} of them followed through the crashes",
        ],
        ["seconds", f"{seconds:.0f}"],
    ]
    title = f"faults of {gateways} gateway{'s' if gateways > 1 else ''} on {storage} (seed {options.seed})"
    print_table(title, ["what", "measured"], rows)


def _explain(verdict: Verdict, gateways: list[GatewayProcess]) -> None:
    for problem in verdict.broken[:SHOWN_PROBLEMS]:
        print(f"  BROKEN: {problem}")
    if len(verdict.broken) > SHOWN_PROBLEMS:
        print(f"  ... and {len(verdict.broken) - SHOWN_PROBLEMS} more")
    for gateway in gateways:
        lines = [line.rstrip() for line in gateway.log_lines if "Serving" not in line and "No keys" not in line]
        print("  last words of a gateway:", *lines[-SHOWN_PROBLEMS:], sep="\n    ")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.chaos_runs", description=__doc__)
    parser.add_argument("--responses", type=int, default=RESPONSES)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--stops", type=int, default=STOPS)
    parser.add_argument("--losses", type=int, default=LOSSES)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(2)))
    parser.add_argument("--storage", choices=GATEWAYS, action="append")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    passed = [asyncio.run(run_chaos_on(storage, options)) for storage in options.storage or GATEWAYS]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
