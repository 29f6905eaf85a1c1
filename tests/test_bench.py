"""`python -m bench` itself works: a few requests of its measurements, with every table and every bar."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.long
def test_the_gateway_is_measured_beside_the_limit_and_under_idle_streams() -> None:
    alone = ("--others=",)
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


@pytest.mark.long
def test_the_mcp_endpoint_is_measured_beside_a_proxy_of_the_official_sdk() -> None:
    done = _bench("mcp_endpoint", "--without-fastmcp", "--rounds=1", "--at-once=1")
    assert done.returncode == 0, done.stdout + done.stderr
    cpu, latency = (done.stdout.index(title) for title in ("CPU of the proxy", "Latency"))
    for table in (done.stdout[cpu:latency], done.stdout[latency:]):
        rows = [[cell.strip() for cell in line.split("  ") if cell] for line in table.strip().splitlines()[2:]]
        assert [row[0] for row in rows] == [front for front in ("http, legacy", "http, modern", "stdio") for _ in "123"]
        assert {row[1] for row in rows} == {"call, 1 at once", "call, 1 MB answer", "list of 1,000 tools"}


def test_a_call_of_a_program_is_measured_beside_the_client_of_the_official_sdk() -> None:
    done = _bench("mcp_client", "--without-fastmcp", "--rounds=1")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.strip().splitlines()[2:]]
    assert [(row[0], row[2]) for row in rows] == [("holodeck", "us"), ("sdk", "us")]
    assert rows[0][3] == "1.0"


@pytest.mark.long
def test_lists_of_runs_are_measured_in_a_store_of_many() -> None:
    done = _bench("runs", "--runs=500", "--inserts=50", "--rounds=1", "--requests=1")
    assert done.returncode == 0, done.stdout + done.stderr
    inserts, requests = (done.stdout.index(title) for title in ("Storing a response", "Requests over 500 runs"))
    assert len(done.stdout[inserts:requests].strip().splitlines()) == 5
    assert len(done.stdout[requests:].strip().splitlines()) == 14


@pytest.mark.long
def test_storing_is_measured_on_both_databases() -> None:
    done = _bench("storage", "--rounds=1", "--responses=100")
    assert done.returncode == 0, done.stdout + done.stderr
    for title in ("CPU per request of the gateway", "Bytes of a stored response", "Time of a request by the items"):
        assert title in done.stdout


def test_an_option_without_a_measurement_is_refused() -> None:
    assert "one of: gateway" in _bench("--rounds=1").stderr


@pytest.mark.long
def test_revocations_are_measured_at_several_gateways_and_lists_with_many_keys() -> None:
    done = _bench("keys", "--revocations=2", "--gateways=2", "--keys=60")
    assert done.returncode == 0, done.stdout + done.stderr
    revocations, lists = (line.split() for line in (done.stdout.splitlines()[2], done.stdout.splitlines()[-2]))
    assert (revocations[0], revocations[-1]) == ("2", "0"), "none is accepted later than it is promised"
    assert lists[0] == "60"


@pytest.mark.long
def test_stand_ins_and_deployments_that_are_not_used_are_measured_beside_one_model() -> None:
    done = _bench("stand_ins", "--rounds=2")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.strip().rsplit(maxsplit=5)[0] for line in done.stdout.strip().splitlines()[2:]]
    assert rows == ["one model", "one model, again", "with a stand-in", "from two deployments"]
