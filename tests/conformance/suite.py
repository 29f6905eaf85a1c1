"""The official MCP conformance suite against our client and our MCP endpoint, with a verdict that cannot be empty.

The suite's own run of everything at once ignores how the client ended, and counts a scenario as passed when all of its
checks were skipped. Here a scenario passes only if the suite says so for it alone, which includes the client's exit
code, and a check of the scenario itself succeeded.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / ".cache/servers/node_modules"
SUITE = PACKAGES / "@modelcontextprotocol/conformance/dist/index.js"
OWN_WIRE = "default"
"""The leg in which each scenario has its own version of the protocol, and the only one with the extensions."""
LEGS = ("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", OWN_WIRE)
CHECK_OF_EVERY_SCENARIO = "wire-schema-valid"
SECONDS = 60
"""The longest that a scenario may take on a busy machine."""


SERVER_LEGS = LEGS[:-1]
"""The legs of server scenarios: the extensions do not apply, since the endpoint declares none."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How one scenario went."""

    leg: str
    scenario: str
    outcome: str
    """`pass`, `fail`, or `vacuous` when nothing was checked."""
    output: str
    """What the suite and the client said."""

    @property
    def has_passed(self) -> bool:
        return self.outcome == "pass"


def scenarios(leg: str, side: Literal["client", "server"] = "client") -> list[str]:
    """The scenarios of a leg that test one side."""
    listing = subprocess.run([*_suite("list", leg), f"--{side}"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^  - (\S+)", listing, re.MULTILINE)


def judge(leg: str, scenario: str, folder: Path) -> Verdict:
    """Run one scenario; the suite leaves its files in `folder`."""
    # The suite takes the command apart at spaces: paths relative to a folder of ours have none.
    client = f"{os.path.relpath(sys.executable, ROOT)} -m conformance.client"
    return _judge("client", leg, scenario, folder, ["--command", client])


def judge_server(leg: str, scenario: str, folder: Path, url: str) -> Verdict:
    """Run one scenario against the MCP server at a URL."""
    return _judge("server", leg, scenario, folder, ["--url", url])


def _judge(side: str, leg: str, scenario: str, folder: Path, target: list[str]) -> Verdict:
    options = [*target, "--scenario", scenario, "--timeout", str(SECONDS * 1000), "-o", str(folder)]
    done = subprocess.run(
        [*_suite(side, leg), *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "tests"},
        capture_output=True,
        text=True,
        check=False,
    )
    own = [check for check in _checks(folder) if check["id"] != CHECK_OF_EVERY_SCENARIO]
    if done.returncode != 0:
        outcome = "fail"
    else:
        outcome = "pass" if any(check["status"] == "SUCCESS" for check in own) else "vacuous"
    return Verdict(leg=leg, scenario=scenario, outcome=outcome, output=done.stdout + done.stderr)


def _suite(command: str, leg: str) -> list[str]:
    own_node = PACKAGES / ".bin/node"
    node = str(own_node) if own_node.exists() else shutil.which("node") or "node"
    if not SUITE.exists():
        raise FileNotFoundError(f"{SUITE} is missing. `make conformance` and `make test` set it up.")
    wire = [] if leg == OWN_WIRE else ["--spec-version", leg]
    return [node, "--no-deprecation", str(SUITE), command, *wire]


def _checks(folder: Path) -> Iterator[dict[str, Any]]:
    for file in folder.rglob("checks.json"):
        yield from json.loads(file.read_text())
