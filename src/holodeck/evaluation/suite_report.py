"""Suites of test cases, the runs of their cases, and the results: verdicts by suite and case, with their figures.

A pass rate has the interval in which the true share lies with 95 % confidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from math import sqrt
from statistics import median
from typing import TYPE_CHECKING

from holodeck.config.agent_loader import LoadedAgent
from holodeck.evaluation.verdict import Verdict
from holodeck.lib.record import record
from holodeck.models.test_case import TestCase

if TYPE_CHECKING:
    from holodeck.cassettes.opened_cassette import OpenedCassette

# The quantile of the normal distribution for 95 %.
_Z = 1.959964


@record
class Suite:
    """The cases of one agent file that run on one model."""

    file: str
    """The path of the agent file, as the user named it."""
    model: str
    """The name of the model in reports."""
    loaded: LoadedAgent
    """The agent, with this model."""
    cases: tuple[tuple[str, TestCase], ...]
    """Each with its name in reports."""
    cassette: OpenedCassette | None = None
    """Records or replays the cases, each on the track of its name. None: they run live."""


@record
class CaseRun:
    """One run of a case. A case that is repeated has several."""

    suite: Suite
    name: str
    case: TestCase
    repetition: int
    """From 1 on."""


def list_case_runs(suites: Sequence[Suite], repeat: int) -> list[CaseRun]:
    """Return all runs: suite by suite, and in each of them all cases before any is repeated."""
    return [
        CaseRun(suite=suite, name=name, case=case, repetition=repetition)
        for suite in suites
        for repetition in range(1, repeat + 1)
        for name, case in suite.cases
    ]


@record
class PassRate:
    """The number of some runs that passed."""

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


@record
class Figures:
    """The figures that some runs have in common."""

    pass_rate: PassRate
    tokens: int
    """Tokens of the model, in all runs."""
    cost: float | None
    """Cost of the model, in all runs, without judges. None: its price is not known."""
    judge_cost: float | None
    """Cost of the judges: 0 if none was asked, None if a price is not known."""
    median_seconds: float | None
    """None without runs."""


def compute_figures(verdicts: Sequence[Verdict]) -> Figures:
    """Return the figures of all these runs together."""
    return Figures(
        pass_rate=PassRate(passed=sum(verdict.passed for verdict in verdicts), total=len(verdicts)),
        tokens=sum(verdict.result.usage.total_tokens for verdict in verdicts),
        cost=_add_costs(verdict.result.cost for verdict in verdicts),
        judge_cost=_add_costs(verdict.judge_cost for verdict in verdicts),
        median_seconds=median(verdict.result.seconds for verdict in verdicts) if verdicts else None,
    )


def _add_costs(costs: Iterable[float | None]) -> float | None:
    total = 0.0
    for cost in costs:
        if cost is None:
            return None
        total += cost
    return total


@record
class CaseResult:
    """The runs of one case in one suite."""

    name: str
    case: TestCase
    verdicts: tuple[Verdict, ...]
    """In order of their repetitions. Empty: the case was not run to its end."""

    @property
    def figures(self) -> Figures:
        return compute_figures(self.verdicts)


@record
class SuiteResult:
    """The cases of one file on one model."""

    suite: Suite
    cases: tuple[CaseResult, ...]

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return tuple(verdict for case in self.cases for verdict in case.verdicts)

    @property
    def figures(self) -> Figures:
        return compute_figures(self.verdicts)


@record
class SuiteReport:
    """Everything that is known about the suites of one command."""

    suites: tuple[SuiteResult, ...]
    planned: int
    """Runs that there were to be."""
    repeat: int
    fail_under: float | None
    """The share of its runs that every model must pass. None: all of them."""
    started_at: datetime
    seconds: float
    """From the start to the end of the command, or to now."""

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return tuple(verdict for suite in self.suites for verdict in suite.verdicts)

    @property
    def figures(self) -> Figures:
        return compute_figures(self.verdicts)

    @property
    def is_complete(self) -> bool:
        """Whether every planned run has ended."""
        return len(self.verdicts) == self.planned

    @property
    def figures_by_model(self) -> dict[str, Figures]:
        """The figures of each model, over all files."""
        verdicts: dict[str, list[Verdict]] = {}
        for suite in self.suites:
            verdicts.setdefault(suite.suite.model, []).extend(suite.verdicts)
        return {model: compute_figures(each) for model, each in verdicts.items()}

    @property
    def compares_models(self) -> bool:
        """Whether the same cases ran on several models."""
        return len({suite.suite.file for suite in self.suites}) < len(self.suites)

    @property
    def has_passed(self) -> bool:
        """Whether all planned runs have ended, and every model has passed enough of them."""
        least = 1.0 if self.fail_under is None else self.fail_under
        return self.is_complete and all(each.pass_rate.rate >= least for each in self.figures_by_model.values())


def group_verdicts(finished: Sequence[tuple[CaseRun, Verdict]], suites: Sequence[Suite]) -> tuple[SuiteResult, ...]:
    """Return the results of all suites, also of those cases that have no verdict yet."""
    return tuple(
        SuiteResult(
            suite=suite,
            cases=tuple(
                CaseResult(name=name, case=case, verdicts=_find_verdicts(finished, suite, case))
                for name, case in suite.cases
            ),
        )
        for suite in suites
    )


def _find_verdicts(finished: Sequence[tuple[CaseRun, Verdict]], suite: Suite, case: TestCase) -> tuple[Verdict, ...]:
    # By identity: cases of one file may have the same name.
    found = [(run, verdict) for run, verdict in finished if run.suite is suite and run.case is case]
    return tuple(verdict for _, verdict in sorted(found, key=lambda each: each[0].repetition))
