"""`holodeck mcp import`: copy the servers of another program's file into an agent or gateway file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from holodeck.cli.commands.mcp.entries.add import print_replaced
from holodeck.cli.commands.mcp.entries.own_file import FILES, OwnFile, open_own_file
from holodeck.cli.commands.mcp.target import print_errors_as_json
from holodeck.cli.output.config_problems import print_problems, problem_data
from holodeck.config.known_keys import closest_match
from holodeck.config.mcp_json.entry_writer import describe_entry
from holodeck.config.mcp_json.own_entries import OwnEntries, read_own_entries
from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.escape import escape_unprintable
from holodeck.models.tool_rules import COMMANDS, USER_SETTINGS

_EPILOG = """\b
Examples:
  holodeck mcp import .vscode/mcp.json               all its servers, into ./agent.yaml
  holodeck mcp import ~/.cursor/mcp.json files time
  holodeck mcp import ~/.codex/config.toml --into gateway.yaml

\b
What cannot be said in your file is named. Secrets become references to variables.
Exit codes: 0 done, 1 a server was left out or the file cannot be written, 2 the file would be invalid."""


@click.command("import", epilog=_EPILOG)
@click.argument("source", metavar="FILE", type=click.Path(path_type=Path))
@click.argument("servers", nargs=-1)
@click.option("--into", help=f"Your file (default: the first of {', '.join(FILES)}).")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@print_errors_as_json
def command(*, source: Path, servers: tuple[str, ...], into: str | None, as_json: bool) -> int:
    """Copy the servers of FILE, which another program wrote, into your file. FILE stays as it is."""
    own = open_own_file(into)
    found = read_own_entries(source, own.path.absolute().parent)
    chosen = _select(found, servers, source)
    fresh = _leave_out_equal(own, {name: found.entries[name] for name in chosen})
    result, tolerated = own.add_entries(list(fresh.values()), keeps_trust=False, tolerates=_is_command_problem)
    left_out = {name: problems for name, problems in found.refused.items() if not servers}
    warnings = [problem for problem in found.problems if problem.severity == "warning"]
    errors = [problem for problems in left_out.values() for problem in problems]
    replaced = [each for name in fresh for each in found.replaced[name]]
    if as_json:
        data = {
            "imported": list(fresh.values()),
            "left_out": sorted(left_out),
            "problems": [problem_data(problem) for problem in (*errors, *warnings, *tolerated)],
            "replaced": [{"key": each.key, "variable": each.variable} for each in replaced],
            **result.to_data(),
        }
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        _print_imported(own, fresh)
        print_replaced(replaced)
        _print_commands(fresh)
        if errors or warnings:
            print_problems([*errors, *warnings])
    return 1 if left_out else 0


def _select(found: OwnEntries, names: Sequence[str], source: Path) -> list[str]:
    """Return the names to import. Raises `ConfigError` for a name that is not there or cannot be used."""
    if not names:
        return list(found.entries)
    for name in names:
        if name in found.refused:
            raise ConfigError.of(found.refused[name])
        if name not in found.entries:
            close = closest_match(name, list(found.entries))
            fix = f"Did you mean '{close}'?" if close else f"There are: {', '.join(found.entries)}."
            raise ConfigError.of([Problem(message=f"there is no server '{name}'", file=str(source), fix=fix)])
    return list(dict.fromkeys(names))


def _leave_out_equal(own: OwnFile, entries: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the entries that the file does not have yet. Raises `ConfigError` for another entry of the same name."""
    there = {entry.get("name"): entry for entry in own.list_entries() if isinstance(entry, dict)}
    fresh: dict[str, dict[str, Any]] = {}
    for name, entry in entries.items():
        if name not in there:
            fresh[name] = entry
        elif {"type": "mcp", **there[name]} != {"type": "mcp", **entry}:
            fix = f"Remove it first (holodeck mcp remove {name}), or name the servers to import."
            message = f"there is another server '{name}' already"
            raise ConfigError.of([Problem(message=message, file=str(own.path), fix=fix)])
    return fresh


def _is_command_problem(problem: Problem) -> bool:
    return problem.key.endswith(".command") and problem.message.startswith("Invalid command")


def _print_imported(own: OwnFile, entries: dict[str, dict[str, Any]]) -> None:
    for name, entry in entries.items():
        click.echo(escape_unprintable(f"Added '{name}' to {own.path}: {describe_entry(entry)}"))
    if not entries:
        click.echo(escape_unprintable(f"{own.path} has them already; nothing was written."))


def _print_commands(entries: dict[str, dict[str, Any]]) -> None:
    others = [str(entry["command"]) for entry in entries.values() if entry.get("command") not in {None, *COMMANDS}]
    if others:
        names = ", ".join(dict.fromkeys(others))
        text = (
            f"Your file is invalid until you allow these programs, because a file cannot allow them itself: write "
            f"'allowed_commands: [{names}]' in {USER_SETTINGS}, or in a gateway file."
        )
        click.secho(escape_unprintable(text), fg="yellow", err=True)
