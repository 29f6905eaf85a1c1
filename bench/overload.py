"""What a gateway still does under more load than it carries: its answers a second, and how soon a probe is answered.

First the rate that it carries, by clients that wait for their answers. Then requests come at a multiple of that rate,
whether the earlier ones are answered or not, on connections that are open already; `/healthz` is asked five times a
second by another process. At last come large bodies, all at once, which make single turns of the event loop long. The
ratios count.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from bench.gateway_targets import KEY, Target, run_holodeck
from bench.http_load import LoadConnection, encode_post, open_connections, run_load
from bench.processes import ROOT, module_command, run_server
from bench.table import print_table

SECONDS = 5.0
FACTORS = "1,3"
AT_ONCE = 32
CONNECTIONS = 4_000
"""Open connections, each with one request at a time. While all of them wait, requests count as unsent."""
_CARRIED_REQUESTS = 1_500
LARGE_BODIES = 100
"""Bodies of 600 kB with 6,000 messages each: a tenth of a second of CPU for each, on a small machine."""
_LARGE_MESSAGES = 6_000
_TICK = 0.01
# Answers that come after the load has ended are waited for, so that the next one finds an idle gateway.
_REST_SECONDS = 60.0


@dataclass(kw_only=True)
class Outcome:
    """What came of the requests of one load."""

    load: str
    due: int = 0
    answered: int = 0
    """With 200, while the load lasted."""
    statuses: Counter[str] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)
    """Seconds of each answer with 200."""
    probes: list[float] = field(default_factory=list)


async def measure_rate(target: Target) -> float:
    """Requests a second that the gateway carries."""
    plan = target.plan_requests("plain")
    async with open_connections(target.url, AT_ONCE) as connections:
        await run_load(connections, plan, AT_ONCE * 4)  # what is made on first use is made
        return (await run_load(connections, plan, _CARRIED_REQUESTS)).rate


async def overload(target: Target, idle: list[LoadConnection], rate: float, outcome: Outcome, seconds: float) -> None:
    """Let `rate` requests a second come for so many seconds."""
    request = target.plan_requests("plain").requests[0]
    began = time.perf_counter()
    ends_at = began + seconds

    async def send(connection: LoadConnection) -> None:
        sent_at = time.perf_counter()
        try:
            answer = await connection.send(request)
        except OSError as error:
            outcome.statuses[type(error).__name__] += 1
            return
        now, status = time.perf_counter(), answer[9:12].decode()
        outcome.statuses[status] += 1
        if status == "200":
            outcome.waits.append(now - sent_at)
            outcome.answered += now <= ends_at
        idle.append(connection)

    tasks: set[asyncio.Task[None]] = set()
    while (now := time.perf_counter()) < ends_at:
        for _ in range(int((now - began) * rate) - outcome.due):
            outcome.due += 1
            if idle:
                task = asyncio.create_task(send(idle.pop()))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            else:
                outcome.statuses["unsent"] += 1
        await asyncio.sleep(_TICK)
    if tasks:
        await asyncio.wait(tasks, timeout=_REST_SECONDS)


async def send_large(target: Target, outcome: Outcome) -> None:
    """Send large bodies on a connection each, at once."""
    messages = [{"role": "user", "content": "word " * 20}] * _LARGE_MESSAGES
    request = encode_post(target.url, "/v1/responses", {"model": "plain", "input": messages}, key=KEY)

    async def send(connection: LoadConnection) -> None:
        sent_at = time.perf_counter()
        status = (await connection.send(request))[9:12].decode()
        outcome.statuses[status] += 1
        outcome.waits.append(time.perf_counter() - sent_at)
        outcome.answered += status == "200"

    outcome.due = LARGE_BODIES
    async with open_connections(target.url, LARGE_BODIES) as connections:
        await asyncio.gather(*map(send, connections))


@asynccontextmanager
async def probing(target: Target, outcome: Outcome) -> AsyncIterator[None]:
    """Ask for the health of the gateway meanwhile."""
    command = module_command("bench.health_probe", target.url)
    probe = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, cwd=ROOT)
    yield
    said, _ = await probe.communicate(b"\n")
    outcome.probes = json.loads(said)
    print(f"... {outcome.load}", file=sys.stderr)


async def measure(target: Target, factors: list[float], seconds: float) -> tuple[float, list[Outcome]]:
    carried = await measure_rate(target)
    outcomes = []
    for factor in factors:
        outcome = Outcome(load=f"{factor:g}x")
        async with open_connections(target.url, CONNECTIONS) as connections, probing(target, outcome):
            await overload(target, list(connections), carried * factor, outcome, seconds)
        outcomes.append(outcome)
    large = Outcome(load="large")
    async with probing(target, large):
        await send_large(target, large)
    return carried, [*outcomes, large]


def _row(outcome: Outcome, carried: float, seconds: float) -> list[str]:
    waits = sorted(outcome.waits) or [0.0]
    if outcome.load == "large":
        seconds = waits[-1]
    rate = outcome.answered / seconds
    others = " ".join(f"{status}:{count}" for status, count in outcome.statuses.items() if status != "200")
    return [
        outcome.load,
        f"{outcome.due / seconds:.0f}",
        f"{rate:.0f}",
        f"{rate / carried:.2f}",
        f"{waits[len(waits) // 2]:.2f}",
        f"{waits[int(len(waits) * 0.99)]:.2f}",
        f"{max(outcome.probes):.2f}",
        others or "none",
    ]


def main(*arguments: str) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench overload", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each load (default: %(default)s)")
    parser.add_argument("--factors", default=FACTORS, help="of the rate that is carried (default: %(default)s)")
    options = parser.parse_args(arguments)
    factors = [float(text) for text in options.factors.split(",")]
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        _, model = stack.enter_context(run_server(module_command("bench.gateway_model")))
        target = stack.enter_context(run_holodeck(folder, model))
        carried, outcomes = runner.run(measure(target, factors, options.seconds))
    rows = [_row(outcome, carried, options.seconds) for outcome in outcomes]
    header = ["load", "sent/s", "answered/s", "of carried", "median s", "99th s", "worst probe s", "other outcomes"]
    print_table(f"More than is carried: {carried:.0f} requests a second, for {options.seconds:g} s each", header, rows)
