"""The official suite, by its own servers and checks, finds nothing wrong. `make conformance` runs all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from conformance.suite import judge, judge_server
from conformance.tested_gateway import run_tested_gateway


@pytest.mark.proves("D-3", "000:FR-003")
@pytest.mark.parametrize(
    ("leg", "scenario"),
    [
        ("2025-11-25", "sse-retry"),
        pytest.param("2025-11-25", "elicitation-sep1034-client-defaults", marks=pytest.mark.long),
        pytest.param("2026-07-28", "http-custom-headers", marks=pytest.mark.long),
        ("2026-07-28", "sep-2322-client-request-state"),
    ],
)
def test_a_scenario_of_the_official_suite_passes(leg: str, scenario: str, tmp_path: Path) -> None:
    verdict = judge(leg, scenario, tmp_path)
    assert verdict.has_passed, f"{verdict.outcome}\n{verdict.output}"


@pytest.mark.proves("D-38", "D-3")
@pytest.mark.parametrize(
    ("leg", "scenario"),
    [
        pytest.param("2025-06-18", "tools-call-sampling", marks=pytest.mark.long),
        ("2025-11-25", "server-sse-polling"),
        pytest.param("2026-07-28", "server-stateless", marks=pytest.mark.long),
        ("2026-07-28", "input-required-result-multiple-input-requests"),
    ],
)
def test_a_server_scenario_of_the_official_suite_passes(leg: str, scenario: str, tmp_path: Path) -> None:
    with run_tested_gateway(tmp_path, leg) as url:
        verdict = judge_server(leg, scenario, tmp_path, url)
    assert verdict.has_passed, f"{verdict.outcome}\n{verdict.output}"
