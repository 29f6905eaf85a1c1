"""A report as Markdown, for people: in a pull request, or in a chat."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from holodeck.cli.commands.test.verdict_lines import (
    ALWAYS_SHOWN,
    describe_check,
    format_counts,
    format_rate,
    list_model_rows,
)
from holodeck.cli.output.run_lines import format_duration
from holodeck.lib.escape import escape_unprintable

if TYPE_CHECKING:
    from holodeck.evaluation.suite_report import CaseResult, SuiteReport, SuiteResult
    from holodeck.evaluation.verdict import Verdict

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~#!@&])")


def write_markdown(report: SuiteReport) -> str:
    """Return the document. Texts of models, tools and files are escaped: none of them is markup."""
    lines = ["# Test cases", "", format_counts(report)]
    if not report.is_complete:
        lines += ["", f"**Stopped**: {len(report.verdicts)} of {report.planned} runs have ended."]
    if report.repeat > 1 or report.compares_models:
        columns = ("Model", "Passed", "Pass rate (95 % interval)", "Tokens", "Cost", "Median time")
        lines += ["", *_table(columns, list_model_rows(report.figures_by_model))]
    for suite in report.suites:
        lines += _describe_suite(suite, report.repeat)
    return "\n".join(lines) + "\n"


def _describe_suite(result: SuiteResult, repeat: int) -> Iterator[str]:
    suite = result.suite
    yield from ("", f"## {_escape(suite.loaded.agent.name)} ({_escape(suite.file)}) on {_escape(suite.model)}", "")
    if repeat == 1:
        columns: Sequence[str] = ("Verdict", "Case", "Called", "Turns", "Time")
        rows = [_verdict_row(case, verdict) for case in result.cases for verdict in case.verdicts]
    else:
        columns = ("Passed", "Case", "Pass rate (95 % interval)")
        rows = []
        for case in result.cases:
            rate = case.figures.pass_rate
            rows.append((f"{rate.passed}/{rate.total}", case.name, format_rate(rate)))
    yield from _table(columns, rows)
    for case in result.cases:
        for number, verdict in enumerate(case.verdicts, start=1):
            title = f"{case.name} ({number} of {repeat})" if repeat > 1 else case.name
            yield from ("", f"### {_escape(title)}", "", *_describe_verdict(verdict))


def _verdict_row(case: CaseResult, verdict: Verdict) -> tuple[str, ...]:
    called = ", ".join(call.name for call in verdict.calls) or "-"
    word = "pass" if verdict.passed else "FAIL"
    return word, case.name, called, str(verdict.result.turns), format_duration(verdict.result.seconds)


def _describe_verdict(verdict: Verdict) -> Iterator[str]:
    for check in verdict.checks:
        if not check.passed:
            yield f"- why: {_escape(describe_check(check))}"
    yield f"- asked: {_escape(verdict.case.input)}"
    yield f"- answered: {_escape(verdict.result.text or '(nothing)')}"
    if verdict.case.ground_truth:
        yield f"- truth: {_escape(verdict.case.ground_truth)}"
    for check in verdict.checks:
        if check.passed and check.name in ALWAYS_SHOWN:
            yield f"- checked: {_escape(describe_check(check))}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        cells = ("**FAIL**" if cell == "FAIL" else _escape(cell) for cell in row)
        yield f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    """Return the text on one line, without a character that Markdown or HTML would read as markup."""
    return _SPECIAL.sub(r"\\\1", " ".join(escape_unprintable(text).split()))
