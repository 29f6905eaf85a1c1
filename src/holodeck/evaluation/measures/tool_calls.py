"""Checks of the tool calls of a run (which tools, how often, in which order, with which arguments), and of its end.

The end is its status, and the turns, tokens and seconds that it took.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holodeck.evaluation.verdict import CheckResult, RecordedCall
from holodeck.lib.escape import format_arguments
from holodeck.models.events import RunResult, failure_reason
from holodeck.models.test_case import ExpectedCall, ExpectedTool, TestCase, ToolExpectation

Calls = Sequence[RecordedCall]


def check_tool_calls(case: TestCase, calls: Calls) -> Iterator[CheckResult]:
    """Yield a check for `expected_tools`, for `tools` and for `forbidden.tools`, as far as the case has them."""
    if "expected_tools" in case.model_fields_set:
        yield _as_check("expected_tools", _find_missing_calls(case, calls), calls)
    if case.tools is not None:
        yield _as_check("tools", _find_broken_rules(case.tools, calls), calls)
    if case.forbidden is not None and case.forbidden.tools:
        yield _as_check("forbidden", _find_unwanted_calls(case.forbidden.tools, calls, "is forbidden"), calls)


def is_included(expected: Any, actual: Any) -> bool:
    """Return whether `actual` matches `expected`: a mapping may have further keys, any other value must be equal."""
    if isinstance(expected, Mapping):
        return isinstance(actual, Mapping) and all(
            key in actual and is_included(value, actual[key]) for key, value in expected.items()
        )
    if isinstance(expected, list):
        return isinstance(actual, list) and len(expected) == len(actual) and all(map(is_included, expected, actual))
    return bool(expected == actual) and isinstance(expected, bool) == isinstance(actual, bool)


def _as_check(name: str, reasons: Sequence[str], calls: Calls) -> CheckResult:
    return CheckResult(name=name, passed=not reasons, reason="; ".join(reasons) or f"called: {_format_calls(calls)}")


def _find_missing_calls(case: TestCase, calls: Calls) -> list[str]:
    # Each expectation needs a call of its own: the same one twice needs two calls.
    expected = [each if isinstance(each, ExpectedTool) else ExpectedTool(name=each) for each in case.expected_tools]
    if not expected:
        return [f"no tool was expected; called: {_format_calls(calls)}"] if calls else []
    counts = Counter(_format_expectation(each) for each in expected)
    unique = {_format_expectation(each): each for each in expected}
    return [
        _describe_missing(each, times, calls)
        for shown, each in unique.items()
        if len(_find_matching(each, calls)) < (times := counts[shown])
    ]


def _find_broken_rules(rules: ToolExpectation, calls: Calls) -> list[str]:
    reasons: list[str] = []
    for written in rules.called:
        expected = written if isinstance(written, ExpectedCall) else ExpectedCall(name=written)
        number = len(_find_matching(expected, calls))
        if expected.times is not None and number > expected.times:
            reasons.append(f"{_format_expectation(expected)} was expected {expected.times} times, and called {number}")
        elif number < (expected.times or 1):
            reasons.append(_describe_missing(expected, expected.times or 1, calls))
    reasons += _find_unwanted_calls(rules.not_called, calls, "must not be called")
    reasons += _find_wrong_order(rules.order, calls)
    if isinstance(rules.at_most, int) and len(calls) > rules.at_most:
        reasons.append(f"{len(calls)} calls, at most {rules.at_most} are allowed: {_format_calls(calls)}")
    elif isinstance(rules.at_most, Mapping):
        for name, limit in rules.at_most.items():
            number = sum(name in call.names for call in calls)
            reasons += [f"{name} was called {number} times, at most {limit} are allowed"] if number > limit else []
    return reasons


def _find_wrong_order(order: Sequence[str], calls: Calls) -> list[str]:
    rest = iter(calls)
    for name in order:
        if not any(name in call.names for call in rest):
            return [f"the order {' > '.join(order)} was expected, and {name} is missing in: {_format_calls(calls)}"]
    return []


def _find_unwanted_calls(names: Sequence[str], calls: Calls, what: str) -> list[str]:
    unwanted = {name: [call for call in calls if name in call.names] for name in names}
    return [f"{name} {what}; called: {_format_calls(made)}" for name, made in unwanted.items() if made]


def _find_matching(expected: ExpectedTool, calls: Calls) -> list[RecordedCall]:
    return [
        call
        for call in calls
        if expected.name in call.names
        and (expected.arguments is None or is_included(expected.arguments, call.arguments))
    ]


def _describe_missing(expected: ExpectedTool, times: int, calls: Calls) -> str:
    what = f"{_format_expectation(expected)} was expected" + (f" {times} times" if times > 1 else "")
    same_tool = [call for call in calls if expected.name in call.names]
    if same_tool and not _find_matching(expected, calls):
        return f"{what}, and called with other arguments: {_format_calls(same_tool)}"
    return f"{what}; called: {_format_calls(calls)}"


def _format_expectation(expected: ExpectedTool) -> str:
    return expected.name if expected.arguments is None else f"{expected.name}({format_arguments(expected.arguments)})"


def _format_calls(calls: Calls) -> str:
    return ", ".join(map(str, calls)) or "nothing"


def check_completed(result: RunResult) -> CheckResult:
    """Check that the run has completed, which every case expects."""
    if result.status == "completed":
        return CheckResult(name="run", passed=True, reason="the run is completed")
    why = failure_reason(result)
    return CheckResult(name="run", passed=False, reason=f"the run is {result.status}" + (f": {why}" if why else ""))


def check_limits(case: TestCase, result: RunResult) -> Iterator[CheckResult]:
    """Yield a check for each limit that the case has."""
    limits = (
        ("max_turns", case.max_turns, result.turns, "turns"),
        ("max_tokens", case.max_tokens, result.usage.total_tokens, "tokens"),
        ("max_seconds", case.max_seconds, result.seconds, "seconds"),
    )
    for name, limit, used, noun in limits:
        if limit is not None:
            shown = f"{used:,}" if isinstance(used, int) else f"{used:.2f}"
            reason = f"the run took {shown} {noun}, {'at most' if used <= limit else 'more than'} {limit:,}"
            yield CheckResult(name=name, passed=used <= limit, reason=reason)
