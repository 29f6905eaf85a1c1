"""`python -m bench gateway` itself works: a few of its requests, with every table and every bar."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def _bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_the_gateway_is_measured_beside_the_limit_and_under_idle_streams() -> None:
    alone = ("--without-litellm", "--without-smg")
    done = _bench("gateway", *alone, "--rounds=1", "--at-once=16", "--cases=plain,stream,tool", "--idle=20")
    assert done.returncode == 0, done.stdout + done.stderr
    cpu, latency, bars, idle = (
        done.stdout.index(title) for title in ("CPU per request", "Latency", "The bars", "Idle streams")
    )
    for table in (done.stdout[cpu:latency], done.stdout[latency:bars]):
        assert [line.split("  ")[1] for line in table.splitlines()[2:]] == ["plain", "200 events", "one tool"]
    assert len([line for line in done.stdout[bars:idle].splitlines() if line.lower().endswith("met")]) == 2
    rows = [line.split()[:2] for line in done.stdout[idle:].strip().splitlines()[2:]]
    assert rows == [["holodeck", "20"], ["limit", "20"]]


def test_an_option_without_a_measurement_is_refused() -> None:
    assert "one of: gateway" in _bench("--rounds=1").stderr
