"""Findings of lint as text for a terminal and as data for `--json`, for every command that shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from holodeck.lib.escape import escape_json, escape_unprintable, one_line

if TYPE_CHECKING:
    from holodeck.tools.mcp.lint.finding import Finding

_MAX_SUBJECT_CHARS = 200
_COLOURS = {"error": "red", "warning": "yellow"}


def print_findings(findings: Sequence[Finding], *, err: bool = False) -> None:
    """Print two lines for each finding: severity, code and place, then what was found. `err`: to standard error."""
    for line in finding_lines(findings):
        click.echo(line, err=err)


def finding_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the lines of `print_findings`, with colours. Text of servers and files is escaped."""
    for finding in findings:
        parts = (finding.server, finding.tool, finding.place)
        subject = one_line(" ".join(part for part in parts if part is not None), _MAX_SUBJECT_CHARS)
        yield f"{click.style(finding.severity, fg=_COLOURS[finding.severity])} {finding.code}: {subject}"
        yield f"  {escape_unprintable(finding.message)}"


def findings_data(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return findings as data for `--json`."""
    return [escape_json(asdict(finding)) for finding in findings]


def count_findings(findings: Sequence[Finding]) -> str:
    """Return a text such as `2 errors and 1 warning`."""
    errors = sum(finding.severity == "error" for finding in findings)
    warnings = len(findings) - errors
    return f"{errors} error{'' if errors == 1 else 's'} and {warnings} warning{'' if warnings == 1 else 's'}"


def has_error(findings: Sequence[Finding]) -> bool:
    """Return whether one of the findings is an error: something that no honest server needs."""
    return any(finding.severity == "error" for finding in findings)
