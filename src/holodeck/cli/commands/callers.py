"""`holodeck callers`: the callers of a gateway that runs, whether they have a key or a token."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from holodeck.cli.main import json_option
from holodeck.cli.output.terminal import Terminal
from holodeck.cli.remote_keys import RemoteCallers
from holodeck.lib.errors import ExecutionError
from holodeck.lib.escape import escape_unprintable

_COLUMNS = ("CALLER", "STATE", "LAST USED")
_EPILOG = """\b
Examples:
  holodeck callers list --url https://gateway.example.com
  holodeck callers pause alice --url https://gateway.example.com
  holodeck callers export jwt:anna --url https://gateway.example.com > anna.jsonl
  holodeck callers erase jwt:anna --url https://gateway.example.com

\b
A caller is named by its id, as runs and usage show it, or by the name of its key. The commands need the key of an
operator in HOLODECK_OPERATOR_KEY."""

_LIST_EPILOG = """\b
Examples:
  holodeck callers list --url https://gateway.example.com
  holodeck callers list anna --url https://gateway.example.com --json"""
_PAUSE_EPILOG = """\b
Examples:
  holodeck callers pause alice --url https://gateway.example.com
  holodeck callers pause jwt:anna --url https://gateway.example.com"""
_RESUME_EPILOG = """\b
Examples:
  holodeck callers resume alice --url https://gateway.example.com"""
_EXPORT_EPILOG = """\b
Examples:
  holodeck callers export jwt:anna --url https://gateway.example.com > anna.jsonl"""
_ERASE_EPILOG = """\b
Examples:
  holodeck callers erase jwt:anna --url https://gateway.example.com
  holodeck callers erase alice --yes --url https://gateway.example.com"""

_url_option = click.option("--url", required=True, help="Where the gateway runs.")


@click.group("callers", epilog=_EPILOG)
def command() -> None:
    """List, pause, export and erase the callers of a gateway that runs."""


@command.command("list", epilog=_LIST_EPILOG)
@click.argument("text", default="")
@_url_option
@json_option("Print the callers as JSON.")
def list_callers(text: str, url: str, as_json: bool) -> None:
    """List the callers that have used the gateway or are paused, or those whose ids have TEXT in them."""
    entries = RemoteCallers(url).list_entries(text)
    if as_json:
        click.echo(json.dumps(entries, indent=2, ensure_ascii=False))
    else:
        Terminal().table(_COLUMNS, [_row_of(entry) for entry in entries])


def _add_pause(name: str, about: str, epilog: str, *, is_paused: bool) -> Callable[..., None]:
    @command.command(name, help=about, epilog=epilog)
    @click.argument("caller")
    @_url_option
    @json_option("Print the caller as JSON.")
    def set_paused(caller: str, url: str, as_json: bool) -> None:
        callers = RemoteCallers(url)
        changed = callers.set_paused(caller, is_paused=is_paused)
        _print_changed(changed, "is paused" if is_paused else "is accepted", as_json=as_json)
        click.echo(callers.applied, err=True)

    return set_paused


pause = _add_pause(
    "pause", "Refuse the requests of CALLER for now, and cancel what runs for it.", _PAUSE_EPILOG, is_paused=True
)
resume = _add_pause("resume", "Accept the requests of CALLER again.", _RESUME_EPILOG, is_paused=False)


@command.command("export", epilog=_EXPORT_EPILOG)
@click.argument("caller")
@_url_option
def export(caller: str, url: str) -> None:
    """Write what is stored of CALLER to standard output, as lines of JSON."""
    RemoteCallers(url).export(caller, sys.stdout.buffer.write)


@command.command("erase", epilog=_ERASE_EPILOG)
@click.argument("caller")
@_url_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option("Print the caller as JSON.")
def erase(caller: str, url: str, yes: bool, as_json: bool) -> None:
    """Delete all that is stored of CALLER, for good: responses, conversations, runs, sessions and logins.

    What runs for it is cancelled. Its usage is counted without its name. Its keys stay.
    """
    callers = RemoteCallers(url)
    if not yes:
        question = f"Delete all that is stored of {escape_unprintable(caller)} at {callers.shown}, for good?"
        if not click.confirm(question, err=True):
            raise ExecutionError("Nothing was deleted.")
    erased = callers.erase(caller)
    if erased["erasing"]:
        raise ExecutionError(f"A gateway has not ended what runs for {erased['id']}. They go on with it.")
    _print_changed(erased, "is erased", as_json=as_json)


def _print_changed(entry: dict[str, Any], state: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(entry, indent=2, ensure_ascii=False))
    else:
        click.echo(f"{escape_unprintable(entry['id'])} {state}.")


def _row_of(entry: dict[str, Any]) -> tuple[str, str, str]:
    used_at = entry["last_used_at"]
    used = "" if used_at is None else datetime.fromtimestamp(used_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    state = "being erased" if entry["erasing"] else "paused" if entry["paused"] else ""
    return entry["id"], state, used
