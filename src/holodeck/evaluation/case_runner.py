"""Runs a test case on an agent, and measures what came of it.

A `CaseRunner` owns the judges that cases ask and the checker of JSON Schemas, and closes them. It does not own the
agent, which runs one case at a time: each is a conversation of its own.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from holodeck.agent_runner import AgentRunner
from holodeck.evaluation.check import CheckResult
from holodeck.evaluation.measures.ground_truth import check_ground_truth, choose_measure
from holodeck.evaluation.measures.json_values import check_json
from holodeck.evaluation.measures.judge import TRUTH_RUBRIC, Evidence, check_by_judge
from holodeck.evaluation.measures.limits import check_completed, check_limits
from holodeck.evaluation.measures.patterns import check_matches
from holodeck.evaluation.measures.similarity import check_similarity
from holodeck.evaluation.measures.text import check_contains, check_equals, check_forbidden_texts
from holodeck.evaluation.measures.tool_calls import check_tool_calls
from holodeck.evaluation.verdict import RecordedCall, Verdict
from holodeck.lib.json.schema_worker import SchemaChecker
from holodeck.models.events import Event, RunFinished, RunResult, ToolFinished, ToolStarted
from holodeck.models.items import text_message
from holodeck.models.llm import LLM, is_same_model
from holodeck.models.test_case import SimilarText, TestCase
from holodeck.providers.base import ModelProvider
from holodeck.runtime import open_model

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
