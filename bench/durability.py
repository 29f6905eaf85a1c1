"""What it costs that background runs survive: beside the same run in process, with many gateways, at start, idle."""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from bench.fill_store import fill_postgres, fill_sqlite
from bench.gateway_process import GatewayProcess, write_gateway_file
from bench.postgres import running_postgres
from bench.table import print_table
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say
from holodeck.testing.model.script import Turn
from holodeck.testing.model.scripted import Received

if TYPE_CHECKING:
    from storage.postgres_server import PostgresServer

STEPS = 5
GATEWAYS = (1, 2, 4)
_TICKS = os.sysconf("SC_CLK_TCK")
_END = b'data: {"type":"response.completed"'


def cpu_seconds(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def model() -> ScriptedModel:
    """Calls a tool as often as the question says, one call a turn, and answers at once."""

    def turn(received: Received) -> Turn:
        messages = received.json["messages"]
        wanted = int(next(message["content"] for message in messages if message["role"] == "user"))
        taken = sum(message["role"] == "tool" for message in messages)
        return call("echo", text=str(taken)) if taken < wanted else say("Done.")

    return ScriptedModel(turn)


@dataclass(kw_only=True)
class BenchSetup:
    """The storage of the gateways, and the servers behind them."""

    folder: Path
    model: str
    tools: str
    server: PostgresServer
    gateways_made: int = 0

    def gateway(self, storage: str, *, durable: bool, database: str | None = None) -> GatewayProcess:
        """A gateway on a store of its own, or on this database."""
        self.gateways_made += 1
        folder = self.folder / str(self.gateways_made)
        folder.mkdir()
        url = database or (self.server.new_database() if storage == "postgres" else f"sqlite:///{folder}/kept.db")
        file = write_gateway_file(
            folder / "gateway.yaml",
            model=self.model,
            tools=self.tools,
            storage="${DATABASE_URL}",
            background={"durable": durable},
            limits={"key": {"in_flight": 1000}},
        )
        return GatewayProcess(file, {"DATABASE_URL": url})


async def time_run(session: aiohttp.ClientSession, gateway: GatewayProcess, steps: int) -> tuple[str, float]:
    """One background run, followed to its end: its id, and the seconds it took."""
    began = time.perf_counter()
    body = {"model": "demo", "input": str(steps), "background": True, "stream": True}
    async with session.post(f"{gateway.url}/v1/responses", json=body) as answer:
        answer.raise_for_status()
        text = await answer.read()
    if _END not in text:
        raise RuntimeError(text.decode())
    return text.partition(b'"id":"')[2].partition(b'"')[0].decode(), time.perf_counter() - began


async def run_load(gateways: Sequence[GatewayProcess], runs: int, width: int, steps: int) -> tuple[float, list[float]]:
    """Many runs, some at once, spread over the gateways: the seconds for all, and for each."""
    numbers = iter(range(runs))
    took: list[float] = []

    async def client(session: aiohttp.ClientSession) -> None:
        for number in numbers:
            took.append((await time_run(session, gateways[number % len(gateways)], steps))[1])

    began = time.perf_counter()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(client(session) for _ in range(width)))
    return time.perf_counter() - began, took


@dataclass
class Cost:
    """The best of some rounds, for runs without a call and for runs of five."""

    cpu: dict[int, float] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)

    def record_round(self, steps: int, spent: float, took: float) -> None:
        self.cpu[steps] = min(self.cpu.get(steps, spent), spent)
        self.seconds[steps] = min(self.seconds.get(steps, took), took)


async def measure_costs(setup: BenchSetup, options: argparse.Namespace) -> None:
    """Per run and per step, interleaved."""
    kinds = [(storage, durable) for storage in ("sqlite", "postgres") for durable in (False, True)]
    gateways = {kind: await asyncio.to_thread(setup.gateway, kind[0], durable=kind[1]) for kind in kinds}
    found = {kind: Cost() for kind in kinds}
    async with run_gateways(gateways.values()):
        for gateway in gateways.values():
            await run_load([gateway], 4, 2, STEPS)
        for _ in range(options.rounds):
            for steps in (0, STEPS):
                for kind, gateway in gateways.items():
                    before = cpu_seconds(gateway.pid)
                    await run_load([gateway], options.runs, 8, steps)
                    spent = (cpu_seconds(gateway.pid) - before) / options.runs
                    _, took = await run_load([gateway], 5, 1, steps)
                    found[kind].record_round(steps, spent, statistics.median(took))
        idle = await _measure_idle(list(gateways.values()), options.idle)
    rows = []
    for (storage, durable), cost in found.items():
        per_step = [(values[STEPS] - values[0]) / STEPS for values in (cost.cpu, cost.seconds)]
        cells = [cost.cpu[0], cost.cpu[STEPS], per_step[0], cost.seconds[0], cost.seconds[STEPS], per_step[1]]
        rows.append([storage, "durable" if durable else "in process", *(f"{1000 * cell:.1f} ms" for cell in cells)])
    header = ["storage", "runs", "CPU, no call", f"CPU, {STEPS} calls", "CPU a step", "takes, no call"]
    header += [f"takes, {STEPS} calls", "a step takes"]
    print_table(
        f"What a background run costs the gateway (best of {options.rounds} rounds of {options.runs})", header, rows
    )
    rows = [[*_kind_labels(kind), f"{1000 * each:.0f} ms"] for kind, each in zip(gateways, idle, strict=True)]
    print_table(
        f"A gateway that has nothing to do (over {options.idle:.0f} s)", ["storage", "runs", "CPU in a minute"], rows
    )


