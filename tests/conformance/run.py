"""Every scenario of every leg, for both sides: `make conformance`, or for some `make conformance LEGS=2026-07-28`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from conformance.suite import LEGS, SERVER_LEGS, Verdict, judge, judge_server, scenarios
from conformance.tested_gateway import run_tested_gateway

AT_ONCE = 2
"""Scenarios that wait on timers of their own; more at once would make a small machine miss them."""


def main(wanted: Sequence[str]) -> int:
    unknown = [leg for leg in wanted if leg not in LEGS]
    if unknown:
        print(f"No such leg: {', '.join(unknown)}. There are {', '.join(LEGS)}.", file=sys.stderr)
        return 2
    verdicts = [verdict for leg in wanted or LEGS for verdict in run_client(leg)]
    verdicts += [verdict for leg in wanted or LEGS if leg in SERVER_LEGS for verdict in run_server(leg)]
    passed = sum(verdict.has_passed for verdict in verdicts)
    print(f"conformance: {passed} of {len(verdicts)} pass")
    return 0 if verdicts and passed == len(verdicts) else 1


def run_client(leg: str) -> list[Verdict]:
    """All client scenarios of one leg."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_ONCE) as threads:
        verdicts = list(threads.map(lambda name: judge(leg, name, _folder_of(folder, name)), scenarios(leg)))
    return _report(f"client {leg}", verdicts)


def run_server(leg: str) -> list[Verdict]:
    """All server scenarios of one leg, one after the other: they count what other clients would change."""
    with tempfile.TemporaryDirectory() as folder, run_tested_gateway(Path(folder), leg) as url:
        verdicts = [judge_server(leg, name, _folder_of(folder, name), url) for name in scenarios(leg, "server")]
    return _report(f"server {leg}", verdicts)


def _folder_of(parent: str, scenario: str) -> Path:
    return Path(parent, scenario.replace("/", "_"))


def _report(leg: str, verdicts: list[Verdict]) -> list[Verdict]:
    """Print a line about a leg; what did not pass is shown in full."""
    print(f"{leg}: {sum(verdict.has_passed for verdict in verdicts)} of {len(verdicts)} pass", flush=True)
    for verdict in verdicts:
        if not verdict.has_passed:
            print(f"\n{leg} {verdict.scenario}: {verdict.outcome}\n{verdict.output}", flush=True)
    return verdicts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
