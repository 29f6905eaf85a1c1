"""Commands in a table: each is imported only when it runs, so help is instant, and a slip gets the name it meant."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from holodeck.cli.ctrl_c import exit_on_interrupt

CommandTable = Mapping[str, tuple[str, str]]
"""By the name of a command: the module that defines it as `command`, and its line of help."""


class LazyGroup(click.Group):
    """A group whose commands stand in a table, in its order."""

    def __init__(self, *args: Any, table: CommandTable, **options: Any) -> None:
        super().__init__(*args, **options)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return None
        with exit_on_interrupt():
            command = importlib.import_module(self._table[cmd_name][0]).command
        assert isinstance(command, click.Command)  # noqa: S101 - each command module defines one
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if not error.message.startswith("No such command"):
                raise
            import difflib

            close = difflib.get_close_matches(args[0], self._table, n=1)
            hint = f"Did you mean '{close[0]}'?" if close else f"There are: {', '.join(self._table)}."
            raise click.UsageError(f"No such command '{args[0]}'. {hint}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._table.items()])
