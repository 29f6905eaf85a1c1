"""What one warm call costs a program: `MCPServer.call`, the official SDK's client and FastMCP's, in turn in one run.

FastMCP is installed into `.cache` the first time; `--without-fastmcp` leaves it out. `--rounds=3` is a short run.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from bench import fastmcp_proxy
from bench.processes import ROOT
from bench.table import print_table
from holodeck.testing import FaultyMCPServer

ROUNDS = 9
CALLS = 300


def main(*options: str) -> None:
    given = [option.removeprefix("--rounds=") for option in options if option.startswith("--rounds=")]
    rounds = int(given[-1]) if given else ROUNDS
    unknown = [option for option in options if option != "--without-fastmcp" and not option.startswith("--rounds=")]
    if unknown:
        sys.exit(f"{__doc__}\nUnknown option: {unknown[0]}")
    pythons = {"holodeck": Path(sys.executable), "sdk": Path(sys.executable)}
    if "--without-fastmcp" not in options:
        pythons["fastmcp"] = fastmcp_proxy.install()
    costs = measure(pythons, rounds)
    ours = costs["holodeck"]
    rows = [[name, f"{cost * 1e6:.0f} us", f"{cost / ours:.1f}"] for name, cost in costs.items()]
    print_table(f"One warm call over stdio (median of {rounds} x {CALLS})", ["client", "CPU", "x ours"], rows)


def measure(pythons: dict[str, Path], rounds: int) -> dict[str, float]:
    """The CPU of one call of each client, in seconds. A busy moment of the machine hits all of them."""
    with ExitStack() as stack:
        workers = {name: stack.enter_context(_start(name, python)) for name, python in pythons.items()}
        costs: dict[str, list[float]] = {name: [] for name in workers}
        for _ in range(rounds + 1):
            for name, worker in workers.items():
                costs[name].append(_call(worker))
        for worker in workers.values():
            assert worker.stdin is not None
            worker.stdin.close()
    # The first round warms up.
    return {name: statistics.median(each[1:]) for name, each in costs.items()}


def _start(name: str, python: Path) -> subprocess.Popen[str]:
    command = [str(python), "-m", "bench.client_worker", name, *FaultyMCPServer.command("normal")]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _call(worker: subprocess.Popen[str]) -> float:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(f"{CALLS}\n")
    worker.stdin.flush()
    return float(worker.stdout.readline()) / CALLS
