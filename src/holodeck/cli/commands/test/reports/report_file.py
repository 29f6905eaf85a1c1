"""Report files: the format by the end of the name, and the file itself.

JSON is the data of `--json`. JUnit XML is what CI systems show: a `testsuite` for each file and model, a `testcase` for
each run. Markdown is for people, in a pull request or in a chat. The page for a browser is a module of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import click

from holodeck.cli.commands.test.suites import build_cassette_data
from holodeck.cli.commands.test.verdict_lines import (
    ALWAYS_SHOWN,
    describe_check,
    format_counts,
    format_rate,
    list_model_rows,
)
from holodeck.cli.output.events_json import json_text, to_plain_data
from holodeck.cli.output.run_lines import format_duration
from holodeck.lib.errors import ExecutionError
from holodeck.lib.escape import escape_unprintable

if TYPE_CHECKING:
    from holodeck.evaluation.suite_report import CaseResult, Figures, PassRate, SuiteReport, SuiteResult
    from holodeck.evaluation.verdict import Verdict


def build_report_data(report: SuiteReport) -> dict[str, Any]:
    """Return everything about the suites, their cases and each run."""
    return {
        "has_passed": report.has_passed,
        "passed": report.figures.pass_rate.passed,
        "failed": report.figures.pass_rate.failed,
        "is_complete": report.is_complete,
        "planned": report.planned,
        "repeat": report.repeat,
        "fail_under": report.fail_under,
        "started_at": report.started_at.isoformat(timespec="seconds"),
        "seconds": report.seconds,
        "figures": _figures_data(report.figures),
        "models": [{"model": model, **_figures_data(each)} for model, each in report.figures_by_model.items()],
        "suites": [_suite_data(suite) for suite in report.suites],
    }


def _suite_data(result: SuiteResult) -> dict[str, Any]:
    suite = result.suite
    return {
        "agent": suite.loaded.agent.name,
        "file": suite.file,
        "model": suite.model,
        "cassette": None if suite.cassette is None else build_cassette_data(suite.cassette),
        "figures": _figures_data(result.figures),
        "cases": [_case_data(case) for case in result.cases],
    }


def _case_data(result: CaseResult) -> dict[str, Any]:
    case = result.case
    return {
        "name": result.name,
        "input": case.input,
        "ground_truth": case.ground_truth,
        "expected_tools": [each if isinstance(each, str) else each.model_dump() for each in case.expected_tools],
        "figures": _figures_data(result.figures),
        "runs": [_run_data(verdict) for verdict in result.verdicts],
    }


def _run_data(verdict: Verdict) -> dict[str, Any]:
    result = verdict.result
    return {
        "outcome": "passed" if verdict.passed else "failed",
        "passed": verdict.passed,
        "reasons": list(verdict.reasons),
        "checks": to_plain_data(verdict.checks),
        "answer": result.text,
        "called": [
            {
                "server": call.server or None,
                "tool": call.tool,
                "name": call.name,
                "arguments": to_plain_data(call.arguments),
                "is_error": call.call_id in verdict.failed_call_ids,
            }
            for call in verdict.calls
        ],
        "status": result.status,
        "turns": result.turns,
        "tool_calls": result.tool_calls,
        "usage": to_plain_data(result.usage),
        "seconds": result.seconds,
        "cost": verdict.cost,
        "judge_cost": verdict.judge_cost,
        "transcript": to_plain_data(verdict.transcript),
    }


def _figures_data(figures: Figures) -> dict[str, Any]:
    return {
        "pass_rate": _rate_data(figures.pass_rate),
        "tokens": figures.tokens,
        "cost": figures.cost,
        "judge_cost": figures.judge_cost,
        "median_seconds": figures.median_seconds,
    }


def _rate_data(rate: PassRate) -> dict[str, Any]:
    low, high = rate.interval
    return {"passed": rate.passed, "total": rate.total, "rate": rate.rate, "low": low, "high": high}


# Characters that XML 1.0 cannot hold, not even as references.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit_xml(report: SuiteReport) -> str:
    """Return the document. A run that was planned and did not end is a skipped test."""
    root = ET.Element("testsuites", name="holodeck test", time=_format_seconds(report.seconds))
    started_at = report.started_at.isoformat(timespec="seconds")
    for suite in report.suites:
        root.append(_build_suite(suite, report.repeat, started_at))
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(each.get(name, "0")) for each in root)))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _build_suite(result: SuiteResult, repeat: int, started_at: str) -> ET.Element:
    suite = result.suite
    rate = result.figures.pass_rate
    planned = len(result.cases) * repeat
    element = ET.Element(
        "testsuite",
        name=_clean(f"{suite.file} [{suite.model}]"),
        tests=str(planned),
        failures=str(rate.failed),
        errors="0",
        skipped=str(planned - rate.total),
        time=_format_seconds(sum(verdict.result.seconds for verdict in result.verdicts)),
        timestamp=started_at,
    )
    properties = ET.SubElement(element, "properties")
    for name, value in (("agent", suite.loaded.agent.name), ("file", suite.file), ("model", suite.model)):
        ET.SubElement(properties, "property", name=name, value=_clean(value))
    for case in result.cases:
        for index in range(repeat):
            name = f"{case.name} ({index + 1} of {repeat})" if repeat > 1 else case.name
            verdict = case.verdicts[index] if index < len(case.verdicts) else None
            element.append(_build_case(name, f"{suite.file}.{suite.model}", verdict))
    return element


def _build_case(name: str, group: str, verdict: Verdict | None) -> ET.Element:
    seconds = 0.0 if verdict is None else verdict.result.seconds
    element = ET.Element("testcase", name=_clean(name), classname=_clean(group), time=_format_seconds(seconds))
    if verdict is None:
        ET.SubElement(element, "skipped", message="the command was stopped before")
        return element
    if not verdict.passed:
        reasons = [describe_check(check) for check in verdict.checks if not check.passed]
        failure = ET.SubElement(element, "failure", message=_clean(reasons[0]), type="check")
        failure.text = _clean("\n".join(reasons))
    lines = [*(f"called {call}" for call in verdict.calls), "answer:", verdict.result.text or "(none)"]
    ET.SubElement(element, "system-out").text = _clean("\n".join(lines))
    return element


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.3f}"


def _clean(text: str) -> str:
    """Replace the characters that XML cannot hold by their codes."""
    return _FORBIDDEN.sub(lambda found: f"<U+{ord(found.group()):04X}>", text)


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


def check_report_path(path: Path) -> None:
    """Raise `click.UsageError` for a report that cannot be written: it is found before the cases run."""
    shown = escape_unprintable(str(path))
    if path.suffix.lower() not in _WRITERS:
        raise click.UsageError(f"--report {shown}: the name must end in one of {', '.join(_WRITERS)}.")
    if not path.parent.is_dir():
        raise click.UsageError(f"--report {shown}: there is no folder {escape_unprintable(str(path.parent))}.")


def write_report_file(path: Path, report: SuiteReport) -> None:
    """Write the report in the format that the name ends in. Raises `ExecutionError`."""
    text = _WRITERS[path.suffix.lower()](report)
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ExecutionError(f"Cannot write the report {escape_unprintable(str(path))}: {error.strerror}.") from None


def write_json(report: SuiteReport) -> str:
    """Return the report as JSON, without a line break at its end."""
    return json_text(build_report_data(report), indent=2)


def _write_json_file(report: SuiteReport) -> str:
    return write_json(report) + "\n"


def _write_html(report: SuiteReport) -> str:
    from holodeck.cli.commands.test.reports.html_page import write_html

    return write_html(report)


_WRITERS: dict[str, Callable[[SuiteReport], str]] = {
    ".xml": write_junit_xml,
    ".json": _write_json_file,
    ".md": write_markdown,
    ".html": _write_html,
}
