"""What it costs to start: CPU time of the commands against a bare interpreter, interleaved."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

from bench.table import print_table

ROUNDS = 15
EXAMPLE = Path(__file__).parents[1] / "examples" / "assistant" / "agent.yaml"
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import holodeck": [sys.executable, "-c", "import holodeck"],
    "holodeck --help": [sys.executable, "-m", "holodeck", "--help"],
    "holodeck validate": [sys.executable, "-m", "holodeck", "validate", str(EXAMPLE)],
    "import mcp (the SDK)": [sys.executable, "-c", "import mcp"],
}


def cpu_seconds(command: list[str]) -> float:
    """CPU time of one process, its children included."""
    before = os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, command in COMMANDS.items():
            times[name].append(cpu_seconds(command))
    bare = statistics.median(times["python -c pass"])
    rows = []
    for name, values in times.items():
        median = statistics.median(values)
        rows.append([name, f"{median * 1000:.0f} ms", f"{median / bare:.1f}x"])
    print_table(f"CPU time to start (median of {ROUNDS}, interleaved)", ["command", "CPU", "bare Python"], rows)
