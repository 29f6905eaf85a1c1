"""Pass rates: the interval is that of Wilson (1927), with the values of published examples."""

from __future__ import annotations

import pytest

from holodeck.evaluation.suite_report import PassRate


# Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine 17 (1998), table I.
@pytest.mark.parametrize(
    ("passed", "total", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_is_that_of_published_examples(passed: int, total: int, low: float, high: float) -> None:
    assert PassRate(passed=passed, total=total).interval == pytest.approx((low, high), abs=0.00006)
    mirrored = PassRate(passed=total - passed, total=total).interval
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=0.00006)


def test_the_ends_are_exact_and_nothing_is_known_without_runs() -> None:
    assert PassRate(passed=0, total=7).interval[0] == 0
    assert PassRate(passed=7, total=7).interval[1] == 1
    assert PassRate(passed=0, total=0).interval == (0, 1)
    assert PassRate(passed=0, total=0).rate == 0
