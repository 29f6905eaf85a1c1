"""`holodeck mcp list`: each server with its state. A line is printed as soon as it is known."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.commands.mcp.connect import (
    ServerResult,
    list_notices,
    query_all,
    reason_text,
    run_with_logging,
    with_timeout,
)
from holodeck.cli.commands.mcp.target import Target, failure_data, start_timeout_option, target_options, warn_about_file
from holodeck.cli.output.config_problems import problem_data
from holodeck.config.server_loader import LoadedServers
from holodeck.lib.escape import escape_unprintable, one_line
from holodeck.lib.record import record

if TYPE_CHECKING:
    from holodeck.tools.mcp.plugin import MCPPlugin

# Characters of the reason why a server is down, where no terminal has a width: a row stays readable.
MAX_REASON_SHOWN = 160
# However narrow the terminal is.
_MIN_REASON_SHOWN = 20

_FIRST_COLUMN = "SERVER"
_STATE_WIDTH = 9
_COLUMNS = (("TOOLS", 6), ("PROMPTS", 8), ("START", 8))
_PROTOCOL_COLUMNS = (("ERA", 7), ("VERSION", 11))
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
    """See `list_notices`."""


@click.command("list", epilog=_EPILOG)
@start_timeout_option
@target_options
def command(target: Target, timeout: float | None) -> int:
    """Show each server: state, number of tools and prompts, time to start; with -v the protocol that it speaks."""
    loaded = target.load_servers()
    servers = [with_timeout(item, timeout) for item in loaded.tools]
    names = [*(item.tool.name for item in servers), *loaded.refused]
    table = _Table(names, is_full=target.verbose)
    if not target.as_json and not names:
        click.echo("No servers are listed.")
    elif not target.as_json:
        table.print_header()
        for name, problems in loaded.refused.items():
            table.print_failure(name, "invalid", problems[0].message)

    def print_result(result: ServerResult[_ServerDescription]) -> None:
        if not target.as_json:
            table.print_server(result)

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
        warnings=list_notices(plugin),
    )


class _Table:
    """Prints a row for each server. `is_full`: with the protocol that the server speaks."""

    def __init__(self, names: Sequence[str], *, is_full: bool) -> None:
        self._columns = (*(_PROTOCOL_COLUMNS if is_full else ()), *_COLUMNS)
        self._width = max(map(len, (_FIRST_COLUMN, *names))) + 1
        self._is_full = is_full

    def print_header(self) -> None:
        cells = "".join(name.ljust(size + 1) for name, size in self._columns)
        state = "STATE".ljust(_STATE_WIDTH + 1)
        click.secho(f"{_FIRST_COLUMN.ljust(self._width)} {state}{cells}ABOUT", bold=True)

    def print_server(self, result: ServerResult[_ServerDescription]) -> None:
        about = result.answer
        if about is not None:
            counts = (str(about.tools), str(about.prompts), f"{result.seconds:.2f} s")
            protocol = (about.era, about.version) if self._is_full else ()
            self._print_row(result.name, "up", (*protocol, *counts), about.software)
            for warning in about.warnings:
                click.secho(escape_unprintable(warning), fg="yellow", err=True)
        elif result.error is not None:
            self.print_failure(result.name, "down", reason_text(result.error))
        else:
            self._print_row(result.name, "disabled", (), "")

    def print_failure(self, name: str, state: str, reason: str) -> None:
        """Print a row with the last line of a reason, which says the most: those before it are how it came to that."""
        lines = [line for line in reason.splitlines() if line.strip()]
        self._print_row(name, state, (), lines[-1] if lines else "")

    def _print_row(self, name: str, state: str, cells: Sequence[str], about: str) -> None:
        label = click.style(state, fg=_COLOURS[state]) + " " * (_STATE_WIDTH + 1 - len(state))
        shown = [one_line(cell, size).ljust(size + 1) for cell, (_, size) in zip(cells, self._columns, strict=False)]
        begin = f"{escape_unprintable(name).ljust(self._width)} {label}{''.join(shown)}"
        used = self._width + 1 + _STATE_WIDTH + 1 + sum(map(len, shown))
        room = shutil.get_terminal_size().columns - used if sys.stdout.isatty() else MAX_REASON_SHOWN
        click.echo(f"{begin}{one_line(about, max(room, _MIN_REASON_SHOWN))}".rstrip())


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
