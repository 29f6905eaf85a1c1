"""`holodeck audit verify`: the chain of hashes of an audit log, checked through all of its files."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holodeck.cli.output.events_json import json_text
from holodeck.lib.errors import ExecutionError
from holodeck.lib.escape import escape_unprintable

if TYPE_CHECKING:
    from holodeck.gateway.audit.verify import Verification

BROKEN_EXIT_CODE = 3
# Lines between two progress reports: about a second of work.
PROGRESS_LINES = 20_000
_CLEAR = "\r\x1b[K"

_EPILOG = """\b
Examples:
  holodeck audit verify audit.jsonl
  holodeck audit verify audit.jsonl.2 audit.jsonl.1 audit.jsonl    rotated files, the oldest first
  holodeck audit verify audit.jsonl --expect 4be9...               a line that must be there
  holodeck audit verify audit.jsonl --json | jq .last_hash

\b
Lines that were cut off at the end leave no trace in the file. Note the last hash or number elsewhere from
time to time, and give it to --expect or --expect-seq.
Exit codes: 0 the chain is whole, 1 a file cannot be read, 2 wrong usage, 3 the chain is broken."""


@click.command("verify", epilog=_EPILOG)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--expect", "expected_hash", metavar="HASH", help="Hash of a line that must be in the files.")
@click.option(
    "--expect-seq",
    "expected_seq",
    metavar="NUMBER",
    type=click.IntRange(min=1),
    help="Number that the last line must have at least.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(files: tuple[str, ...], expected_hash: str | None, expected_seq: int | None, as_json: bool) -> int:
    """Check that no line of the audit log in FILE... was changed, removed, moved or inserted.

    Several files are one log that was rotated: give the oldest first.
    """
    from holodeck.gateway.audit.verify import verify_files

    try:
        found = verify_files(
            [Path(file) for file in files],
            expected_hash=expected_hash,
            expected_seq=expected_seq,
            on_progress=_show_progress,
        )
    except OSError as error:
        raise ExecutionError(f"{error.filename} cannot be read: {error.strerror}.") from None
    finally:
        _show_progress(0)
    if as_json:
        click.echo(json_text({"is_good": found.is_good, **asdict(found)}, indent=2))
    else:
        has_proof = found.last_hash == expected_hash or found.last_seq == expected_seq
        _print_verification(found, has_proof=has_proof)
    return 0 if found.is_good else BROKEN_EXIT_CODE


def _print_verification(found: Verification, *, has_proof: bool) -> None:
    """`has_proof`: the last line is the one that was expected."""
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


def _count(entries: int) -> str:
    return f"{entries} {'entry' if entries == 1 else 'entries'}"


def _show_progress(entries: int) -> None:
    """Show how far it is, on a terminal. 0 clears the line."""
    if entries % PROGRESS_LINES or not sys.stderr.isatty():
        return
    sys.stderr.write(f"{_CLEAR}{f'{entries} entries ...' if entries else ''}")
    sys.stderr.flush()
