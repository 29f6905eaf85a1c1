"""`holodeck validate`: the file is good, or everything that is wrong with it. Nothing is started or dialled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from holodeck.cli.commands.summary import agent_summary, gateway_summary, summary_headings
from holodeck.cli.output.config_problems import count_problems, print_problems, problem_data
from holodeck.cli.usual_file import resolve_file
from holodeck.config.agent_loader import DEFAULT_AGENT_FILE, DEFAULT_GATEWAY_FILE, LoadedAgent
from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.escape import escape_unprintable
from holodeck.runtime import read_agent_or_gateway

_EPILOG = """\b
Examples:
  holodeck validate                  check ./agent.yaml, or else ./gateway.yaml
  holodeck validate team/agent.yaml
  holodeck validate --strict --json  for CI: warnings fail, output for programs"""

_DEFAULT_FILES = (DEFAULT_AGENT_FILE, DEFAULT_GATEWAY_FILE)
_COLUMNS = ("Tool", "Via", "Starts, dials or calls", "Variables")


@click.command("validate", epilog=_EPILOG)
@click.argument("file", required=False, type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--strict", is_flag=True, help="Warnings fail, too.")
def command(file: str | None, as_json: bool, strict: bool) -> int:
    """Check an agent or gateway FILE (default: agent.yaml, or else gateway.yaml) and show what it would start or dial.

    Exit code 0: good. 2: something is wrong with the file.
    """
    path = Path(file or DEFAULT_AGENT_FILE)
    problems: tuple[Problem, ...]
    shown: dict[str, Any] = {}
    try:
        path = resolve_file(file, _DEFAULT_FILES)
        loaded = read_agent_or_gateway(path)
        problems, is_valid = loaded.warnings, not (strict and loaded.warnings)
        shown = agent_summary(loaded) if isinstance(loaded, LoadedAgent) else gateway_summary(loaded)
    except ConfigError as error:
        problems, is_valid = error.problems, False
    if as_json:
        result = {
            "valid": is_valid,
            "file": str(path),
            **shown,
            "problems": [problem_data(problem) for problem in problems],
        }
        click.echo(json.dumps(result, indent=2, ensure_ascii=False))
    else:
        _print_validation(str(path), shown, problems, is_valid)
    return 0 if is_valid else 2


def _print_validation(path: str, summary_data: dict[str, Any], problems: tuple[Problem, ...], is_valid: bool) -> None:
    if summary_data:
        _print_summary(summary_data)
    if problems:
        print_problems(problems)
    if is_valid:
        remark = f" ({count_problems(problems)})" if problems else ""
        click.secho(f"{escape_unprintable(path)} is valid{remark}.", fg="green")
    elif Path(path).is_file():
        click.secho(f"{escape_unprintable(path)} is not valid.", fg="red", err=True)


def _print_summary(summary_data: dict[str, Any]) -> None:
    from rich.console import Console

    from holodeck.cli.output.tables import show_table

    console = Console(highlight=False, markup=False, emoji=False)
    lines = (
        summary_headings(summary_data)
        if summary_data["tools"]
        else [*summary_headings(summary_data), ("Tools", "none")]
    )
    width = max(len(label) for label, _ in lines)
    for label, text in lines:
        console.print(escape_unprintable(f"{label:<{width}}  {text}"))
    if summary_data["tools"]:
        show_table(console, _COLUMNS, [_row(tool) for tool in summary_data["tools"]])
    console.print()


def _row(tool: dict[str, Any]) -> tuple[str, ...]:
    target = tool.get("starts") or tool.get("dials") or tool.get("calls")
    via = tool.get("transport", tool["type"]) + ("" if tool.get("enabled", True) else " (disabled)")
    via += ", callers' own credentials" if tool.get("caller_authorization") else ""
    return (tool["name"], via, str(target), ", ".join(tool["variables"]) or "-")
