"""`holodeck audit`: a table of commands, each imported only when it is used."""

from __future__ import annotations

import click

from holodeck.cli.main import LazyGroup

_COMMANDS: dict[str, tuple[str, str]] = {
    "verify": ("holodeck.cli.commands.audit.verify", "Check that no line was changed, removed, moved or inserted."),
    "show": (
        "holodeck.cli.commands.audit.show",
        "Show the entries as a table, of one caller or tool, or since a time.",
    ),
}

_EPILOG = """\b
Examples:
  holodeck audit verify audit.jsonl
  holodeck audit verify audit.jsonl.2 audit.jsonl.1 audit.jsonl
  holodeck audit show audit.jsonl --caller key:alice

\b
A gateway writes an audit log with 'audit: {file: audit.jsonl}' in its file.
Exit codes: 0 success, 1 error at run time, 2 wrong usage, 3 the chain is broken."""


@click.group("audit", cls=LazyGroup, table=_COMMANDS, epilog=_EPILOG)
def command() -> None:
    """Check and read the audit log of a gateway: tool calls with their outcomes, approvals, and what operators did."""
