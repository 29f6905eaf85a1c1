"""The share of runs that passed, with the interval in which the true share lies with 95 % confidence."""

from __future__ import annotations

from math import sqrt

from holodeck.lib.record import record

# The quantile of the normal distribution for 95 %.
_Z = 1.959964


@record
class PassRate:
    """How many of some runs passed."""

    passed: int
    total: int

    @property
    def failed(self) -> int:
        return self.total - self.passed

    @property
    def rate(self) -> float:
        """From 0 to 1; 0 without runs."""
        return self.passed / self.total if self.total else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The Wilson score interval for 95 %. Without runs, nothing is known: 0 to 1."""
        if not self.total:
            return 0.0, 1.0
        share = _Z * _Z / self.total
        centre = (self.rate + share / 2) / (1 + share)
        half = _Z * sqrt(self.rate * (1 - self.rate) / self.total + share / (4 * self.total)) / (1 + share)
        # Rounding must not lead away from a rate that is at an end.
        low = max(0.0, centre - half) if self.passed else 0.0
        high = min(1.0, centre + half) if self.failed else 1.0
        return low, high
