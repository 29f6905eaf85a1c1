"""`holodeck mcp`: a table of commands, each imported only when it is used."""

from __future__ import annotations

import importlib

import click

_COMMANDS: dict[str, str] = {
    "list": "Each server: is it up, what does it speak, how much does it offer.",
    "tools": "The tools of the servers; -v with their schemas.",
    "prompts": "The prompts of the servers.",
    "call": "Call a tool, and print or save what it answers.",
    "doctor": "Each server, step by step: which step fails, why, and what to do.",
    "login": "Log in to a server with the browser.",
    "logout": "Forget the login of a server.",
}

_EPILOG = """\b
Examples:
  holodeck mcp list                                 the servers of ./agent.yaml or ./mcp.json
  holodeck mcp tools files -v -f .vscode/mcp.json
  holodeck mcp call files read_file path=notes.md
  holodeck mcp call --url https://mcp.example.com/mcp add '{"a": 2, "b": 3}'
  holodeck mcp doctor --command "npx -y @modelcontextprotocol/server-everything"

\b
Exit codes: 0 good, 1 a server or a tool failed, 2 wrong configuration or usage."""


class _Commands(click.Group):
    """Commands by name; a module is imported when its command runs, not for help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = importlib.import_module(f"holodeck.cli.mcp.{cmd_name}").command
        assert isinstance(command, click.Command)  # noqa: S101 - each command module defines one
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            import difflib

            close = difflib.get_close_matches(args[0], _COMMANDS, n=1)
            hint = f" Did you mean '{close[0]}'?" if close else f" There are: {', '.join(_COMMANDS)}."
            raise click.UsageError(f"No such command '{args[0]}'.{hint}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group("mcp", cls=_Commands, epilog=_EPILOG)
def command() -> None:
    """Look at MCP servers and call their tools, without a model and without an API key."""
