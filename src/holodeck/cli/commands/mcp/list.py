"""`holodeck mcp list`: each server with its state. A line is printed as soon as it is known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.commands.mcp.connect import ServerResult, query_all, reason_text, run_with_logging, with_timeout
from holodeck.cli.commands.mcp.target import Target, failure_data, start_timeout_option, target_options, warn_about_file
from holodeck.cli.output.config_problems import problem_data
from holodeck.config.server_loader import LoadedServers
from holodeck.lib.escape import escape_unprintable, one_line
from holodeck.lib.record import record

if TYPE_CHECKING:
    from holodeck.tools.mcp.plugin import MCPPlugin

# Characters of the reason why a server is down, in the table: a row stays readable.
MAX_REASON_SHOWN = 160

_FIRST_COLUMN = "SERVER"
_COLUMNS = (("STATE", 9), ("ERA", 7), ("VERSION", 11), ("TOOLS", 6), ("PROMPTS", 8), ("START", 8))
_COLOURS = {"up": "green", "down": "red", "invalid": "red", "disabled": "yellow"}
_EPILOG = """\b
Examples:
  holodeck mcp list
  holodeck mcp list -f ~/.claude.json --timeout 10"""


@record
class _ServerDescription:
    """The report of a server that is up about itself."""

    era: str
    version: str
    tools: int
    prompts: int
    software: str
    warnings: list[str]
    """Patterns of the configuration file that match none of its tools."""


@click.command("list", epilog=_EPILOG)
@start_timeout_option
@target_options
def command(target: Target, timeout: float | None) -> int:
    """Show each server: state, protocol era and version, number of tools and prompts, time to start."""
    loaded = target.load_servers()
    servers = [with_timeout(item, timeout) for item in loaded.tools]
    names = [*(item.tool.name for item in servers), *loaded.refused]
    width = max(map(len, (_FIRST_COLUMN, *names))) + 1
    if not target.as_json:
        _print_header(width, names)
        for name, problems in loaded.refused.items():
            _print_row(width, name, "invalid", (), problems[0].message)

    def print_result(result: ServerResult[_ServerDescription]) -> None:
        if not target.as_json:
            _print_server(width, result)

    results = run_with_logging(
        query_all(servers, _describe_server, on_result=print_result, verb="starting"), verbose=target.verbose
    )
    if target.as_json:
        click.echo(json.dumps(_listing_data(loaded, results), indent=2))
    else:
        warn_about_file(loaded, target)
    is_good = not loaded.refused and all(result.error is None for result in results)
    return 0 if is_good else 2 if loaded.refused and not results else 1


async def _describe_server(plugin: MCPPlugin) -> _ServerDescription:
    await plugin.connect()
    info = plugin.server_info
    tools = await plugin.list_tools()
    return _ServerDescription(
        era=str(plugin.era or ""),
        version=plugin.protocol_version or "",
        tools=len(tools),
        prompts=len(await plugin.list_prompts()),
        software=" ".join(str(info[key]) for key in ("name", "version") if info.get(key)),
        warnings=list(plugin.unmatched_patterns),
    )


def _print_header(width: int, names: Sequence[str]) -> None:
    if not names:
        click.echo("No servers are listed.")
        return
    cells = "".join(name.ljust(size + 1) for name, size in _COLUMNS)
    click.secho(f"{_FIRST_COLUMN.ljust(width)} {cells}ABOUT", bold=True)


def _print_server(width: int, result: ServerResult[_ServerDescription]) -> None:
    about = result.answer
    time = f"{result.seconds:.2f} s"
    if about is not None:
        cells = (about.era, about.version, str(about.tools), str(about.prompts), time)
        _print_row(width, result.name, "up", cells, about.software)
        for warning in about.warnings:
            click.secho(escape_unprintable(warning), fg="yellow", err=True)
    elif result.error is not None:
        _print_row(width, result.name, "down", ("", "", "", "", time), reason_text(result.error))
    else:
        _print_row(width, result.name, "disabled", (), "")


def _print_row(width: int, name: str, state: str, cells: Sequence[str], about: str) -> None:
    widths = [size for _, size in _COLUMNS]
    shown = [one_line(cell, size).ljust(size + 1) for cell, size in zip(cells, widths[1:], strict=False)]
    rest = "".join(shown) or " " * (sum(widths[1:]) + len(widths) - 1)
    label = click.style(state, fg=_COLOURS[state]) + " " * (widths[0] + 1 - len(state))
    click.echo(f"{escape_unprintable(name).ljust(width)} {label}{rest}{one_line(about, MAX_REASON_SHOWN)}".rstrip())


def _listing_data(loaded: LoadedServers, results: Sequence[ServerResult[_ServerDescription]]) -> dict[str, Any]:
    servers: list[dict[str, Any]] = []
    for result in results:
        state = "up" if result.answer else "down" if result.error else "disabled"
        server: dict[str, Any] = {"name": result.name, "state": state}
        if result.answer is not None:
            server |= asdict(result.answer)
        if result.error is not None:
            server |= failure_data(result.error)
        servers.append({**server, "seconds": round(result.seconds, 3)} if result.is_enabled else server)
    servers += [
        {"name": name, "state": "invalid", "error": {"message": problems[0].message}}
        for name, problems in loaded.refused.items()
    ]
    return {"servers": servers, "problems": [problem_data(problem) for problem in loaded.problems]}
