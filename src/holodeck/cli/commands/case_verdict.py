"""Verdict about a test case: its tool calls compared with the expected ones, and the reasons of a failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from holodeck.cli.output.run_lines import failure_reason, format_arguments, route_of
from holodeck.lib.record import record
from holodeck.models.agent import ExpectedTool, TestCase
from holodeck.models.events import Event, RunFinished, RunResult, ToolFinished, ToolStarted
from holodeck.tools.mcp.names import normalize_tool_name

if TYPE_CHECKING:
    from holodeck.agent import Agent


Outcome = Literal["passed", "failed", "not_judged"]


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
    reasons: tuple[str, ...] = ()
    """Why the case failed; empty if it did not."""

    @property
    def outcome(self) -> Outcome:
        """`failed` if there are reasons. A case with a `ground_truth` is not judged: its answer is not compared."""
        if self.reasons:
            return "failed"
        return "not_judged" if self.case.ground_truth else "passed"


@dataclass
class CallRecorder:
    """Records the calls of a run and judges them."""

    agent: Agent
    calls: list[RecordedCall] = field(default_factory=list)
    failed_call_ids: set[str] = field(default_factory=set)
    result: RunResult | None = None

    def record(self, event: Event) -> None:
        match event:
            case ToolStarted(call_id=call_id, name=name, arguments=arguments):
                route = route_of(self.agent, name)
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

    def judge(self, name: str, case: TestCase) -> Verdict:
        """Return the verdict. Requires that the run has finished."""
        if self.result is None:
            raise RuntimeError("a run always finishes")
        called = tuple(self.calls)
        return Verdict(
            name=name,
            case=case,
            result=self.result,
            calls=called,
            failed_call_ids=frozenset(self.failed_call_ids),
            reasons=(*_ending_reasons(self.result), *_missing_call_reasons(case, called)),
        )


def _ending_reasons(result: RunResult) -> Sequence[str]:
    return [] if result.status == "completed" else [f"the run is {result.status}: {failure_reason(result)}"]


def _missing_call_reasons(case: TestCase, calls: Sequence[RecordedCall]) -> Sequence[str]:
    # Each expectation needs a call of its own: the same one twice needs two calls.
    expected = [_as_expectation(each) for each in case.expected_tools]
    if not expected and "expected_tools" in case.model_fields_set and calls:
        return [f"no tool was expected; called: {_format_calls(calls)}"]
    reasons: list[str] = []
    counts = Counter(_format_expectation(each) for each in expected)
    for each in {_format_expectation(each): each for each in expected}.values():
        same_tool = [call for call in calls if each.name in call.names]
        matching = [call for call in same_tool if each.arguments is None or is_included(each.arguments, call.arguments)]
        times = counts[_format_expectation(each)]
        if len(matching) >= times:
            continue
        what = f"{_format_expectation(each)} was expected" + (f" {times} times" if times > 1 else "")
        if same_tool and not matching:
            reasons.append(f"{what}, and called with other arguments: {_format_calls(same_tool)}")
        else:
            reasons.append(f"{what}; called: {_format_calls(calls) if calls else 'nothing'}")
    return reasons


def is_included(expected: Any, actual: Any) -> bool:
    """Whether `actual` matches `expected`: a mapping may have further keys, any other value must be equal."""
    if isinstance(expected, Mapping):
        return isinstance(actual, Mapping) and all(
            key in actual and is_included(value, actual[key]) for key, value in expected.items()
        )
    if isinstance(expected, list):
        return isinstance(actual, list) and len(expected) == len(actual) and all(map(is_included, expected, actual))
    return bool(expected == actual) and isinstance(expected, bool) == isinstance(actual, bool)


def _as_expectation(written: str | ExpectedTool) -> ExpectedTool:
    return written if isinstance(written, ExpectedTool) else ExpectedTool(name=written)


def _format_expectation(expected: ExpectedTool) -> str:
    return expected.name if expected.arguments is None else f"{expected.name}({format_arguments(expected.arguments)})"


def _format_calls(calls: Sequence[RecordedCall]) -> str:
    return ", ".join(map(str, calls))
