"""The `holodeck` command group, and the boundary at which errors become messages and exit codes.

Commands stand in a table and are imported only when they are used, so that help is instant. Exit codes: 0 success, 1 an
error at run time, 2 wrong configuration or usage, 130 interrupted; a command may define others. Errors that a user can
fix are printed as sentences, never as tracebacks.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import click

from holodeck import __version__
from holodeck.cli.ctrl_c import EXIT_INTERRUPTED, exit_on_interrupt, exit_on_next_interrupt

_Command = TypeVar("_Command", bound=Callable[..., Any])
CommandTable = Mapping[str, tuple[str, str]]
"""Maps the name of a command to its place and to its line of help.

The place is a module, which defines it as `command`, or `module:name`.
"""


class CommandGroup(click.Group):
    """A group that lists its commands in the order of their definition, and names the one that was meant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if not error.message.startswith("No such command"):
                raise
            import difflib

            known = self.list_commands(ctx)
            close = difflib.get_close_matches(args[0], known, n=1)
            hint = f"Did you mean '{close[0]}'?" if close else f"There are: {', '.join(known)}."
            raise click.UsageError(f"No such command '{args[0]}'. {hint}", ctx) from None


class LazyGroup(CommandGroup):
    """A group that lists its commands from tables, in their order, and imports one when it is used.

    `sections` has a table for each heading of the help.
    """

    def __init__(self, *args: Any, sections: Mapping[str, CommandTable], **options: Any) -> None:
        super().__init__(*args, **options)
        self._sections = sections
        self._table = {name: row for table in sections.values() for name, row in table.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return None
        with exit_on_interrupt():
            module, _, name = self._table[cmd_name][0].partition(":")
            command = getattr(importlib.import_module(module), name or "command")
        assert isinstance(command, click.Command)  # noqa: S101 - each command module defines one
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self._table))
        for heading, table in self._sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, (_, text) in table.items()])


def json_option(text: str = "Print the result as JSON.") -> Callable[[_Command], _Command]:
    """Add `--json` to a command, which receives it as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=text)


_SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "init": ("holodeck.cli.commands.init", "Create a new agent project that runs as it is."),
        "validate": (
            "holodeck.cli.commands.validate",
            "Check an agent or gateway file; nothing is started or dialled.",
        ),
        "run": ("holodeck.cli.commands.run", "Ask an agent one question."),
        "chat": ("holodeck.cli.commands.chat", "Talk with an agent."),
        "docs": ("holodeck.cli.commands.docs", "Read the documentation in the terminal."),
    },
    "Work": {
        "test": ("holodeck.cli.commands.test.command", "Run the test cases of agents and show why one failed."),
        "sessions": ("holodeck.cli.commands.sessions", "List, show and delete stored conversations."),
        "runs": ("holodeck.cli.commands.runs", "List, show, resume and cancel durable runs."),
        "prices": ("holodeck.cli.commands.prices", "Show which prices are used for the models of a file."),
        "model": ("holodeck.cli.commands.model", "Download and list the weights of local models."),
        "trust": ("holodeck.cli.commands.trust", "Trust a file after seeing what it would do; list and revoke."),
        "schema": ("holodeck.cli.commands.schema", "Print the JSON Schema of a configuration file, for editors."),
    },
    "Servers": {
        "mcp": ("holodeck.cli.commands.mcp.group", "Inspect MCP servers and call their tools; no model needed."),
    },
    "Gateway": {
        "serve": ("holodeck.cli.commands.serve", "Serve agents and models over HTTP, for the OpenAI SDKs."),
        "keys": ("holodeck.cli.commands.keys", "Create, list, change, rotate and revoke keys for callers."),
        "callers": ("holodeck.cli.commands.callers", "List, pause, export and erase the callers of a gateway."),
        "audit": ("holodeck.cli.commands.audit", "Check and read the audit log of a gateway."),
    },
}

_EPILOG = """\b
Examples:
  holodeck init my-agent            create a project
  holodeck validate                 check ./agent.yaml
  holodeck run "What can you do?"   ask it one question
  holodeck chat                     talk with it
  holodeck test                     run its test cases
  holodeck mcp list                 start its MCP servers and see what they offer
  holodeck serve                    serve it to the OpenAI SDKs

\b
Exit codes: 0 success, 1 error at run time, 2 wrong configuration or usage, 3 a run that reached a limit, 130 Ctrl-C."""


@click.group(
    cls=LazyGroup,
    sections=_SECTIONS,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", prog_name="holodeck")
def cli() -> None:
    """Run agents described in one YAML file, with MCP servers as their tools."""


def main() -> None:
    """Run the command named in `sys.argv` and exit."""
    try:
        _prepare_and_run()
    # Ctrl-C before the command has started.
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    finally:
        exit_on_next_interrupt()


def _prepare_and_run() -> NoReturn:
    from holodeck.cli.output.stdout_guard import can_use_colours, raise_output_errors
    from holodeck.lib.system.fd_limits import fill_standard_streams

    fill_standard_streams()
    raise_output_errors()
    # None: click uses colours on a terminal only.
    colours = None if can_use_colours() else False
    with click.Context(cli, color=colours):
        _run_command(colours)


def _run_command(colours: bool | None) -> NoReturn:
    from holodeck.cli.output.stdout_guard import OutputError
    from holodeck.lib.errors import ConfigError, HoloDeckError

    try:
        code = cli.main(standalone_mode=False, color=colours)
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo("\nStopped.", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except click.ClickException as error:
        if isinstance(error, OutputError):
            error.discard_output()
        error.show()
        sys.exit(error.exit_code)
    except ConfigError as error:
        from holodeck.cli.output.config_problems import print_problems

        print_problems(error.problems)
        sys.exit(2)
    except HoloDeckError as error:
        from holodeck.cli.output.config_problems import print_topic, topic_of_error
        from holodeck.lib.escape import escape_unprintable

        click.echo(f"Error: {escape_unprintable(str(error))}", err=True)
        print_topic(topic_of_error(error))
        sys.exit(1)
    # The reader has closed the pipe, as `| head` does.
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)
