"""`holodeck validate`: the file is good, or everything that is wrong with it. Nothing is started or dialled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from holodeck.cli.report import as_data, count, show_problems
from holodeck.cli.summary import gateway_summary, headings, summary
from holodeck.cli.usual_file import file_or_usual
from holodeck.config.loader import DEFAULT_AGENT_FILE, DEFAULT_GATEWAY_FILE, LoadedAgent
from holodeck.lib.display import printable
from holodeck.lib.errors import ConfigError, Problem
from holodeck.runtime import read_any

_EPILOG = """\b
Examples:
  holodeck validate                  check ./agent.yaml, or else ./gateway.yaml
  holodeck validate team/agent.yaml
  holodeck validate --strict --json  for CI: warnings fail, output for programs"""

_USUAL = (DEFAULT_AGENT_FILE, DEFAULT_GATEWAY_FILE)
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
        path = file_or_usual(file, _USUAL)
        loaded = read_any(path)
        problems, is_valid = loaded.warnings, not (strict and loaded.warnings)
        shown = summary(loaded) if isinstance(loaded, LoadedAgent) else gateway_summary(loaded)
    except ConfigError as error:
        problems, is_valid = error.problems, False
    if as_json:
        result = {"valid": is_valid, "file": str(path), **shown, "problems": [as_data(problem) for problem in problems]}
        click.echo(json.dumps(result, indent=2, ensure_ascii=False))
    else:
        _show(str(path), shown, problems, is_valid)
    return 0 if is_valid else 2


def _show(path: str, shown: dict[str, Any], problems: tuple[Problem, ...], is_valid: bool) -> None:
    if shown:
        _table(shown)
    if problems:
        show_problems(problems)
    if is_valid:
        remark = f" ({count(problems)})" if problems else ""
        click.secho(f"{printable(path)} is valid{remark}.", fg="green")
    elif Path(path).is_file():
        click.secho(f"{printable(path)} is not valid.", fg="red", err=True)


def _table(shown: dict[str, Any]) -> None:
    from rich.console import Console

    from holodeck.cli.tables import show_table

    console = Console(highlight=False, markup=False, emoji=False)
    lines = headings(shown) if shown["tools"] else [*headings(shown), ("Tools", "none")]
    width = max(len(label) for label, _ in lines)
    for label, text in lines:
        console.print(printable(f"{label:<{width}}  {text}"))
    if shown["tools"]:
        show_table(console, _COLUMNS, [_row(tool) for tool in shown["tools"]])
    console.print()


def _row(tool: dict[str, Any]) -> tuple[str, ...]:
    target = tool.get("starts") or tool.get("dials") or tool.get("calls")
    via = tool.get("transport", tool["type"]) + ("" if tool.get("enabled", True) else " (disabled)")
    via += ", callers' own credentials" if tool.get("caller_authorization") else ""
    return (tool["name"], via, str(target), ", ".join(tool["variables"]) or "-")
