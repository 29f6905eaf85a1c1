"""`holodeck sessions show`: one stored conversation, as Markdown or as JSON."""

from __future__ import annotations

from datetime import datetime

import click

from holodeck.agents.sessions.session_store import find_store
from holodeck.cli.chat.history import format_transcript
from holodeck.cli.output.events_json import json_text
from holodeck.lib.errors import ExecutionError
from holodeck.lib.escape import escape_unprintable
from holodeck.models.items_json import encode_item

_SHOW_EPILOG = """\b
Examples:
  holodeck sessions show trip
  holodeck sessions show trip --json | jq '.[] | select(.type == "function_call")'"""


@click.command("show", epilog=_SHOW_EPILOG)
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print the items as JSON.")
def command(name: str, as_json: bool) -> None:
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
