"""The official suite, by its own servers and checks, finds nothing wrong. `make conformance` runs all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from conformance.suite import judge


@pytest.mark.proves("D-3", "000:FR-003")
@pytest.mark.parametrize(
    ("leg", "scenario"),
    [
        ("2025-11-25", "sse-retry"),
        ("2025-11-25", "elicitation-sep1034-client-defaults"),
        ("2026-07-28", "http-custom-headers"),
        ("2026-07-28", "sep-2322-client-request-state"),
    ],
)
def test_a_scenario_of_the_official_suite_passes(leg: str, scenario: str, tmp_path: Path) -> None:
    verdict = judge(leg, scenario, tmp_path)
    assert verdict.has_passed, f"{verdict.outcome}\n{verdict.output}"
