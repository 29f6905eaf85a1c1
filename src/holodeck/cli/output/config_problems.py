"""Configuration problems and findings of lint, as text for a terminal and as data for `--json`.

An error is printed with the page of the documentation that explains it: `More: holodeck docs TOPIC`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holodeck.lib.errors import (
    HoloDeckError,
    MCPError,
    MCPToolNotFoundError,
    ModelError,
    Problem,
    ServerUnavailableError,
    StorageError,
)
from holodeck.lib.escape import escape_json, escape_unprintable, one_line

if TYPE_CHECKING:
    from holodeck.tools.mcp.lint.finding import Finding

# Problems printed at once: a user fixes the first ones and runs the command again.
MAX_PROBLEMS_SHOWN = 50

_COLOURS = {"error": "red", "warning": "yellow"}
TOPICS_OF_ERRORS: Mapping[type[HoloDeckError], str] = {
    MCPError: "guides/server-does-not-start",
    MCPToolNotFoundError: "guides/tools",
    ModelError: "reference/errors",
    ServerUnavailableError: "guides/server-does-not-start",
    StorageError: "operate/when-things-go-wrong",
}
"""The topic of each class of errors at run time, and of its subclasses."""
TOPICS_OF_FILES: Mapping[str, str] = {
    "agent": "reference/agent-file",
    "config": "reference/config-file",
    "gateway": "reference/gateway-file",
}
"""The topic of each kind of configuration file."""
_MAX_SUBJECT_CHARS = 200


def print_problems(problems: Sequence[Problem]) -> None:
    """Print each problem on lines of its own to stderr: where, what, how to fix it; then a count and where to read.

    A single one that is in no file, but in the command line, is printed as every other error of a command.
    """
    if len(problems) == 1 and not problems[0].where and not problems[0].key and problems[0].severity == "error":
        text = " ".join(part for part in (_as_sentence(problems[0].message), _as_sentence(problems[0].fix)) if part)
        click.echo(f"Error: {escape_unprintable(text)}", err=True)
        return
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


def _as_sentence(text: str) -> str:
    return text if not text or text.endswith((".", "?", "!", ":")) else f"{text}."


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


def topic_of_error(error: HoloDeckError) -> str | None:
    """Return the topic that explains an error at run time, or None."""
    return next((TOPICS_OF_ERRORS[kind] for kind in type(error).__mro__ if kind in TOPICS_OF_ERRORS), None)


def topic_of_problems(problems: Iterable[Problem]) -> str | None:
    """Return the topic about the file of the first error, or None if the error is about no key of ours."""
    from holodeck.models.agent import Agent
    from holodeck.models.gateway import GatewayFile

    for problem in problems:
        found = re.match(r"\w+", problem.key)
        if problem.severity != "error" or found is None:
            continue
        if Path(problem.file).name == "config.yaml":
            return TOPICS_OF_FILES["config"]
        for kind, model in (("agent", Agent), ("gateway", GatewayFile)):
            if found[0].removesuffix("_file") in model.model_fields:
                return TOPICS_OF_FILES[kind]
    return None


def print_topic(topic: str | None) -> None:
    """Print to stderr how to read about an error, if there is a page about it."""
    if topic is not None:
        click.secho(f"More: holodeck docs {topic}", dim=True, err=True)


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
