"""`holodeck mcp remove`: remove a server from an agent or gateway file."""

from __future__ import annotations

import json

import click

from holodeck.cli.commands.mcp.entries.own_file import FILES, open_own_file
from holodeck.cli.commands.mcp.target import print_errors_as_json
from holodeck.lib.escape import escape_unprintable

_EPILOG = """\b
Examples:
  holodeck mcp remove files
  holodeck mcp remove tickets -f gateway.yaml

\b
Exit codes: 0 removed, 1 the file cannot be written, 2 there is no such server."""


@click.command("remove", epilog=_EPILOG)
@click.argument("name")
@click.option("-f", "--file", help=f"Your file (default: the first of {', '.join(FILES)}).")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@print_errors_as_json
def command(*, name: str, file: str | None, as_json: bool) -> int:
    """Remove a server from your file. Everything else in the file stays as it is, comments included."""
    own = open_own_file(file)
    result = own.remove_entry(name)
    if as_json:
        click.echo(json.dumps({"removed": name, **result.to_data()}, indent=2))
    else:
        click.echo(escape_unprintable(f"Removed '{name}' from {own.path}."))
    return 0
