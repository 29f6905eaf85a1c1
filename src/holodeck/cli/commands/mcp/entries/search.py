"""`holodeck mcp search`: servers of the MCP registry that have some words; and the registry that commands ask."""

from __future__ import annotations

import json
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holodeck.cli.commands.mcp.target import print_errors_as_json
from holodeck.cli.main import json_option
from holodeck.cli.output.terminal import Terminal
from holodeck.config.agent_loader import read_user_registry
from holodeck.lib.escape import escape_json, one_line

if TYPE_CHECKING:
    from holodeck.tools.mcp.registry.client import Registry
    from holodeck.tools.mcp.registry.server_record import RegistryServer

# Rows of the table: what a person looks through.
DEFAULT_LIMIT = 20
MAX_LIMIT = 100
# Characters of a cell: descriptions have at most 100.
_MAX_CELL = 100
_EPILOG = """\b
Examples:
  holodeck mcp search weather
  holodeck mcp search github issues --limit 5
  holodeck mcp search files --registry snapshot.json --json
  holodeck mcp add io.github.example/weather         adds one of them to your file

\b
Exit codes: 0 something was found, 1 nothing was, or the registry does not answer, 2 wrong usage."""
T = TypeVar("T")
registry_option = click.option(
    "--registry", metavar="URL|FILE", help="Registry to ask, or a snapshot of one (default: the official registry)."
)


@click.command("search", epilog=_EPILOG)
@click.argument("words", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, MAX_LIMIT), default=DEFAULT_LIMIT, help="Servers to show.")
@registry_option
@json_option("Print the servers as JSON.")
@print_errors_as_json
def command(*, words: tuple[str, ...], limit: int, registry: str | None, as_json: bool) -> int:
    """Search the MCP registry for servers whose names and descriptions have all WORDS."""
    source = choose_registry(registry)
    # One more than is shown says whether there are more.
    found = run_request(source.search(words, limit + 1), "searching the registry")
    shown, has_more = found[:limit], len(found) > limit
    if as_json:
        data = {"servers": [server.to_data() for server in shown], "more": has_more}
        click.echo(json.dumps(escape_json(data), indent=2, ensure_ascii=False))
    elif shown:
        _print_table(shown)
        if has_more:
            click.echo("There are more: use further words, or --limit.", err=True)
    else:
        click.echo(f"No server matches: {one_line(' '.join(words), _MAX_CELL)}", err=True)
    return 0 if shown else 1


def _print_table(servers: Sequence[RegistryServer]) -> None:
    rows = [
        (
            one_line(server.name, _MAX_CELL),
            one_line(server.version, _MAX_CELL),
            _list_ways(server),
            one_line(server.description, _MAX_CELL),
        )
        for server in servers
    ]
    Terminal().table(("NAME", "VERSION", "RUNS AS", "ABOUT"), rows)


def _list_ways(server: RegistryServer) -> str:
    ways = [*(each.registry_type for each in server.packages), *(["remote"] if server.remotes else [])]
    note = " (deprecated)" if server.status == "deprecated" else ""
    return one_line(", ".join(dict.fromkeys(ways)) or "-", _MAX_CELL) + note


def choose_registry(option: str | None) -> Registry:
    """Return the registry of the option, of `registry` in the user's settings, or the official one."""
    from holodeck.tools.mcp.registry.client import OFFICIAL_REGISTRY, Registry

    return Registry(place=option or read_user_registry() or OFFICIAL_REGISTRY)


def run_request(work: Coroutine[Any, Any, T], phase: str) -> T:
    """Run a request to a registry with a progress line. Ctrl-C cancels it."""
    from holodeck.cli.interruptible import run_interruptible
    from holodeck.cli.output.progress import Progress

    async def run() -> T:
        async with Progress(phase):
            return await work

    return run_interruptible(run())
