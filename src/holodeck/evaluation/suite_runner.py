"""The runner of the cases of suites, some at a time.

When the task that awaits `run_cases` is cancelled, all jobs close what they own before it ends. The verdicts that the
listener got until then are valid.

An `AgentJob` runs cases one at a time, and owns the agent that they run on. The agent stays open while the cases are of
the same suite, so that its MCP servers are started once per job. A suite with a cassette has an agent for each case,
because each case replays by itself. Its `CaseRunner` owns the judges that cases ask and the checker of JSON Schemas.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from holodeck.agent_runner import AgentRunner
from holodeck.evaluation.measures.ground_truth import check_ground_truth, choose_measure
from holodeck.evaluation.measures.json_values import check_json
from holodeck.evaluation.measures.judge import TRUTH_RUBRIC, Evidence, check_by_judge
from holodeck.evaluation.measures.text import (
    check_contains,
    check_equals,
    check_forbidden_texts,
    check_matches,
    check_similarity,
)
from holodeck.evaluation.measures.tool_calls import check_completed, check_limits, check_tool_calls
from holodeck.evaluation.suite_report import CaseRun, Suite
from holodeck.evaluation.verdict import CheckResult, RecordedCall, Verdict
from holodeck.lib.errors import CassetteMismatchError
from holodeck.lib.json.schema_worker import SchemaChecker
from holodeck.models.events import Event, Failure, RunFinished, RunResult, ToolFinished, ToolStarted
from holodeck.models.items import text_message
from holodeck.models.llm import LLM, is_same_model
from holodeck.models.test_case import SimilarText, TestCase
from holodeck.providers.base import ModelProvider
from holodeck.runtime import open_model

if TYPE_CHECKING:
    from holodeck.cassettes.opened_cassette import OpenedCassette


ONLY_ANSWERED = "only that it answered"
"""What is checked of a case without expectations, for people."""


class CaseRunner:
    """Runs and judges the cases of one agent. Leaving `async with` closes the judges."""

    def __init__(self, agent: AgentRunner, *, environ: Mapping[str, str] | None = None) -> None:
        """`environ`: has the keys of judges; None: the variables of this process."""
        self._agent = agent
        self._environ = os.environ if environ is None else environ
        self._settings = agent.config.test_settings
        self._checker = SchemaChecker(in_process=agent.is_offline)
        # A list: the entries of models have mappings inside, and cannot be keys.
        self._judges: list[tuple[LLM, ModelProvider]] = []

    async def run(self, name: str, case: TestCase, on_event: Callable[[Event], None] | None = None) -> Verdict:
        """Run a case to its end and judge it. `on_event` is called with each event of the run."""
        self._agent.forget()
        recorder = _CallRecorder(self._agent)
        async with aclosing(self._agent.stream(case.input)) as events:
            async for event in events:
                recorder.record(event)
                if on_event is not None:
                    on_event(event)
        result, calls = recorder.require_result(), tuple(recorder.calls)
        return Verdict(
            name=name,
            case=case,
            result=result,
            calls=calls,
            failed_call_ids=frozenset(recorder.failed_call_ids),
            checks=tuple([check async for check in self._check(case, result, calls)]),
            transcript=(text_message("user", case.input), *result.items),
        )

    async def close(self) -> None:
        """Close the judges and the checker. May be called twice."""
        judges, self._judges = self._judges, []
        try:
            await self._checker.close()
        finally:
            for _, model in judges:
                await model.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _check(
        self, case: TestCase, result: RunResult, calls: tuple[RecordedCall, ...]
    ) -> AsyncIterator[CheckResult]:
        """Yield all checks of a run, those that cost nothing first."""
        completed = check_completed(result)
        yield completed
        count = 0
        for check in (*check_tool_calls(case, calls), *check_limits(case, result)):
            count += 1
            yield check
        # The text of a run that was stopped is no answer, and a judge would cost something.
        if not completed.passed:
            return
        async for check in self._check_answer(case, result, calls):
            count += 1
            yield check
        if not count:
            yield CheckResult(name="answered", passed=True, reason=ONLY_ANSWERED)

    async def _check_answer(
        self, case: TestCase, result: RunResult, calls: tuple[RecordedCall, ...]
    ) -> AsyncIterator[CheckResult]:
        answer = result.text
        if case.contains is not None:
            yield check_contains(answer, _as_list(case.contains))
        if case.equals is not None:
            yield check_equals(answer, case.equals)
        if case.forbidden is not None and case.forbidden.texts:
            yield check_forbidden_texts(answer, case.forbidden.texts)
        if case.matches is not None:
            yield await check_matches(answer, _as_list(case.matches))
        if case.json_answer is not None:
            yield await check_json(answer, case.json_answer, self._checker)
        if case.similar is not None:
            similar = SimilarText(to=case.similar) if isinstance(case.similar, str) else case.similar
            least = self._settings.similar_at_least if similar.at_least is None else similar.at_least
            yield check_similarity(answer, similar.to, least)
        evidence = Evidence(
            question=case.input, answer=answer, ground_truth=case.ground_truth, calls=calls, items=result.items
        )
        if case.ground_truth is not None:
            measure = self._settings.measure_of(case) or choose_measure(case.ground_truth)
            if measure == "judge":
                yield await self._ask_judge("ground_truth", TRUTH_RUBRIC, case, evidence)
            else:
                yield check_ground_truth(
                    answer,
                    case.ground_truth,
                    measure,
                    similar_at_least=self._settings.similar_at_least,
                    tolerance=case.json_answer.tolerance if case.json_answer is not None else 0,
                )
        judge = case.judge_expectation
        if judge is not None:
            yield await self._ask_judge("judge", judge.rubric, case, evidence)

    async def _ask_judge(self, name: str, rubric: str, case: TestCase, evidence: Evidence) -> CheckResult:
        llm = self._settings.judge_of(case)
        own = case.judge_expectation
        # Files are refused for both reasons; an agent that was built in another way has only this check.
        if llm is None:
            return CheckResult(name=name, passed=False, reason="no model is named that could judge the answer")
        if is_same_model(llm, self._agent.config.model) and not (own is not None and own.allow_same_model):
            return CheckResult(name=name, passed=False, reason="the judge is the model under test")
        return await check_by_judge(name, rubric, evidence, llm=llm, model=self._open_judge(llm))

    def _open_judge(self, llm: LLM) -> ModelProvider:
        for known, model in self._judges:
            if known is llm:
                return model
        model = open_model(llm, self._environ)
        self._judges.append((llm, model))
        return model


@dataclass
class _CallRecorder:
    """Records the calls and the result of a run."""

    agent: AgentRunner
    calls: list[RecordedCall] = field(default_factory=list)
    failed_call_ids: set[str] = field(default_factory=set)
    result: RunResult | None = None

    def record(self, event: Event) -> None:
        match event:
            case ToolStarted(call_id=call_id, name=name, arguments=arguments):
                route = self.agent.find_route(name)
                server, tool = (route.server.name, route.tool.name) if route is not None else ("", name)
                self.calls.append(
                    RecordedCall(call_id=call_id, name=name, server=server, tool=tool, arguments=arguments)
                )
            case ToolFinished(call_id=call_id, output=output) if output.is_error:
                self.failed_call_ids.add(call_id)
            case RunFinished(result=result):
                self.result = result
            case _:
                pass

    def require_result(self) -> RunResult:
        if self.result is None:
            raise RuntimeError("a run always finishes")
        return self.result


def _as_list(texts: str | list[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else texts


BuildAgent = Callable[[Suite], AgentRunner]
"""Builds the agent of a suite; nothing is started."""


class CaseListener(Protocol):
    """Receives what happens to the cases, in the event loop."""

    def on_case_started(self, run: CaseRun) -> None: ...

    def on_event(self, run: CaseRun, agent: AgentRunner, event: Event) -> None: ...

    def on_difference(self, run: CaseRun, text: str) -> None:
        """Report that the run differs from its cassette. `text`: how, in several lines."""

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


async def run_cases(runs: Sequence[CaseRun], *, jobs: int, build_agent: BuildAgent, listener: CaseListener) -> None:
    """Run all, at most `jobs` at the same time. They start in this order. The listener gets the verdicts.

    An error of one job ends the others, and is raised.
    """
    waiting = deque(runs)

    async def work() -> None:
        async with AgentJob(build_agent, listener) as job:
            while waiting:
                run = waiting.popleft()
                listener.on_case_started(run)
                listener.on_case_finished(run, await job.run(run))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(jobs, len(runs))):
                group.create_task(work())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
