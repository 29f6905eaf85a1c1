"""`holodeck sessions delete`: remove stored conversations for good."""

from __future__ import annotations

import click

from holodeck.agents.sessions.session_store import find_store

_DELETE_EPILOG = """\b
Example:
  holodeck sessions delete trip"""


@click.command("delete", epilog=_DELETE_EPILOG)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def command(names: tuple[str, ...]) -> None:
    """Delete the sessions of these NAMEs for good."""
    store = find_store()
    for name in names:
        store.delete(name)
        click.echo(f"Deleted the session '{name}'.", err=True)