async def measure_throughput(setup: BenchSetup, options: argparse.Namespace) -> None:
    """Durable runs a second of several gateways on one PostgreSQL."""
    rows = []
    database = await asyncio.to_thread(setup.server.new_database)
    for count in GATEWAYS:
        gateways = [setup.gateway("postgres", durable=True, database=database) for _ in range(count)]
        async with run_gateways(gateways):
            await run_load(gateways, 4 * count, 4, 1)
            before = sum(cpu_seconds(gateway.pid) for gateway in gateways)
            seconds, took = await run_load(gateways, 3 * options.runs, 32, 1)
            spent = sum(cpu_seconds(gateway.pid) for gateway in gateways) - before
        rate = 3 * options.runs / seconds
        row = [f"{rate:.1f}", f"{1000 * statistics.median(took):.0f} ms", f"{spent / seconds:.2f} cores"]
        rows.append([str(count), *row])
    header = ["gateways", "runs/s", "a run takes (32 at once)", "the gateways use"]
    print_table(f"Durable runs of one call on one PostgreSQL ({os.cpu_count()} cores for everything)", header, rows)


async def measure_starts(setup: BenchSetup, options: argparse.Namespace) -> None:
    """How long a gateway takes to serve, with an empty store and with a full one."""
    rows = []
    for storage in ("sqlite", "postgres"):
        gateway = await asyncio.to_thread(setup.gateway, storage, durable=True)
        await _time_start(gateway)
        empty = [await _time_start(gateway) for _ in range(options.rounds)]
        await gateway.start()
        await gateway.wait_ready()
        async with aiohttp.ClientSession() as session:
            run_id, _ = await time_run(session, gateway, STEPS)
        await gateway.kill()
        url = gateway.environ["DATABASE_URL"]
        if storage == "sqlite":
            fill_sqlite(Path(url.removeprefix("sqlite:///")), run_id, options.stored)
        else:
            await asyncio.to_thread(fill_postgres, setup.server, url.rpartition("/")[2], run_id, options.stored)
        full = [await _time_start(gateway) for _ in range(options.rounds)]
        rows.append([storage, *(f"{min(found):.2f} s" for found in (empty, full))])
    header = ["storage", "empty", f"{options.stored} finished runs of {STEPS} calls"]
    print_table(f"From the start of a durable gateway until it serves (best of {options.rounds})", header, rows)


async def _time_start(gateway: GatewayProcess) -> float:
    began = time.perf_counter()
    await gateway.start()
    await gateway.wait_ready()
    took = time.perf_counter() - began
    await gateway.kill()
    return took


async def _measure_idle(gateways: Sequence[GatewayProcess], seconds: float) -> list[float]:
    before = [cpu_seconds(gateway.pid) for gateway in gateways]
    await asyncio.sleep(seconds)
    return [(cpu_seconds(gateway.pid) - used) * 60 / seconds for gateway, used in zip(gateways, before, strict=True)]


@asynccontextmanager
async def run_gateways(gateways: Collection[GatewayProcess]) -> AsyncIterator[None]:
    try:
        for gateway in gateways:
            await gateway.start()
        for gateway in gateways:
            await gateway.wait_ready()
        yield
    finally:
        for gateway in gateways:
            await gateway.kill()


def _kind_labels(kind: tuple[str, bool]) -> tuple[str, str]:
    return kind[0], "durable" if kind[1] else "in process"


async def _run_parts(options: argparse.Namespace) -> None:
    parts = {"costs": measure_costs, "throughput": measure_throughput, "starts": measure_starts}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holodeck-durability-")))
        server = await asyncio.to_thread(stack.enter_context, running_postgres())
        scripted = await stack.enter_async_context(model().serve())
        mcp = await stack.enter_async_context(FaultyMCPServer())
        setup = BenchSetup(folder=folder, model=scripted.url, tools=mcp.url, server=server)
        for name in options.parts.split(","):
            await parts[name](setup, options)


def main(*arguments: str) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench durability", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=40, help="runs of one kind in a round")
    parser.add_argument("--stored", type=int, default=10_000, help="finished runs in the full store")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds without work")
    parser.add_argument("--parts", default="costs,throughput,starts")
    asyncio.run(_run_parts(parser.parse_args(arguments)))
