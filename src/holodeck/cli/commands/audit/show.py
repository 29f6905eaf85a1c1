"""`holodeck audit show`: the entries of an audit log as a table."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from holodeck.cli.output.events_json import json_text
from holodeck.cli.output.terminal import Terminal
from holodeck.lib.errors import ExecutionError
from holodeck.models.callers import without_key_id

# Entries that are shown unless more are asked for: a few screens.
DEFAULT_LIMIT = 200

_COLUMNS = ("TIME", "EVENT", "CALLER", "DOOR", "SUBJECT", "DECISION", "OUTCOME", "MS")
_EPILOG = """\b
Examples:
  holodeck audit show audit.jsonl
  holodeck audit show audit.jsonl --caller key:alice --since 2026-11-17
  holodeck audit show audit.jsonl --tool files.write_file --json | jq .arguments_sha256

\b
It shows what is written, without a key; `holodeck audit verify` finds lines that were changed."""


@click.command("show", epilog=_EPILOG)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--caller", help="Only entries of this caller, such as key:alice.")
@click.option("--tool", help="Only entries of this tool: its name, or SERVER.NAME.")
@click.option("--event", help="Only this event, such as tool_call.")
@click.option(
    "--since",
    metavar="TIME",
    type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ"]),
    help="Only entries from this time on, in UTC: 2026-11-17 or 2026-11-17T08:30.",
)
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=DEFAULT_LIMIT, show_default=True, help="Newest entries shown."
)
@click.option("--json", "as_json", is_flag=True, help="Print the entries as JSON, one per line.")
def command(
    files: tuple[str, ...],
    caller: str | None,
    tool: str | None,
    event: str | None,
    since: datetime | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show the newest entries of the audit log in FILE..., the oldest of them first."""
    from holodeck.gateway.audit.verify import read_entries

    start = "" if since is None else since.replace(tzinfo=UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    found: deque[dict[str, Any]] = deque(maxlen=limit)
    try:
        for entry in read_entries([Path(file) for file in files]):
            is_tool = tool is None or tool in (entry.get("tool"), _tool_of(entry))
            is_wanted = (caller is None or _is_caller(entry, caller)) and (event is None or entry.get("event") == event)
            if is_tool and is_wanted and str(entry.get("time", "")) >= start:
                found.append(entry)
    except OSError as error:
        raise ExecutionError(f"{error.filename} cannot be read: {error.strerror}.") from None
    if as_json:
        for entry in found:
            click.echo(json_text(entry))
    elif found:
        Terminal().table(_COLUMNS, [_row_of(entry) for entry in found])
    else:
        click.echo("No entries.", err=True)


def _is_caller(entry: dict[str, Any], caller: str) -> bool:
    """Return whether an entry is one of this caller. `key:NAME` is every caller of that name."""
    found = str(entry.get("caller", ""))
    return caller in (found, without_key_id(found))


def _row_of(entry: dict[str, Any]) -> tuple[str, ...]:
    about = [str(entry.get(name, "")) for name in ("time", "event", "caller", "door")]
    outcome = " ".join(str(entry[name]) for name in ("outcome", "error_code", "status") if entry.get(name))
    return (*about, _subject_of(entry), str(entry.get("decision", "")), outcome, str(entry.get("duration_ms", "")))


def _subject_of(entry: dict[str, Any]) -> str:
    """Return the tool of a call, the request of an operator, or what a reload has changed."""
    request = " ".join(str(entry[name]) for name in ("method", "route", "subject") if entry.get(name))
    changed = ", ".join(
        str(value) for name, value in entry.items() if name.endswith(("_added", "_removed", "_changed"))
    )
    return _tool_of(entry) or request or changed


def _tool_of(entry: dict[str, Any]) -> str:
    return ".".join(str(entry[name]) for name in ("server", "tool") if entry.get(name))
