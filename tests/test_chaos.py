"""`make chaos` itself works: a few of its many kills, with the same verdict."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Seconds: above the limits that the programs have themselves, so that they say what hung.
HUNG_AFTER = 600


@pytest.mark.long
@pytest.mark.proves("D-13", "D-15", "D-17")
def test_a_few_kills_hang_no_call_leave_no_process_and_stop_no_next_call() -> None:
    command = [sys.executable, "-m", "bench.chaos_mcp", "8", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HUNG_AFTER, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 of 8" in done.stdout
    assert "2 of 2" in done.stdout


@pytest.mark.long
@pytest.mark.proves("D-16", "D-28", "D-32")
def test_a_few_kills_of_a_gateway_lose_no_response_and_repeat_no_effect() -> None:
    command = [sys.executable, "-m", "bench.chaos_runs", "--responses=6", "--kills=2", "--stops=0", "--storage=sqlite"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HUNG_AFTER, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 of 6" in done.stdout


@pytest.mark.long
@pytest.mark.proves("D-13", "D-15", "D-38")
def test_a_few_kills_behind_the_mcp_endpoint_hang_no_call_and_cross_no_answer() -> None:
    command = [sys.executable, "-m", "bench.chaos_mcp_endpoint", "--kills=4", "--at-once=8"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HUNG_AFTER, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 of 4" in done.stdout
