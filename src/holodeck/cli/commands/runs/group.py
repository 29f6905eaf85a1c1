"""`holodeck runs`: a table of commands, each imported only when it is used."""

from __future__ import annotations

import click

from holodeck.cli.main import LazyGroup

_COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("holodeck.cli.commands.runs.list", "List the newest durable runs of all agents."),
    "show": ("holodeck.cli.commands.runs.show", "Show one run: its question, each step, its answer or why it stopped."),
    "resume": ("holodeck.cli.commands.runs.resume", "Continue an interrupted run after its last finished step."),
    "cancel": ("holodeck.cli.commands.runs.cancel", "End a run for good, also one that runs in another process."),
}

_GROUP_EPILOG = """\b
Examples:
  holodeck run --durable "Move all of them"    start one
  holodeck runs list                           the newest first
  holodeck runs resume --last                  continue the one that was interrupted last
  holodeck runs show run_0123456789abcdef01234567
  holodeck runs cancel run_0123456789abcdef01234567

\b
Runs are stored in $HOLODECK_STATE, $XDG_STATE_HOME/holodeck or ~/.local/state/holodeck; finished ones for 30 days.
Exit codes: 0 success, 1 error at run time, 2 wrong configuration or usage."""


@click.group("runs", cls=LazyGroup, table=_COMMANDS, epilog=_GROUP_EPILOG)
def command() -> None:
    """List, show, resume and cancel durable runs, which survive the end of their process.

    Start one with `holodeck run --durable`.
    """
