"""`holodeck test`: run the test cases of an agent, each in a conversation of its own, and report why one failed.

The report is lines and a table on a terminal, data with `--json`, and a Markdown or JSON file with `--report`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.commands.case_verdict import CallRecorder, Outcome, Verdict
from holodeck.cli.interruptible import run_interruptible
from holodeck.cli.output.events_json import json_text, to_plain_data
from holodeck.cli.output.follow_run import Follower
from holodeck.cli.output.run_lines import format_duration
from holodeck.cli.output.terminal import Terminal
from holodeck.cli.output.trust_question import trust_option
from holodeck.cli.terminal_agent import open_agent, read_trusted_agent
from holodeck.config.agent_loader import DEFAULT_AGENT_FILE, LoadedAgent
from holodeck.lib.errors import ExecutionError
from holodeck.lib.escape import escape_unprintable, one_line
from holodeck.lib.limits import MAX_DESCRIPTION_SHOWN, MAX_FAILURE_SHOWN
from holodeck.models.agent import TestCase

if TYPE_CHECKING:
    from holodeck.agent import Agent

_EPILOG = """\b
Examples:
  holodeck test
  holodeck test team/agent.yaml -k weather
  holodeck test --report report.md

\b
In agent.yaml:
  test_cases:
    - name: adds
      input: What is 1 + 2?
      expected_tools: [calc, calc.add, add, {name: add, arguments: {a: 1}}]
      ground_truth: "3"

\b
A tool may be named by its server, in full (server.tool or server__tool), or by its own name; arguments
listed here must be among those of the call. An empty list means that no tool may be called.
The answer of a case with a ground_truth is shown beside it and not judged: it counts as neither passed nor failed.
Exit codes: 0 none failed, 1 one failed, 2 wrong configuration or usage."""

_NOT_JUDGED = "shown for you to compare; it is not judged"
_LABELS: Mapping[Outcome, str] = {"passed": "pass", "failed": "FAIL", "not_judged": "not judged"}
_COLOURS: Mapping[Outcome, str] = {"passed": "green", "failed": "red", "not_judged": "yellow"}


@click.command("test", epilog=_EPILOG)
@click.argument("file", default=DEFAULT_AGENT_FILE, type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option(
    "--report", type=click.Path(path_type=Path), help="Also write the report to a file: Markdown (.md) or JSON."
)
@click.option("-k", "pattern", default="", help="Only cases whose name or input has this text (or matches this glob).")
@click.option("-q", "--quiet", is_flag=True, help="Do not show what happens while a case runs.")
@trust_option
def command(file: str, as_json: bool, report: Path | None, pattern: str, quiet: bool, is_trusted: bool) -> int:
    """Run the test cases of the agent in FILE (default: agent.yaml)."""
    terminal = Terminal(is_quiet=quiet)
    # A test must not depend on whether a user is at the terminal.
    terminal.can_ask = False
    loaded = read_trusted_agent(file, terminal, is_trusted=is_trusted)
    cases = _select_cases(loaded, pattern)
    try:
        verdicts = run_interruptible(_run_cases(loaded, cases, terminal, prints=not as_json))
    except KeyboardInterrupt:
        raise click.Abort from None
    report_data = build_report(loaded.agent.name, file, verdicts)
    if as_json:
        terminal.print_line(json_text(report_data, indent=2))
    else:
        terminal.print_line()
        terminal.table(("Verdict", "Case", "Calls", "Turns", "Tokens", "Time"), summary_rows(verdicts))
        terminal.print_line(f"\n{format_counts(verdicts)}")
    if report is not None:
        write_report(report, report_data)
    return 1 if any(verdict.outcome == "failed" for verdict in verdicts) else 0


def _select_cases(loaded: LoadedAgent, pattern: str) -> list[tuple[str, TestCase]]:
    named = [(case.name or one_line(case.input, MAX_DESCRIPTION_SHOWN), case) for case in loaded.agent.test_cases]
    if not named:
        raise click.UsageError(f"{loaded.path.name} has no 'test_cases'. 'holodeck test --help' shows how they look.")
    chosen = [(name, case) for name, case in named if _matches(pattern, name) or _matches(pattern, case.input)]
    if not chosen:
        raise click.UsageError(f"No test case has '{pattern}'. There are: {', '.join(name for name, _ in named)}.")
    return chosen


def _matches(pattern: str, text: str) -> bool:
    return pattern.lower() in text.lower() or fnmatch(text.lower(), pattern.lower())


async def _run_cases(
    loaded: LoadedAgent, cases: Sequence[tuple[str, TestCase]], terminal: Terminal, *, prints: bool
) -> list[Verdict]:
    verdicts: list[Verdict] = []
    async with open_agent(loaded, terminal) as (agent, _):
        for name, case in cases:
            verdict = await _run_case(agent, name, case, terminal)
            verdicts.append(verdict)
            if prints:
                print_verdict(verdict, terminal.print_line)
    return verdicts


async def _run_case(agent: Agent, name: str, case: TestCase, terminal: Terminal) -> Verdict:
    agent.forget()
    recorder = CallRecorder(agent)
    follower = None if terminal.is_quiet else Follower(agent, terminal, writes_answer=False)
    async with aclosing(agent.stream(case.input)) as events:
        async for event in events:
            recorder.record(event)
            if follower is not None:
                follower.show(event)
    return recorder.judge(name, case)


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
