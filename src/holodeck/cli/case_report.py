"""The outcome of an agent's test cases, for a person in a terminal, for a program, and for a file to keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from holodeck.cli.events_json import as_data, json_text
from holodeck.cli.verdict import Verdict
from holodeck.cli.words import duration
from holodeck.lib.display import one_line, printable
from holodeck.lib.errors import ExecutionError
from holodeck.lib.limits import MAX_DESCRIPTION_SHOWN, MAX_FAILURE_SHOWN

_NOT_JUDGED = "shown for you to compare; it is not judged"


def show(verdict: Verdict, say: Callable[[str], None]) -> None:
    """One case: whether it passed, why not, what was called, and the answer beside the truth."""
    passed = verdict.is_passed
    say(
        click.style("PASS" if passed else "FAIL", fg="green" if passed else "red", bold=True)
        + f"  {printable(verdict.name)}  {duration(verdict.result.seconds)}"
    )
    for reason in verdict.reasons:
        say(_line("why", reason, fg="red"))
    for call in verdict.called:
        say(_line("called", f"{call}{' - it failed' if call.call_id in verdict.failed_calls else ''}", dim=True))
    if not passed or verdict.case.ground_truth:
        say(_line("answer", verdict.result.text or "(none)", dim=True))
    if verdict.case.ground_truth:
        say(_line("truth", f"{verdict.case.ground_truth} ({_NOT_JUDGED})", dim=True))


def summary_rows(verdicts: Sequence[Verdict]) -> list[tuple[str, str, str, str, str, str]]:
    """For a table: verdict, case, calls, turns, tokens, time."""
    return [
        (
            "pass" if verdict.is_passed else "FAIL",
            one_line(verdict.name, MAX_DESCRIPTION_SHOWN),
            str(verdict.result.tool_calls),
            str(verdict.result.turns),
            f"{verdict.result.usage.total_tokens:,}",
            duration(verdict.result.seconds),
        )
        for verdict in verdicts
    ]


def counted(verdicts: Sequence[Verdict]) -> str:
    """`3 passed, 1 failed`."""
    passed = sum(verdict.is_passed for verdict in verdicts)
    failed = len(verdicts) - passed
    return f"{passed} passed" + (f", {failed} failed" if failed else "")


def as_report(agent: str, file: str, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Everything, for programs."""
    passed = sum(verdict.is_passed for verdict in verdicts)
    return {
        "agent": agent,
        "file": file,
        "passed": passed,
        "failed": len(verdicts) - passed,
        "cases": [_case(verdict) for verdict in verdicts],
    }


def write(path: Path, report: dict[str, Any]) -> None:
    """Write the report; a name that ends in `.md` gets Markdown, any other JSON."""
    is_markdown = path.suffix.lower() in {".md", ".markdown"}
    text = _markdown(report) if is_markdown else json_text(report, indent=2) + "\n"
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ExecutionError(f"Cannot write the report {printable(str(path))}: {error.strerror}.") from None


def _case(verdict: Verdict) -> dict[str, Any]:
    case, result = verdict.case, verdict.result
    return {
        "name": verdict.name,
        "passed": verdict.is_passed,
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
                "arguments": as_data(call.arguments),
                "is_error": call.call_id in verdict.failed_calls,
            }
            for call in verdict.called
        ],
        "status": result.status,
        "turns": result.turns,
        "tool_calls": result.tool_calls,
        "usage": as_data(result.usage),
        "seconds": result.seconds,
    }


def _markdown(report: dict[str, Any]) -> str:
    lines = [
        f"# Test cases of {report['agent']}",
        "",
        f"{report['passed']} passed, {report['failed']} failed ({report['file']})",
        "",
        "| Verdict | Case | Called | Turns | Time |",
        "|---|---|---|---|---|",
    ]
    for case in report["cases"]:
        called = ", ".join(call["name"] for call in case["called"]) or "-"
        verdict = "pass" if case["passed"] else "**FAIL**"
        cells = (verdict, case["name"], called, str(case["turns"]), duration(case["seconds"]))
        lines.append(f"| {' | '.join(_cell(cell) for cell in cells)} |")
    for case in report["cases"]:
        lines += ["", f"## {_cell(case['name'])}", ""]
        lines += [f"- why: {_cell(reason)}" for reason in case["reasons"]]
        lines += [f"- asked: {_cell(case['input'])}", f"- answered: {_cell(case['answer'] or '(nothing)')}"]
        if case["ground_truth"]:
            lines.append(f"- truth: {_cell(case['ground_truth'])} ({_NOT_JUDGED})")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(printable(text).split()).replace("|", "\\|")


def _line(label: str, text: str, **style: Any) -> str:
    return click.style(f"      {label:<8}{one_line(text, MAX_FAILURE_SHOWN)}", **style)
