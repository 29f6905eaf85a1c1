"""`holodeck mcp login` and `logout`: tokens of a server, from its login page in the browser, stored and deleted."""

from __future__ import annotations

import asyncio
import json
import webbrowser

import click

from holodeck.cli.commands.mcp.connect import run_with_logging
from holodeck.cli.commands.mcp.target import Target, select_server, target_options
from holodeck.cli.output.progress import Progress
from holodeck.config.agent_loader import LoadedTool
from holodeck.lib.errors import ConfigError
from holodeck.lib.escape import escape_unprintable
from holodeck.models.tool import MCPTool

_EPILOG = """\b
Examples:
  holodeck mcp login tickets
  holodeck mcp login --url https://mcp.example.com/mcp
  holodeck mcp login tickets --no-browser      print the address only"""
_LOGOUT_EPILOG = """\b
Example:
  holodeck mcp logout tickets"""


@click.command("login", epilog=_EPILOG)
@click.argument("server", required=False)
@click.option("--no-browser", is_flag=True, help="Only print the address of the login page.")
@target_options
def command(target: Target, server: str | None, no_browser: bool) -> int:
    """Log in to SERVER with the browser. SERVER may be omitted if there is only one.

    The tokens are stored in your keyring, or in a file that only you can read.
    """
    item = select_server(target.load_servers(), server, target)
    run_with_logging(_login(item, opens_browser=not no_browser), verbose=target.verbose)
    if target.as_json:
        click.echo(json.dumps({"server": item.tool.name, "logged_in": True}))
    else:
        click.echo(f"Logged in to {item.tool.name}.")
    return 0


async def _login(item: LoadedTool, *, opens_browser: bool) -> None:
    from holodeck.tools.mcp.auth.factory import build_login_provider

    tool = item.tool
    if not isinstance(tool, MCPTool):
        raise ConfigError(f"'{tool.name}' is not an MCP server")
    async with Progress(f"asking {tool.name} how to log in") as progress:

        async def show(url: str) -> None:
            progress.clear()
            click.echo(f"Log in here:\n\n  {escape_unprintable(url)}\n", err=True)
            progress.phase = "waiting for the login in your browser"
            if opens_browser:
                await asyncio.to_thread(webbrowser.open, url)

        await build_login_provider(tool, show=show).login()


@click.command("logout", epilog=_LOGOUT_EPILOG)
@click.argument("server", required=False)
@target_options
def logout_command(target: Target, server: str | None) -> int:
    """Delete the stored login of SERVER, which may be omitted if there is only one."""
    item = select_server(target.load_unused_servers(), server, target)
    run_with_logging(_logout(item), verbose=target.verbose)
    if target.as_json:
        click.echo(json.dumps({"server": item.tool.name, "logged_in": False}))
    else:
        click.echo(f"Logged out of {item.tool.name}.")
    return 0


async def _logout(item: LoadedTool) -> None:
    from holodeck.tools.mcp.auth.factory import build_login_provider

    if not isinstance(item.tool, MCPTool):
        raise ConfigError(f"'{item.tool.name}' is not an MCP server")
    await build_login_provider(item.tool, show=None).logout()
