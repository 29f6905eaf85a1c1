"""What a person should know about the file, in one line; all of it for those who ask."""

from __future__ import annotations

import click

from holodeck.cli.commands.mcp.target import Target
from holodeck.cli.output.config_problems import count_problems, print_problems
from holodeck.config.server_loader import LoadedServers
from holodeck.lib.escape import escape_unprintable


def warn_about_file(loaded: LoadedServers, target: Target) -> None:
    """Say on standard error that the file has problems, or with -v which."""
    if not loaded.problems:
        return
    if target.verbose:
        click.echo(err=True)
        print_problems(loaded.problems)
        return
    click.echo(
        f"\n{escape_unprintable(target.label)}: {count_problems(loaded.problems)}; 'holodeck mcp doctor' shows them.",
        err=True,
    )
