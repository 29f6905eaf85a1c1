"""Lines and tables about verdicts for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.output.run_lines import format_duration
from holodeck.cli.output.terminal import Terminal
from holodeck.lib.escape import escape_unprintable, one_line
from holodeck.lib.limits import MAX_DESCRIPTION_SHOWN, MAX_FAILURE_SHOWN

if TYPE_CHECKING:
    from holodeck.evaluation.suite_report import CaseResult, Figures, PassRate, SuiteReport, SuiteResult
    from holodeck.evaluation.verdict import CheckResult, Verdict

# Checks whose result is shown also where they passed: it says what was compared, or what the judge thought.
ALWAYS_SHOWN = frozenset({"answered", "ground_truth", "judge"})
# What stands in a table for a number that is not known.
UNKNOWN = "-"


def print_verdict(title: str, verdict: Verdict, say: Callable[[str], None]) -> None:
    """Print one case: its outcome, why it failed, its tool calls, the answer that failed, and what was judged."""
    label, colour = ("PASS", "green") if verdict.passed else ("FAIL", "red")
    say(
        click.style(label, fg=colour, bold=True)
        + f"  {escape_unprintable(title)}  {format_duration(verdict.result.seconds)}"
    )
    for check in verdict.checks:
        if not check.passed:
            say(_line("why", describe_check(check), fg="red"))
    for call in verdict.calls:
        say(_line("called", f"{call}{' - it failed' if call.call_id in verdict.failed_call_ids else ''}", dim=True))
    if not verdict.passed:
        say(_line("answer", verdict.result.text or "(none)", dim=True))
    if verdict.case.ground_truth and not verdict.passed:
        say(_line("truth", verdict.case.ground_truth, dim=True))
    for check in verdict.checks:
        if check.passed and check.name in ALWAYS_SHOWN:
            say(_line("checked", describe_check(check), dim=True))


def describe_check(check: CheckResult) -> str:
    """Return the reason of a check, and of a judge its tokens and their cost."""
    if check.usage is None:
        return check.reason
    cost = "" if check.cost is None else f", cost {check.cost:.6f}"
    return f"{check.reason} ({check.usage.total_tokens:,} tokens{cost})"


def print_summary(report: SuiteReport, terminal: Terminal) -> None:
    """Print the tables of a report, and the counts."""
    models = report.figures_by_model
    if not report.is_complete:
        terminal.print_line(f"\nStopped: {len(report.verdicts)} of {report.planned} runs have ended.")
    terminal.print_line()
    if report.repeat == 1 and not report.compares_models:
        _print_cases(report, terminal)
    else:
        _print_rates(report, terminal)
        terminal.print_line()
        _print_models(models, terminal)
    terminal.print_line(f"\n{format_counts(report)}")
    if report.fail_under is not None:
        for model, figures in models.items():
            rate, least = figures.pass_rate.rate, report.fail_under
            relation = "reaches" if rate >= least else "is below"
            terminal.print_line(f"{escape_unprintable(model)}: {rate * 100:.1f} % {relation} {least * 100:g} %")


def format_counts(report: SuiteReport) -> str:
    """Return a text such as `3 passed, 1 failed`, for repeated cases with the pass rate."""
    rate = report.figures.pass_rate
    share = f"; pass rate {format_rate(rate)}" if report.repeat > 1 and rate.total else ""
    return f"{rate.passed} passed{f', {rate.failed} failed' if rate.failed else ''}{share}"


def format_rate(rate: PassRate) -> str:
    """Return the rate with its interval: `80 % (38 to 96 %)`."""
    low, high = rate.interval
    return f"{rate.rate * 100:.0f} % ({low * 100:.0f} to {high * 100:.0f} %)" if rate.total else UNKNOWN


def format_cost(cost: float | None) -> str:
    """Return a cost; `-` if it is not known."""
    return UNKNOWN if cost is None else f"{cost:.6f}"


def format_seconds(seconds: float | None) -> str:
    """Return a duration; `-` if there is none."""
    return UNKNOWN if seconds is None else format_duration(seconds)


def _print_cases(report: SuiteReport, terminal: Terminal) -> None:
    """Print a row for each case, which ran once."""
    has_files = len(report.suites) > 1
    rows = [
        (
            "pass" if verdict.passed else "FAIL",
            one_line(case.name, MAX_DESCRIPTION_SHOWN),
            *([suite.suite.file] if has_files else []),
            str(verdict.result.tool_calls),
            str(verdict.result.turns),
            f"{verdict.result.usage.total_tokens:,}",
            format_duration(verdict.result.seconds),
        )
        for suite in report.suites
        for case in suite.cases
        for verdict in case.verdicts
    ]
    files = ["File"] if has_files else []
    terminal.table(("Verdict", "Case", *files, "Calls", "Turns", "Tokens", "Time"), rows)


def _print_rates(report: SuiteReport, terminal: Terminal) -> None:
    """Print a row for each case. Models that are compared have a column each."""
    by_file: dict[str, list[SuiteResult]] = {}
    for suite in report.suites:
        by_file.setdefault(suite.suite.file, []).append(suite)
    has_files = len(by_file) > 1
    rows = [
        [
            one_line(case.name, MAX_DESCRIPTION_SHOWN),
            *([file] if has_files else []),
            *(_describe_case(suite.cases[index]) for suite in suites),
        ]
        for file, suites in by_file.items()
        for index, case in enumerate(suites[0].cases)
    ]
    rates = list(report.figures_by_model) if report.compares_models else ["Pass rate (95 % interval)"]
    terminal.table(("Case", *(["File"] if has_files else []), *rates), rows)


def _describe_case(case: CaseResult) -> str:
    rate = case.figures.pass_rate
    return f"{rate.passed}/{rate.total}  {format_rate(rate)}" if rate.total else UNKNOWN


def _print_models(models: dict[str, Figures], terminal: Terminal) -> None:
    columns = ("Model", "Passed", "Pass rate (95 % interval)", "Tokens", "Cost", "Median time")
    terminal.table(columns, list_model_rows(models))


def list_model_rows(models: dict[str, Figures]) -> Sequence[Sequence[str]]:
    """Return a table row for each model: its name, runs, pass rate, tokens, cost, and the median of the time."""
    return [
        (
            model,
            f"{figures.pass_rate.passed}/{figures.pass_rate.total}",
            format_rate(figures.pass_rate),
            f"{figures.tokens:,}",
            format_cost(figures.cost),
            format_seconds(figures.median_seconds),
        )
        for model, figures in models.items()
    ]


def _line(label: str, text: str, **style: Any) -> str:
    return click.style(f"      {label:<8}{one_line(text, MAX_FAILURE_SHOWN)}", **style)
