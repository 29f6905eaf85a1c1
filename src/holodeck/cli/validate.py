"""`holodeck validate`: the file is good, or everything that is wrong with it. Nothing is started or dialled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from holodeck.cli.report import as_data, count, show_problems
from holodeck.cli.summary import gateway_summary, headings, summary
from holodeck.config.loader import DEFAULT_AGENT_FILE, LoadedAgent
from holodeck.lib.display import printable
from holodeck.lib.errors import ConfigError, Problem
from holodeck.runtime import read_any

_EPILOG = """\b
Examples:
  holodeck validate                  check ./agent.yaml
  holodeck validate team/agent.yaml
  holodeck validate --strict --json  for CI: warnings fail, output for programs"""


@click.command("validate", epilog=_EPILOG)
@click.argument("file", default=DEFAULT_AGENT_FILE, type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--strict", is_flag=True, help="Warnings fail, too.")
def command(file: str, as_json: bool, strict: bool) -> int:
    """Check an agent or gateway FILE (default: agent.yaml) and show what it would start or dial.

    Exit code 0: good. 2: something is wrong with the file.
    """
    path = Path(file) / DEFAULT_AGENT_FILE if Path(file).is_dir() else Path(file)
    problems: tuple[Problem, ...]
    shown: dict[str, Any] = {}
    try:
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
    else:
        click.secho(f"{printable(path)} is not valid.", fg="red", err=True)


def _table(shown: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    for label, text in headings(shown):
        console.print(printable(f"{label}  {text}"))
    if not shown["tools"]:
        console.print("Tools  none")
    else:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("Tool", "Via", "Starts, dials or calls", "Variables"):
            table.add_column(column, overflow="fold")
        for tool in shown["tools"]:
            target = tool.get("starts") or tool.get("dials") or tool.get("calls")
            via = tool.get("transport", tool["type"]) + ("" if tool.get("enabled", True) else " (disabled)")
            via += ", callers' own credentials" if tool.get("caller_authorization") else ""
            cells = (tool["name"], via, target, ", ".join(tool["variables"]) or "-")
            table.add_row(*(printable(str(cell)) for cell in cells))
        console.print(table)
    console.print()
