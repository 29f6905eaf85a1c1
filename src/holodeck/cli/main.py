"""The `holodeck` command: a table of commands, each imported only when it is used, so that help is instant."""

from __future__ import annotations

import importlib
import sys

import click

from holodeck import __version__

_COMMANDS: dict[str, tuple[str, str]] = {
    "chat": ("holodeck.cli.chat", "Talk with an agent."),
    "init": ("holodeck.cli.init", "Make a new agent project that works as it is."),
    "keys": ("holodeck.cli.keys", "Make keys for the callers of a gateway."),
    "mcp": ("holodeck.cli.mcp.group", "Look at MCP servers and call their tools; no model needed."),
    "model": ("holodeck.cli.model", "Fetch and list the weights of local models."),
    "run": ("holodeck.cli.run", "Ask an agent one question."),
    "runs": ("holodeck.cli.runs.group", "Durable runs: list them, look at one, go on with it, cancel it."),
    "schema": ("holodeck.cli.schema", "Print the JSON Schema of agent.yaml, for editors."),
    "serve": ("holodeck.cli.serve", "Serve agents and models over HTTP, for the OpenAI SDKs."),
    "test": ("holodeck.cli.test", "Run the test cases of an agent and say why one failed."),
    "validate": ("holodeck.cli.validate", "Check an agent file; nothing is started or dialled."),
}

_EPILOG = """\b
Examples:
  holodeck init my-agent            make a project
  holodeck validate                 check ./agent.yaml
  holodeck run "What can you do?"   ask it one question
  holodeck chat                     talk with it
  holodeck test                     run its test cases
  holodeck mcp list                 start its MCP servers and see what they offer
  holodeck serve                    serve it to the OpenAI SDKs

\b
Exit codes: 0 good, 1 wrong at run time, 2 wrong configuration or usage."""


class _Commands(click.Group):
    """Commands by name; a module is imported when its command runs, not for help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = importlib.import_module(_COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)  # noqa: S101 - each command module defines one
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            close = difflib.get_close_matches(args[0], _COMMANDS, n=1)
            if close and error.message.startswith("No such command"):
                raise click.UsageError(f"No such command '{args[0]}'. Did you mean '{close[0]}'?", ctx) from None
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted(_COMMANDS.items())])


@click.group(
    cls=_Commands,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", prog_name="holodeck")
def cli() -> None:
    """Run agents described in one YAML file, with MCP servers as their tools."""


def main() -> None:
    """The entry point: errors that are a person's to fix are sentences, never tracebacks."""
    from holodeck.lib.errors import ConfigError, HoloDeckError

    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("\nStopped.", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except ConfigError as error:
        from holodeck.cli.report import show_problems

        show_problems(error.problems)
        sys.exit(2)
    except HoloDeckError as error:
        from holodeck.lib.display import printable

        click.echo(f"Error: {printable(str(error))}", err=True)
        sys.exit(1)
    except BrokenPipeError:  # the reader has gone, as `| head` does
        sys.stderr.close()
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)
