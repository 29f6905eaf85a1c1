"""`holodeck sessions`: a table of commands, each imported only when it is used."""

from __future__ import annotations

import click

from holodeck.cli.main import LazyGroup

_COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("holodeck.cli.commands.sessions.list", "List the stored conversations, the latest first."),
    "show": ("holodeck.cli.commands.sessions.show", "Print a stored conversation as Markdown."),
    "delete": ("holodeck.cli.commands.sessions.delete", "Delete stored conversations."),
}

_GROUP_EPILOG = """\b
Examples:
  holodeck chat --session trip     begin one, or go on with it
  holodeck sessions list
  holodeck sessions show trip
  holodeck sessions delete trip

\b
Sessions are in sessions.db of $HOLODECK_STATE, $XDG_STATE_HOME/holodeck or ~/.local/state/holodeck, readable only by
you, until you delete them. Python programs share them: holodeck.Session.open(NAME).
Exit codes: 0 success, 1 error at run time, 2 wrong configuration or usage."""


@click.group("sessions", cls=LazyGroup, table=_COMMANDS, epilog=_GROUP_EPILOG)
def command() -> None:
    """List, show and delete sessions: conversations that are stored under a name.

    Begin one with `holodeck chat --session NAME`.
    """
