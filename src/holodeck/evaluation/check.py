"""The result of one check of a test case."""

from __future__ import annotations

from holodeck.lib.record import record
from holodeck.models.items import Usage


@record
class CheckResult:
    """Whether a run meets one expectation of its test case."""

    name: str
    """The key of the expectation, such as `contains`; `run` and `answered` are those of every case."""
    passed: bool
    reason: str
    """For people: why it failed, or what was found."""
    score: float | None = None
    """The result of a measure with a threshold, from 0 to 1."""
    usage: Usage | None = None
    """Tokens of the judge. None: no judge was asked, or it did not answer."""
    cost: float | None = None
    """Cost of the judge. None: no judge was asked, or its price is not known."""
