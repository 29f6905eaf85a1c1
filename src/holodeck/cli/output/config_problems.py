"""Configuration problems as text for a terminal and as data for `--json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from holodeck.cli.output.error_topics import print_topic, topic_of_problems
from holodeck.lib.errors import Problem
from holodeck.lib.escape import escape_unprintable

# Problems printed at once: a user fixes the first ones and runs the command again.
MAX_PROBLEMS_SHOWN = 50

_COLOURS = {"error": "red", "warning": "yellow"}


def print_problems(problems: Sequence[Problem]) -> None:
    """Print each problem on lines of its own to stderr: where, what, how to fix it; then a count and where to read."""
    for problem in problems[:MAX_PROBLEMS_SHOWN]:
        location = "  ".join(part for part in (problem.where, problem.key) if part)
        if location:
            click.secho(escape_unprintable(location), bold=True, err=True)
        click.echo(
            "  "
            + click.style(problem.label, fg=_COLOURS[problem.severity])
            + f": {escape_unprintable(problem.message)}",
            err=True,
        )
        if problem.fix:
            click.secho(f"  {escape_unprintable(problem.fix)}", dim=True, err=True)
    hidden = len(problems) - MAX_PROBLEMS_SHOWN
    if hidden > 0:
        click.echo(f"... and {hidden} more.", err=True)
    click.echo("\n" + count_problems(problems), err=True)
    print_topic(topic_of_problems(problems))


def count_problems(problems: Sequence[Problem]) -> str:
    """Return a text such as `2 errors, 1 warning`."""
    parts = []
    for severity in ("error", "warning"):
        number = sum(problem.severity == severity for problem in problems)
        if number:
            parts.append(f"{number} {severity}{'s' if number > 1 else ''}")
    return ", ".join(parts)


def problem_data(problem: Problem) -> dict[str, Any]:
    """Return a problem as data for `--json`."""
    return {
        "severity": problem.severity,
        "kind": problem.label,
        "message": problem.message,
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "key": problem.key,
        "fix": problem.fix,
    }
