"""`holodeck audit`: the audit log of a gateway, checked line by line through all of its files, or shown as a table."""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.default_file import require_gateway_file
from holodeck.cli.interruptible import run_interruptible
from holodeck.cli.main import CommandGroup, json_option
from holodeck.cli.output.events_json import json_text
from holodeck.cli.output.terminal import Terminal
from holodeck.lib.errors import ExecutionError, StorageError
from holodeck.lib.escape import escape_unprintable
from holodeck.models.callers import without_key_id
from holodeck.models.storage_url import is_sqlite, sqlite_path

if TYPE_CHECKING:
    from holodeck.config.gateway_loader import LoadedGateway
    from holodeck.gateway.audit.entry import ChainPosition
    from holodeck.gateway.audit.verify import Verification

_EPILOG = """\b
Examples:
  holodeck audit verify audit.jsonl
  holodeck audit verify audit.jsonl.2 audit.jsonl.1 audit.jsonl
  holodeck audit show audit.jsonl --caller key:alice

\b
A gateway writes an audit log with 'audit: {file: audit.jsonl}' in its file.
Exit codes: 0 success, 1 error at run time, 2 wrong usage, 3 the chain is broken."""
BROKEN_EXIT_CODE = 3
# Lines between two progress reports: about a second of work.
PROGRESS_LINES = 20_000
_CLEAR = "\r\x1b[K"
_VERIFY_EPILOG = """\b
Examples:
  holodeck audit verify audit.jsonl
  holodeck audit verify audit.jsonl.2 audit.jsonl.1 audit.jsonl    rotated files, the oldest first
  holodeck audit verify audit.jsonl --expect 4be9...               a line that must be there
  holodeck audit verify audit.jsonl --json | jq .last_hash

\b
The hashes are made with the gateway's seal key, which the gateway file names or has beside its database. If the
last FILE is the one that the gateway writes, its end is compared with the last number in the storage.
Exit codes: 0 the chain is whole, 1 a file or the seal key cannot be read, 2 wrong usage, 3 the chain is broken."""
# Entries that are shown unless more are asked for: a few screens.
DEFAULT_LIMIT = 200
_COLUMNS = ("TIME", "EVENT", "CALLER", "DOOR", "SUBJECT", "DECISION", "OUTCOME", "MS")
_SHOW_EPILOG = """\b
Examples:
  holodeck audit show audit.jsonl
  holodeck audit show audit.jsonl --caller key:alice --since 2026-11-17
  holodeck audit show audit.jsonl --tool files.write_file --json | jq .arguments_sha256

\b
It shows what is written, without a key; `holodeck audit verify` finds lines that were changed."""


@click.group("audit", cls=CommandGroup, epilog=_EPILOG)
def command() -> None:
    """Check and read the audit log of a gateway: tool calls with their outcomes, approvals, and what operators did."""


