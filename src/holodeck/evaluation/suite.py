"""Suites of test cases, and the runs of their cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holodeck.config.agent_loader import LoadedAgent
from holodeck.lib.record import record
from holodeck.models.test_case import TestCase

if TYPE_CHECKING:
    from holodeck.cassettes.opened_cassette import OpenedCassette


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
