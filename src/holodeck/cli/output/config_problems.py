"""How problems of configuration look in a terminal and to a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from holodeck.lib.errors import Problem
from holodeck.lib.escape import escape_unprintable

# A person fixes a few and runs it again.
MAX_PROBLEMS_SHOWN = 50


_COLOURS = {"error": "red", "warning": "yellow"}


def print_problems(problems: Sequence[Problem]) -> None:
    """Each problem on its own lines: where, what, how to fix it; then a count."""
    for problem in problems[:MAX_PROBLEMS_SHOWN]:
        place = "  ".join(part for part in (problem.where, problem.key) if part)
        if place:
            click.secho(escape_unprintable(place), bold=True, err=True)
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


def count_problems(problems: Sequence[Problem]) -> str:
    """`2 errors, 1 warning`."""
    parts = []
    for severity in ("error", "warning"):
        number = sum(problem.severity == severity for problem in problems)
        if number:
            parts.append(f"{number} {severity}{'s' if number > 1 else ''}")
    return ", ".join(parts)


def problem_data(problem: Problem) -> dict[str, Any]:
    """A problem for `--json`."""
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
