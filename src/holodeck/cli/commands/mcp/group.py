"""`holodeck mcp`: a table of commands, each imported only when it is used."""

from __future__ import annotations

import click

from holodeck.cli.main import LazyGroup

_SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Look": {
        "list": ("holodeck.cli.commands.mcp.list", "Show the state and the number of tools of each server."),
        "tools": (
            "holodeck.cli.commands.mcp.listing:tools_command",
            "List the tools of the servers; with -v their schemas.",
        ),
        "prompts": ("holodeck.cli.commands.mcp.listing:prompts_command", "List the prompts of the servers."),
        "resources": (
            "holodeck.cli.commands.mcp.listing:resources_command",
            "List the resources of the servers, and their templates.",
        ),
        "read": ("holodeck.cli.commands.mcp.read", "Read a resource, and again on each update with --watch."),
        "call": ("holodeck.cli.commands.mcp.call", "Call a tool, and print or save its result."),
    },
    "Write and check": {
        "dev": (
            "holodeck.cli.commands.mcp.dev",
            "Run a server while you write it: restarts on save, shows and calls its tools.",
        ),
        "doctor": ("holodeck.cli.commands.mcp.doctor", "Check each server: which step fails, why, and what to do."),
        "lint": ("holodeck.cli.commands.mcp.lint", "Look for prompt injection in tools and entries."),
        "lock": (
            "holodeck.cli.commands.mcp.lock",
            "Accept the tools as they are; from then on a changed one is withheld.",
        ),
    },
    "Files": {
        "add": (
            "holodeck.cli.commands.mcp.entries.add",
            "Add a server to your file: a command, a URL, or a registry's.",
        ),
        "remove": ("holodeck.cli.commands.mcp.entries.add:remove_command", "Remove a server from your file."),
        "import": (
            "holodeck.cli.commands.mcp.entries.add:import_command",
            "Copy servers of another program's file into yours.",
        ),
        "export": (
            "holodeck.cli.commands.mcp.entries.export",
            "Print an entry for Claude, Cursor, Codex, ...; or install it.",
        ),
        "search": ("holodeck.cli.commands.mcp.entries.search", "Search the MCP registry for servers."),
    },
    "Log in": {
        "login": ("holodeck.cli.commands.mcp.login", "Log in to a server with the browser."),
        "logout": ("holodeck.cli.commands.mcp.login:logout_command", "Delete the stored login of a server."),
    },
    "Serve": {
        "serve": ("holodeck.cli.commands.mcp.serve", "Offer the servers and agents of a file to other MCP clients."),
    },
}

_EPILOG = """\b
Examples:
  holodeck mcp list                                 the servers of ./agent.yaml, ./gateway.yaml or ./mcp.json
  holodeck mcp tools files -v -f .vscode/mcp.json
  holodeck mcp call files read_file path=notes.md
  holodeck mcp call --url https://mcp.example.com/mcp add '{"a": 2, "b": 3}'
  holodeck mcp dev server.py
  holodeck mcp doctor --command "npx -y @modelcontextprotocol/server-everything"
  holodeck mcp add time -- uvx mcp-server-time
  holodeck mcp export --for cursor --install

\b
Exit codes: 0 success, 1 a server or a tool failed, 2 wrong configuration or usage."""


@click.group("mcp", cls=LazyGroup, sections=_SECTIONS, epilog=_EPILOG)
def command() -> None:
    """Inspect MCP servers, call their tools, and add them to files, without a model and without an API key."""
