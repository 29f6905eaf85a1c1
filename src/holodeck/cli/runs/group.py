"""`holodeck runs`: a table of commands, each imported only when it is used."""

from __future__ import annotations

import importlib

import click

_COMMANDS: dict[str, str] = {
    "list": "The newest durable runs, wherever they were begun.",
    "show": "One run: its question, each step, its answer or why it stopped.",
    "resume": "Go on with an interrupted run from its last finished step.",
    "cancel": "End a run for good, also one in another process.",
}

_EPILOG = """\b
Examples:
  holodeck run --durable "Move all of them"    begin one
  holodeck runs list                           the newest first
  holodeck runs resume --last                  go on with the one that was interrupted last
  holodeck runs show run_0123456789abcdef01234567
  holodeck runs cancel run_0123456789abcdef01234567

\b
Runs are kept in $HOLODECK_STATE, else in ~/.local/state/holodeck; ended ones for 30 days.
Exit codes: 0 good, 1 wrong at run time, 2 wrong configuration or usage."""


class _Commands(click.Group):
    """Commands by name; a module is imported when its command runs, not for help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = importlib.import_module(f"holodeck.cli.runs.{cmd_name}").command
        assert isinstance(command, click.Command)  # noqa: S101 - each command module defines one
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group("runs", cls=_Commands, epilog=_EPILOG)
def command() -> None:
    """Durable runs, which outlive their process. Begin one with `holodeck run --durable`."""
