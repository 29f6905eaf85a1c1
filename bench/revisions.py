"""CPU per request of this tree's gateway beside the gateway of another revision, in turn.

The other revision is checked out below `.cache` and runs with the packages of this environment. Each round sends the
same small batch to both, in changing order, so that a busy moment of the machine hits both; the middle of the rounds'
ratios is what counts.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import uvloop

from bench.gateway import CASES, Case, measure_once
from bench.gateway_targets import Target, run_holodeck
from bench.processes import ROOT, check_out, module_command, run_server
from bench.table import print_table
from holodeck.testing import FaultyMCPServer

ROUNDS = 30
AT_ONCE = 16
COUNTS = {"plain": 320, "long": 320, "chat": 320, "stream": 32, "tool": 128}
"""Requests of each batch: a few tenths of a second."""


async def measure(case: Case, here: Target, other: Target, rounds: int) -> list[tuple[float, float]]:
    """CPU seconds per request of both, round by round."""
    count = COUNTS[case.name]
    for target in (here, other):
        await measure_once(target, case, count, AT_ONCE)  # what is made on first use is made
    costs = []
    for number in range(rounds):
        in_turn = (here, other) if number % 2 else (other, here)
        cost = {target.url: (await measure_once(target, case, count, AT_ONCE)).cpu for target in in_turn}
        costs.append((cost[here.url], cost[other.url]))
    return costs


def _row(case: Case, costs: list[tuple[float, float]]) -> list[str]:
    ratios = sorted(here / other for here, other in costs)
    quarter = len(ratios) // 4
    return [
        case.label,
        f"{min(here for here, _ in costs) * 1000:.3f}",
        f"{min(other for _, other in costs) * 1000:.3f}",
        f"{statistics.median(ratios):.3f}",
        f"{ratios[quarter]:.3f} to {ratios[-quarter - 1]:.3f}",
    ]


def main(*arguments: str) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench revisions", description=__doc__)
    parser.add_argument("--base", default="HEAD", help="the revision to compare with (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--cases", default=",".join(COUNTS), help="of: %(default)s")
    options = parser.parse_args(arguments)
    source = check_out(options.base)
    chosen = [case for case in CASES if case.name in options.cases.split(",")]
    rows = []
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        _, model = stack.enter_context(run_server(module_command("bench.gateway_model")))
        _, mcp = stack.enter_context(run_server(FaultyMCPServer.command("normal", transport="http")))

        def start(root: Path) -> Target:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            environ = {"PYTHONPATH": str(root / "src")}
            return stack.enter_context(run_holodeck(folder, model, mcp, environ=environ))

        here, other = start(ROOT), start(source)
        for case in chosen:
            print(f"... {case.label}", file=sys.stderr)
            rows.append(_row(case, runner.run(measure(case, here, other, options.rounds))))
    header = ["request", "here", options.base, "ratio", "half of the rounds"]
    print_table(f"CPU per request, in ms, {AT_ONCE} at once (the least of {options.rounds} rounds)", header, rows)
