"""`holodeck test`: run the test cases of an agent, each in a conversation of its own, and report why one failed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holodeck.cli.commands import case_report
from holodeck.cli.commands.case_verdict import CallRecorder, Verdict
from holodeck.cli.interruptible import run_interruptible
from holodeck.cli.load_agent import open_agent, read_and_warn
from holodeck.cli.output.events_json import json_text
from holodeck.cli.output.follow_run import Follower
from holodeck.cli.output.terminal import Terminal
from holodeck.config.agent_loader import DEFAULT_AGENT_FILE, LoadedAgent
from holodeck.lib.escape import one_line
from holodeck.lib.limits import MAX_DESCRIPTION_SHOWN
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


@click.command("test", epilog=_EPILOG)
@click.argument("file", default=DEFAULT_AGENT_FILE, type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option(
    "--report", type=click.Path(path_type=Path), help="Also write the report to a file: Markdown (.md) or JSON."
)
@click.option("-k", "pattern", default="", help="Only cases whose name or input has this text (or matches this glob).")
@click.option("-q", "--quiet", is_flag=True, help="Do not show what happens while a case runs.")
def command(file: str, as_json: bool, report: Path | None, pattern: str, quiet: bool) -> int:
    """Run the test cases of the agent in FILE (default: agent.yaml)."""
    terminal = Terminal(is_quiet=quiet)
    # A test must not depend on whether a user is at the terminal.
    terminal.can_ask = False
    loaded = read_and_warn(file, terminal)
    cases = _select_cases(loaded, pattern)
    try:
        verdicts = run_interruptible(_run_cases(loaded, cases, terminal, prints=not as_json))
    except KeyboardInterrupt:
        raise click.Abort from None
    report_data = case_report.build_report(loaded.agent.name, file, verdicts)
    if as_json:
        terminal.print_line(json_text(report_data, indent=2))
    else:
        terminal.print_line()
        terminal.table(("Verdict", "Case", "Calls", "Turns", "Tokens", "Time"), case_report.summary_rows(verdicts))
        terminal.print_line(f"\n{case_report.format_counts(verdicts)}")
    if report is not None:
        case_report.write_report(report, report_data)
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
                case_report.print_verdict(verdict, terminal.print_line)
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
