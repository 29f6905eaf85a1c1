"""Reports about test cases: lines and a table for a terminal, data for `--json`, and a Markdown or JSON file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from holodeck.cli.commands.case_verdict import Outcome, Verdict
from holodeck.cli.output.events_json import json_text, to_plain_data
from holodeck.cli.output.run_lines import format_duration
from holodeck.lib.errors import ExecutionError
from holodeck.lib.escape import escape_unprintable, one_line
from holodeck.lib.limits import MAX_DESCRIPTION_SHOWN, MAX_FAILURE_SHOWN

_NOT_JUDGED = "shown for you to compare; it is not judged"
_LABELS: Mapping[Outcome, str] = {"passed": "pass", "failed": "FAIL", "not_judged": "not judged"}
_COLOURS: Mapping[Outcome, str] = {"passed": "green", "failed": "red", "not_judged": "yellow"}


def print_verdict(verdict: Verdict, say: Callable[[str], None]) -> None:
    """Print one case: its outcome, why it failed, its tool calls, and the answer beside the ground truth."""
    outcome = verdict.outcome
    say(
        click.style(_LABELS[outcome].upper(), fg=_COLOURS[outcome], bold=True)
        + f"  {escape_unprintable(verdict.name)}  {format_duration(verdict.result.seconds)}"
    )
    for reason in verdict.reasons:
        say(_line("why", reason, fg="red"))
    for call in verdict.calls:
        say(_line("called", f"{call}{' - it failed' if call.call_id in verdict.failed_call_ids else ''}", dim=True))
    if outcome != "passed":
        say(_line("answer", verdict.result.text or "(none)", dim=True))
    if verdict.case.ground_truth:
        say(_line("truth", f"{verdict.case.ground_truth} ({_NOT_JUDGED})", dim=True))


def summary_rows(verdicts: Sequence[Verdict]) -> list[tuple[str, str, str, str, str, str]]:
    """Return table rows: verdict, case, calls, turns, tokens, time."""
    return [
        (
            _LABELS[verdict.outcome],
            one_line(verdict.name, MAX_DESCRIPTION_SHOWN),
            str(verdict.result.tool_calls),
            str(verdict.result.turns),
            f"{verdict.result.usage.total_tokens:,}",
            format_duration(verdict.result.seconds),
        )
        for verdict in verdicts
    ]


def format_counts(verdicts: Sequence[Verdict]) -> str:
    """Return a text such as `3 passed, 1 failed, 2 not judged`."""
    return _format_counter(Counter(verdict.outcome for verdict in verdicts))


def _format_counter(number: Mapping[str, int]) -> str:
    parts = [f"{number['passed']} passed"]
    parts += [f"{number['failed']} failed"] if number["failed"] else []
    parts += [f"{number['not_judged']} not judged"] if number["not_judged"] else []
    return ", ".join(parts)


def build_report(agent: str, file: str, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return all verdicts as data for `--json` and report files."""
    number = Counter(verdict.outcome for verdict in verdicts)
    return {
        "agent": agent,
        "file": file,
        "passed": number["passed"],
        "failed": number["failed"],
        "not_judged": number["not_judged"],
        "cases": [_case_data(verdict) for verdict in verdicts],
    }


def write_report(path: Path, report: dict[str, Any]) -> None:
    """Write the report as Markdown if the name ends in `.md`, otherwise as JSON. Raises `ExecutionError`."""
    is_markdown = path.suffix.lower() in {".md", ".markdown"}
    text = _report_markdown(report) if is_markdown else json_text(report, indent=2) + "\n"
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ExecutionError(f"Cannot write the report {escape_unprintable(str(path))}: {error.strerror}.") from None


def _case_data(verdict: Verdict) -> dict[str, Any]:
    case, result = verdict.case, verdict.result
    return {
        "name": verdict.name,
        "outcome": verdict.outcome,
        "passed": verdict.outcome == "passed",
        "reasons": list(verdict.reasons),
        "input": case.input,
        "answer": result.text,
        "ground_truth": case.ground_truth,
        "expected_tools": [each if isinstance(each, str) else each.model_dump() for each in case.expected_tools],
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
    }


def _report_markdown(report: dict[str, Any]) -> str:
    lines = [
        f"# Test cases of {report['agent']}",
        "",
        f"{_format_counter(report)} ({report['file']})",
        "",
        "| Verdict | Case | Called | Turns | Time |",
        "|---|---|---|---|---|",
    ]
    for case in report["cases"]:
        called = ", ".join(call["name"] for call in case["called"]) or "-"
        verdict = "**FAIL**" if case["outcome"] == "failed" else _LABELS[case["outcome"]]
        cells = (verdict, case["name"], called, str(case["turns"]), format_duration(case["seconds"]))
        lines.append(f"| {' | '.join(_cell(cell) for cell in cells)} |")
    for case in report["cases"]:
        lines += ["", f"## {_cell(case['name'])}", ""]
        lines += [f"- why: {_cell(reason)}" for reason in case["reasons"]]
        lines += [f"- asked: {_cell(case['input'])}", f"- answered: {_cell(case['answer'] or '(nothing)')}"]
        if case["ground_truth"]:
            lines.append(f"- truth: {_cell(case['ground_truth'])} ({_NOT_JUDGED})")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(escape_unprintable(text).split()).replace("|", "\\|")


def _line(label: str, text: str, **style: Any) -> str:
    return click.style(f"      {label:<8}{one_line(text, MAX_FAILURE_SHOWN)}", **style)
