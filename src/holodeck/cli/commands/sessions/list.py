"""`holodeck sessions list`: one line for each stored conversation of this user."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from holodeck.agents.sessions.session_store import SessionInfo, find_store
from holodeck.cli.commands.runs.run_json import format_time
from holodeck.cli.output.events_json import json_text
from holodeck.cli.output.terminal import Terminal
from holodeck.lib.escape import one_line
from holodeck.lib.limits import MAX_DESCRIPTION_SHOWN

_COLUMNS = ("SESSION", "AGENT", "LAST USED", "ITEMS", "TITLE")
_LIST_EPILOG = """\b
Examples:
  holodeck sessions list
  holodeck sessions list --json | jq -r '.[].id'"""


@click.command("list", epilog=_LIST_EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def command(as_json: bool) -> None:
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
    used = datetime.fromtimestamp(info.updated_at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    texts = (one_line(text, MAX_DESCRIPTION_SHOWN) for text in (info.id, info.agent))
    return (*texts, used, str(info.items), one_line(info.title, MAX_DESCRIPTION_SHOWN))
