"""Every client scenario of every leg: `make conformance`, or for some of them `make conformance LEGS=2026-07-28`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from conformance.suite import LEGS, Verdict, judge, scenarios

AT_ONCE = 2
"""Scenarios that wait on timers of their own; more at once would make a small machine miss them."""


def main(wanted: Sequence[str]) -> int:
    unknown = [leg for leg in wanted if leg not in LEGS]
    if unknown:
        print(f"No such leg: {', '.join(unknown)}. There are {', '.join(LEGS)}.", file=sys.stderr)
        return 2
    verdicts = [verdict for leg in wanted or LEGS for verdict in run(leg)]
    passed = sum(verdict.has_passed for verdict in verdicts)
    print(f"conformance: {passed} of {len(verdicts)} pass")
    return 0 if verdicts and passed == len(verdicts) else 1


def run(leg: str) -> list[Verdict]:
    """All scenarios of one leg, and a line about it; what did not pass is shown in full."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_ONCE) as threads:
        verdicts = list(
            threads.map(lambda scenario: judge(leg, scenario, Path(folder, scenario.replace("/", "_"))), scenarios(leg))
        )
    print(f"{leg}: {sum(verdict.has_passed for verdict in verdicts)} of {len(verdicts)} pass", flush=True)
    for verdict in verdicts:
        if not verdict.has_passed:
            print(f"\n{leg} {verdict.scenario}: {verdict.outcome}\n{verdict.output}", flush=True)
    return verdicts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
