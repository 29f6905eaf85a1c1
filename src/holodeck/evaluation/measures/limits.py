"""Checks of how a run ended, and of the turns, tokens and seconds that it took."""

from __future__ import annotations

from collections.abc import Iterator

from holodeck.evaluation.verdict import CheckResult
from holodeck.models.events import RunResult, failure_reason
from holodeck.models.test_case import TestCase


def check_completed(result: RunResult) -> CheckResult:
    """Check that the run has completed, which every case expects."""
    if result.status == "completed":
        return CheckResult(name="run", passed=True, reason="the run is completed")
    why = failure_reason(result)
    return CheckResult(name="run", passed=False, reason=f"the run is {result.status}" + (f": {why}" if why else ""))


def check_limits(case: TestCase, result: RunResult) -> Iterator[CheckResult]:
    """Yield a check for each limit that the case has."""
    limits = (
        ("max_turns", case.max_turns, result.turns, "turns"),
        ("max_tokens", case.max_tokens, result.usage.total_tokens, "tokens"),
        ("max_seconds", case.max_seconds, result.seconds, "seconds"),
    )
    for name, limit, used, noun in limits:
        if limit is not None:
            shown = f"{used:,}" if isinstance(used, int) else f"{used:.2f}"
            reason = f"the run took {shown} {noun}, {'at most' if used <= limit else 'more than'} {limit:,}"
            yield CheckResult(name=name, passed=used <= limit, reason=reason)
