"""`holodeck sessions`: conversations that are stored under a name, listed, shown as Markdown and deleted."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from holodeck.agents.sessions import SessionInfo, find_store
from holodeck.cli.chat.history import format_transcript
from holodeck.cli.main import CommandGroup, json_option
from holodeck.cli.output.events_json import json_text
from holodeck.cli.output.run_lines import format_local_time, format_time
from holodeck.cli.output.terminal import Terminal
from holodeck.lib.errors import ExecutionError
from holodeck.lib.escape import escape_unprintable, one_line
from holodeck.lib.limits import MAX_DESCRIPTION_SHOWN
from holodeck.models.items import encode_item

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
_COLUMNS = ("SESSION", "AGENT", "LAST USED", "ITEMS", "TITLE")
_LIST_EPILOG = """\b
Examples:
  holodeck sessions list
  holodeck sessions list --json | jq -r '.[].id'"""
_SHOW_EPILOG = """\b
Examples:
  holodeck sessions show trip
  holodeck sessions show trip --json | jq '.[] | select(.type == "function_call")'"""
_DELETE_EPILOG = """\b
Example:
  holodeck sessions delete trip"""


@click.group("sessions", cls=CommandGroup, epilog=_GROUP_EPILOG)
def command() -> None:
    """List, show and delete sessions: conversations that are stored under a name.

    Begin one with `holodeck chat --session NAME`.
    """


@command.command("list", short_help="List the stored conversations, the latest first.", epilog=_LIST_EPILOG)
@json_option("Print the list as JSON.")
def list_command(as_json: bool) -> None:
    """Show the stored sessions, the one that was used last first."""
    found = find_store().list_sessions()
    if as_json:
        click.echo(json_text([_session_data(info) for info in found], indent=2))
    elif found:
        Terminal().table(_COLUMNS, [_session_row(info) for info in found])
    else:
        click.echo("There are no sessions yet. Begin one with: holodeck chat --session NAME", err=True)


def _session_data(info: SessionInfo) -> dict[str, Any]:
    times = {"created_at": format_time(info.created_at), "updated_at": format_time(info.updated_at)}
    return {**asdict(info), **times}


def _session_row(info: SessionInfo) -> tuple[str, ...]:
    texts = (one_line(text, MAX_DESCRIPTION_SHOWN) for text in (info.id, info.agent))
    return (*texts, format_local_time(info.updated_at), str(info.items), one_line(info.title, MAX_DESCRIPTION_SHOWN))


@command.command("show", short_help="Print a stored conversation as Markdown.", epilog=_SHOW_EPILOG)
@click.argument("name")
@json_option("Print the items as JSON.")
def show_command(name: str, as_json: bool) -> None:
    """Print the session NAME: its questions, answers, tool calls and their results."""
    store = find_store()
    info = next((each for each in store.list_sessions() if each.id == name), None)
    if info is None:
        raise ExecutionError(f"There is no session '{name}' in {store.path}. See: holodeck sessions list")
    items = store.read(name).items
    if as_json:
        click.echo(json_text([encode_item(item) for item in items], indent=2))
        return
    updated_at = datetime.fromtimestamp(info.updated_at).astimezone()
    click.echo(escape_unprintable(format_transcript(name, items, updated_at)), nl=False)


@command.command("delete", short_help="Delete stored conversations.", epilog=_DELETE_EPILOG)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def delete_command(names: tuple[str, ...]) -> None:
    """Delete the sessions of these NAMEs for good."""
    store = find_store()
    for name in names:
        store.delete(name)
        click.echo(f"Deleted the session '{name}'.", err=True)
