"""The verdict about a test case: the run, its tool calls, and the result of each check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holodeck.lib.escape import format_arguments
from holodeck.lib.record import record
from holodeck.models.events import RunResult
from holodeck.models.items import Item, Usage
from holodeck.models.test_case import TestCase
from holodeck.tools.mcp.names import normalize_tool_name


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


@record
class RecordedCall:
    """A tool call that the model made."""

    call_id: str
    name: str
    """The name of the tool that the model used."""
    server: str
    """Empty for a function of the project."""
    tool: str
    """The name of the tool on its server."""
    arguments: Mapping[str, Any]

    @property
    def names(self) -> frozenset[str]:
        """All names by which a test case may refer to this call."""
        spelled = {self.tool, normalize_tool_name(self.tool)}
        full = {f"{self.server}{joint}{tool}" for joint in (".", "__") for tool in spelled} if self.server else set()
        return frozenset({self.name, *spelled, *full} | ({self.server} if self.server else set()))

    def __str__(self) -> str:
        return f"{f'{self.server}.' if self.server else ''}{self.tool}({format_arguments(self.arguments)})"


@record
class Verdict:
    """The result of one test case."""

    name: str
    case: TestCase
    result: RunResult
    calls: tuple[RecordedCall, ...]
    failed_call_ids: frozenset[str] = frozenset()
    """The ids of calls that ended in an error."""
    checks: tuple[CheckResult, ...]
    """Never empty: the first one says whether the run has completed."""
    transcript: tuple[Item, ...] = ()
    """The question, and the items that the run added."""

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the case failed; empty if it did not."""
        return tuple(check.reason for check in self.checks if not check.passed)

    @property
    def judge_cost(self) -> float | None:
        """Cost of the judge: 0 if none was asked, None if its price is not known."""
        asked = [check.cost for check in self.checks if check.usage is not None]
        known = [cost for cost in asked if cost is not None]
        return sum(known) if len(known) == len(asked) else None

    @property
    def cost(self) -> float | None:
        """Cost of the run and its judge. None: a price is not known."""
        run, judge = self.result.cost, self.judge_cost
        return None if run is None or judge is None else run + judge
