"""`holodeck mcp list`: every server with its state; each line appears as soon as it is known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.commands.mcp.connect import ServerResult, query_all, reason_text, run_with_logging, with_timeout
from holodeck.cli.commands.mcp.target import Target, failure_data, start_timeout_option, target_options, warn_about_file
from holodeck.cli.output.config_problems import problem_data
from holodeck.config.server_loader import LoadedServers
from holodeck.lib.escape import escape_unprintable, one_line

if TYPE_CHECKING:
    from holodeck.tools.mcp.plugin import MCPPlugin

# Characters of why a server is down, in a table.
MAX_REASON_SHOWN = 160


_FIRST_COLUMN = "SERVER"
_COLUMNS = (("STATE", 9), ("ERA", 7), ("VERSION", 11), ("TOOLS", 6), ("PROMPTS", 8), ("START", 8))
_COLOURS = {"up": "green", "down": "red", "invalid": "red", "disabled": "yellow"}
_EPILOG = """\b
Examples:
  holodeck mcp list
  holodeck mcp list -f ~/.claude.json --timeout 10"""


@dataclass(frozen=True, kw_only=True)
class _ServerDescription:
    """What a server that is up says of itself."""

    era: str
    version: str
    tools: int
    prompts: int
    software: str
    warnings: list[str]
    """What the file says of its tools, and none of them is."""


@click.command("list", epilog=_EPILOG)
@start_timeout_option
@target_options
def command(target: Target, timeout: float | None) -> int:
    """Show each server: state, era, version, how many tools and prompts, time to start."""
    loaded = target.load_servers()
    servers = [with_timeout(item, timeout) for item in loaded.tools]
    names = [*(item.tool.name for item in servers), *loaded.refused]
    width = max(map(len, (_FIRST_COLUMN, *names))) + 1
    if not target.as_json:
        _print_header(width, names)
        for name, problems in loaded.refused.items():
            _print_row(width, name, "invalid", (), problems[0].message)

    def print_result(visit: ServerResult[_ServerDescription]) -> None:
        if not target.as_json:
            _print_server(width, visit)

    visits = run_with_logging(
        query_all(servers, _describe_server, on_result=print_result, verb="starting"), verbose=target.verbose
    )
    if target.as_json:
        click.echo(json.dumps(_listing_data(loaded, visits), indent=2))
    else:
        warn_about_file(loaded, target)
    is_good = not loaded.refused and all(visit.error is None for visit in visits)
    return 0 if is_good else 2 if loaded.refused and not visits else 1


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
    cells = "".join(name.ljust(room + 1) for name, room in _COLUMNS)
    click.secho(f"{_FIRST_COLUMN.ljust(width)} {cells}ABOUT", bold=True)


def _print_server(width: int, visit: ServerResult[_ServerDescription]) -> None:
    about = visit.answer
    time = f"{visit.seconds:.2f} s"
    if about is not None:
        cells = (about.era, about.version, str(about.tools), str(about.prompts), time)
        _print_row(width, visit.name, "up", cells, about.software)
        for warning in about.warnings:
            click.secho(escape_unprintable(warning), fg="yellow", err=True)
    elif visit.error is not None:
        _print_row(width, visit.name, "down", ("", "", "", "", time), reason_text(visit.error))
    else:
        _print_row(width, visit.name, "disabled", (), "")


def _print_row(width: int, name: str, state: str, cells: Sequence[str], about: str) -> None:
    rooms = [room for _, room in _COLUMNS]
    shown = [one_line(cell, room).ljust(room + 1) for cell, room in zip(cells, rooms[1:], strict=False)]
    rest = "".join(shown) or " " * (sum(rooms[1:]) + len(rooms) - 1)
    label = click.style(state, fg=_COLOURS[state]) + " " * (rooms[0] + 1 - len(state))
    click.echo(f"{escape_unprintable(name).ljust(width)} {label}{rest}{one_line(about, MAX_REASON_SHOWN)}".rstrip())


def _listing_data(loaded: LoadedServers, visits: Sequence[ServerResult[_ServerDescription]]) -> dict[str, Any]:
    servers: list[dict[str, Any]] = []
    for visit in visits:
        state = "up" if visit.answer else "down" if visit.error else "disabled"
        server: dict[str, Any] = {"name": visit.name, "state": state}
        if visit.answer is not None:
            server |= vars(visit.answer)
        if visit.error is not None:
            server |= failure_data(visit.error)
        servers.append({**server, "seconds": round(visit.seconds, 3)} if visit.is_enabled else server)
    servers += [
        {"name": name, "state": "invalid", "error": {"message": problems[0].message}}
        for name, problems in loaded.refused.items()
    ]
    return {"servers": servers, "problems": [problem_data(problem) for problem in loaded.problems]}