@command.command(
    "verify", short_help="Check that no line was changed, removed, moved or inserted.", epilog=_VERIFY_EPILOG
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option(
    "-f",
    "--file",
    "gateway_file",
    type=click.Path(),
    help="The gateway file, or its folder. Left out: ./gateway.yaml.",
)
@click.option("--expect", "expected_hash", metavar="HASH", help="Hash of a line that must be in the files.")
@click.option(
    "--expect-seq",
    "expected_seq",
    metavar="NUMBER",
    type=click.IntRange(min=1),
    help="Number that the last line must have at least.",
)
@json_option()
def verify_command(
    files: tuple[str, ...],
    gateway_file: str | None,
    expected_hash: str | None,
    expected_seq: int | None,
    as_json: bool,
) -> int:
    """Check that no line of the audit log in FILE... was changed, removed, moved or inserted.

    Several files are one log that was rotated: give the oldest first.
    """
    from holodeck.gateway.audit.verify import verify_files
    from holodeck.runtime import read_gateway

    loaded = read_gateway(require_gateway_file(gateway_file))
    keys = _read_keys(loaded)
    # Before the files: a gateway that runs stores the end of what it has written.
    stored_end = _read_stored_end(loaded, Path(files[-1]))
    try:
        found = verify_files(
            [Path(file) for file in files],
            keys=keys,
            expected_hash=expected_hash,
            expected_seq=expected_seq,
            stored_end=stored_end,
            on_progress=_show_progress,
        )
    except OSError as error:
        raise ExecutionError(f"{error.filename} cannot be read: {error.strerror}.") from None
    finally:
        _show_progress(0)
    if as_json:
        click.echo(json_text({"is_good": found.is_good, **asdict(found)}, indent=2))
    else:
        has_proof = found.last_hash == expected_hash or found.last_seq == expected_seq or stored_end is not None
        _print_verification(found, has_proof=has_proof)
    return 0 if found.is_good else BROKEN_EXIT_CODE


def _print_verification(found: Verification, *, has_proof: bool) -> None:
    """Print the verification. `has_proof`: the last line is one that was expected, or follows it."""
    for note in found.notes:
        click.echo(escape_unprintable(f"Note: {note}"))
    if found.broken is not None:
        place = f"{found.broken.file}:{found.broken.line}"
        click.secho("BROKEN", fg="red", nl=False)
        click.echo(escape_unprintable(f" {place}: {found.broken.reason}."))
        click.echo(f"Unchanged before it: {_count(found.entries)}.")
        return
    click.secho("OK", fg="green", nl=False)
    click.echo(f" {_count(found.entries)}, numbers {found.first_seq} to {found.last_seq}")
    if not found.entries:
        return
    click.echo(escape_unprintable(f"from {found.first_time} to {found.last_time}"))
    click.echo(f"first hash {found.first_hash}")
    click.echo(f"last hash  {found.last_hash}")
    if not has_proof:
        click.echo("Lines that were cut off at the end would not show: compare the last hash with one noted elsewhere.")


def _read_keys(loaded: LoadedGateway) -> tuple[bytes, ...]:
    """Return the keys of the hashes. Raises `ExecutionError` where the gateway has no seal key that lasts."""
    from holodeck.gateway.sealing import AUDIT_PURPOSE, SealKeys, find_seal_keys

    what = f"The hashes of an audit log need the seal key of {loaded.path}"
    try:
        secrets = find_seal_keys(loaded.gateway, loaded.path.parent)
    except OSError as error:
        raise ExecutionError(f"{what}, and {error.filename} cannot be read: {error.strerror}.") from None
    if not secrets:
        raise ExecutionError(
            f"{what}, and there is none that lasts: what was written with a temporary one cannot be verified. "
            "Name the gateway file of the gateway that wrote the log, with -f, or set 'seal_key' for what comes."
        )
    return SealKeys(secrets).derive_mac_keys(AUDIT_PURPOSE)


def _read_stored_end(loaded: LoadedGateway, last: Path) -> ChainPosition | None:
    """Return the last line that the gateway has stored for its file.

    None: `last` is another file, or nothing is stored.
    """
    from holodeck.gateway.audit.entry import ChainPosition
    from holodeck.gateway.audit.log import name_audit_file

    audit, folder, url = loaded.gateway.audit, loaded.path.parent, loaded.gateway.storage.url
    name = "" if audit is None else name_audit_file(audit, folder)
    if name != str(last.resolve()) or (is_sqlite(url) and not sqlite_path(url, folder).exists()):
        return None
    try:
        end = run_interruptible(_ask_storage(url, folder, name))
    except StorageError as error:
        click.echo(escape_unprintable(f"The storage does not say what the last line is: {error}"), err=True)
        return None
    return None if end is None else ChainPosition(seq=end[0], hash=end[1])


async def _ask_storage(url: str, folder: Path, name: str) -> tuple[int, str] | None:
    from holodeck.storage.factory import open_store

    store = open_store(url, folder=folder)
    try:
        return await store.read_audit_end(name)
    finally:
        await store.close()


def _count(entries: int) -> str:
    return f"{entries} {'entry' if entries == 1 else 'entries'}"


def _show_progress(entries: int) -> None:
    """Show how far it is, on a terminal. 0 clears the line."""
    if entries % PROGRESS_LINES or not sys.stderr.isatty():
        return
    sys.stderr.write(f"{_CLEAR}{f'{entries} entries ...' if entries else ''}")
    sys.stderr.flush()


@command.command(
    "show", short_help="Show the entries as a table, of one caller or tool, or since a time.", epilog=_SHOW_EPILOG
)
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
@json_option("Print the entries as JSON, one per line.")
def show_command(
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
