"""What storing costs: PostgreSQL beside SQLite, bytes on disk, and reading a long conversation beside a long chain.

`databases`: gateways on SQLite and on PostgreSQL are asked in turn, and the ratios are those of the same round. `disk`:
the bytes of a SQLite file beside those of the JSON that clients get. `history`: time of a request by the items before
it.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import uvloop

from bench.gateway import CASES, Cost, measure_once
from bench.gateway_targets import KEY, Target, run_holodeck
from bench.postgres import running_postgres
from bench.processes import module_command, run_server
from bench.table import print_table
from holodeck.storage.factory import open_store
from holodeck.testing import FaultyMCPServer

ROUNDS = 10
AT_ONCE = 16
COUNTS = {"plain": 320, "stream": 32, "tool": 128}
"""Requests of each batch."""
PARTS = ("databases", "disk", "history")
RESPONSES = 10_000
HISTORY = (20, 200, 1000)
"""Items before a request."""
HISTORY_REQUESTS = 20
_QUESTION = "What is known about the order number 4711 of last week, and when does it come?"


def compare_databases(rounds: int) -> None:
    """Print CPU and throughput of a gateway on PostgreSQL beside one on SQLite."""
    rows = []
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        _, model = stack.enter_context(run_server(module_command("bench.gateway_model")))
        _, mcp = stack.enter_context(run_server(FaultyMCPServer.command("normal", transport="http")))
        url = stack.enter_context(running_postgres()).new_database()

        def start(storage: str | None) -> Target:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            return stack.enter_context(run_holodeck(folder, model, mcp, storage=storage))

        targets = {"sqlite": start(None), "postgres": start(url)}
        for case in CASES:
            if case.name not in COUNTS:
                continue

            async def measure(target: Target, count: int) -> Cost:
                return await measure_once(target, case, count, AT_ONCE)  # noqa: B023 - awaited at once

            for target in targets.values():
                runner.run(measure(target, AT_ONCE))  # what is made on first use is made
            costs: list[dict[str, Cost]] = []
            for number in range(rounds):
                order = sorted(targets, reverse=bool(number % 2))
                costs.append({name: runner.run(measure(targets[name], COUNTS[case.name])) for name in order})
            rows.append(_row_of(case.label, costs))
    header = ["request", "SQLite, ms", "PostgreSQL, ms", "ratio", "SQLite/s", "PostgreSQL/s", "ratio"]
    print_table(f"CPU per request of the gateway, and requests a second, {AT_ONCE} at once", header, rows)


def _row_of(label: str, costs: list[dict[str, Cost]]) -> list[str]:
    cpu = {name: min(cost[name].cpu for cost in costs) * 1000 for name in ("sqlite", "postgres")}
    rate = {name: max(cost[name].times.rate for cost in costs) for name in ("sqlite", "postgres")}
    cpu_ratio = statistics.median(cost["postgres"].cpu / cost["sqlite"].cpu for cost in costs)
    rate_ratio = statistics.median(cost["postgres"].times.rate / cost["sqlite"].times.rate for cost in costs)
    return [
        label,
        *(f"{cpu[name]:.3f}" for name in cpu),
        f"{cpu_ratio:.2f}",
        *(f"{rate[name]:.0f}" for name in rate),
        f"{rate_ratio:.2f}",
    ]


def measure_disk(responses: int) -> None:
    """Print the bytes of a SQLite file for each stored response, beside its JSON as a client gets it."""
    rows = []
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        _, model = stack.enter_context(run_server(module_command("bench.gateway_model")))
        for case in CASES:
            if case.name not in ("plain", "stream"):
                continue
            count = responses if case.name == "plain" else responses // 10
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            with run_holodeck(folder, model) as target:
                runner.run(measure_once(target, case, count, AT_ONCE))
            with closing(sqlite3.connect(folder / "holodeck.db")) as db:
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                (response_id, caller_id) = db.execute("SELECT id, caller_id FROM responses LIMIT 1").fetchone()
            json = runner.run(_json_size(folder, response_id, caller_id))
            size = (folder / "holodeck.db").stat().st_size / count
            rows.append([case.label, str(count), str(json), f"{size:.0f}", f"{size / json:.2f}"])
    print_table("Bytes of a stored response", ["request", "responses", "JSON", "on disk", "ratio"], rows)


async def _json_size(folder: Path, response_id: str, caller_id: str) -> int:
    """The bytes of a stored response and of its input, as clients get them."""
    store = open_store("sqlite:///holodeck.db", folder=folder)
    try:
        found = await store.get(response_id, caller_id)
    finally:
        await store.close()
    assert found is not None
    return len(found.resource) + len(found.input_items)


def measure_history() -> None:
    """Print how much longer a request takes for each item of the conversation, or of the chain, before it."""
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        _, model = stack.enter_context(run_server(module_command("bench.gateway_model")))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        target = stack.enter_context(run_holodeck(folder, model))
        times = runner.run(_time_history(target.url))
    first, last = HISTORY[0], HISTORY[-1]
    rows = []
    for kind, by_count in times.items():
        per_item = (by_count[last] - by_count[first]) / (last - first)
        rows.append([kind, *(f"{by_count[count] * 1000:.2f}" for count in HISTORY), f"{per_item * 1e6:.1f}"])
    header = ["continued", *(f"{count} items, ms" for count in HISTORY), "us an item"]
    print_table("Time of a request by the items before it (the least of some)", header, rows)


async def _time_history(url: str) -> dict[str, dict[int, float]]:
    times: dict[str, dict[int, float]] = {"conversation": {}, "chain": {}}
    headers = {"Authorization": f"Bearer {KEY}"}
    async with aiohttp.ClientSession(url, headers=headers) as client:

        async def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
            async with client.post(path, json=body) as reply:
                found: dict[str, Any] = orjson.loads(await reply.read())
                assert reply.status == 200, found
                return found

        for count in HISTORY:
            items = [{"role": "user", "content": _QUESTION} for _ in range(count)]
            first = await post("/v1/responses", {"model": "plain", "input": items})
            best: dict[str, float] = {}
            for _ in range(HISTORY_REQUESTS):
                conversation = (await post("/v1/conversations", {}))["id"]
                for begin in range(0, count, 20):
                    batch = {"items": items[begin : begin + 20]}
                    await post(f"/v1/conversations/{conversation}/items", batch)
                before = {
                    "conversation": {"conversation": conversation},
                    "chain": {"previous_response_id": first["id"]},
                }
                for kind, continued in before.items():
                    began = time.perf_counter()
                    await post("/v1/responses", {"model": "plain", "input": "And?", **continued})
                    took = time.perf_counter() - began
                    best[kind] = min(best.get(kind, took), took)
            for kind, took in best.items():
                times[kind][count] = took
    return times


def main(*arguments: str) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench storage", description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS), help="of: %(default)s")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--responses", type=int, default=RESPONSES)
    options = parser.parse_args(arguments)
    for part in options.parts.split(","):
        print(f"... {part}", file=sys.stderr)
        if part == "databases":
            compare_databases(options.rounds)
        elif part == "disk":
            measure_disk(options.responses)
        elif part == "history":
            measure_history()
        else:
            sys.exit(f"There is no part '{part}'. There are: {', '.join(PARTS)}")
