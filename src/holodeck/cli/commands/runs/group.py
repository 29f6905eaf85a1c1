"""`holodeck runs`: a table of commands, each imported only when it is used."""

from __future__ import annotations

import click

from holodeck.cli.main import LazyGroup

_COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("holodeck.cli.commands.runs.list", "The newest durable runs, wherever they were begun."),
    "show": ("holodeck.cli.commands.runs.show", "One run: its question, each step, its answer or why it stopped."),
    "resume": ("holodeck.cli.commands.runs.resume", "Go on with an interrupted run from its last finished step."),
    "cancel": ("holodeck.cli.commands.runs.cancel", "End a run for good, also one in another process."),
}

_GROUP_EPILOG = """\b
Examples:
  holodeck run --durable "Move all of them"    begin one
  holodeck runs list                           the newest first
  holodeck runs resume --last                  go on with the one that was interrupted last
  holodeck runs show run_0123456789abcdef01234567
  holodeck runs cancel run_0123456789abcdef01234567

\b
Runs are kept in $HOLODECK_STATE, $XDG_STATE_HOME/holodeck or ~/.local/state/holodeck; ended ones for 30 days.
Exit codes: 0 good, 1 wrong at run time, 2 wrong configuration or usage."""


@click.group("runs", cls=LazyGroup, table=_COMMANDS, epilog=_GROUP_EPILOG)
def command() -> None:
    """Durable runs, which outlive their process. Begin one with `holodeck run --durable`."""
