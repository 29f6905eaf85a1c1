"""A job: runs cases one at a time, and owns the agent that they run on.

The agent stays open while the cases are of the same suite, so that its MCP servers are started once per job. A suite
with a cassette has an agent for each case, because each case replays by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from holodeck.agent_runner import AgentRunner
from holodeck.evaluation.case_runner import CaseRunner
from holodeck.evaluation.check import CheckResult
from holodeck.evaluation.suite import CaseRun, Suite
from holodeck.evaluation.verdict import Verdict
from holodeck.lib.errors import CassetteMismatchError
from holodeck.models.events import Event, Failure, RunResult

if TYPE_CHECKING:
    from holodeck.cassettes.opened_cassette import OpenedCassette

BuildAgent = Callable[[Suite], AgentRunner]
"""Builds the agent of a suite; nothing is started."""


class CaseListener(Protocol):
    """Receives what happens to the cases, in the event loop."""

    def on_case_started(self, run: CaseRun) -> None: ...

    def on_event(self, run: CaseRun, agent: AgentRunner, event: Event) -> None: ...

    def on_difference(self, run: CaseRun, text: str) -> None:
        """The run differs from its cassette. `text`: how, in several lines."""

    def on_case_finished(self, run: CaseRun, verdict: Verdict) -> None: ...


class AgentJob:
    """Runs cases, one at a time. Leaving `async with` closes what it has opened."""

    def __init__(self, build_agent: BuildAgent, listener: CaseListener) -> None:
        self._build_agent = build_agent
        self._listener = listener
        self._suite: Suite | None = None
        self._opened = AsyncExitStack()

    async def run(self, run: CaseRun) -> Verdict:
        """Run and judge a case."""
        if run.suite.cassette is not None:
            return await self._run_on_track(run, run.suite.cassette)
        if self._suite is not run.suite:
            await self._opened.aclose()
            self._agent = await self._opened.enter_async_context(self._build_agent(run.suite))
            self._cases = await self._opened.enter_async_context(CaseRunner(self._agent))
            self._suite = run.suite
        return await self._run_case(run, self._agent, self._cases)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._opened.aclose()

    async def _run_case(self, run: CaseRun, agent: AgentRunner, cases: CaseRunner) -> Verdict:
        return await cases.run(run.name, run.case, lambda event: self._listener.on_event(run, agent, event))

    async def _run_on_track(self, run: CaseRun, cassette: OpenedCassette) -> Verdict:
        """Run a case on its track of the cassette. A difference from the recording is a failed check."""
        if not cassette.can_open(run.name):
            reason = "the cassette does not have this case. Record it: holodeck test --record"
            result = RunResult(status="failed", text="", error=Failure(code="not_recorded", message=reason))
            checks = (_build_cassette_check(reason),)
            return Verdict(name=run.name, case=run.case, result=result, calls=(), checks=checks)
        verdict: Verdict | None = None
        try:
            with cassette.track(run.name):
                async with self._build_agent(run.suite) as agent, CaseRunner(agent) as cases:
                    verdict = await self._run_case(run, agent, cases)
        except CassetteMismatchError as error:
            if verdict is None:
                raise
            self._listener.on_difference(run, str(error))
            return replace(
                verdict, checks=(_build_cassette_check("the run differs from the cassette"), *verdict.checks)
            )
        return verdict


def _build_cassette_check(reason: str) -> CheckResult:
    return CheckResult(name="cassette", passed=False, reason=reason)
