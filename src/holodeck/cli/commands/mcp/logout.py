"""`holodeck mcp logout`: delete the stored tokens of a server from this machine."""

from __future__ import annotations

import json

import click

from holodeck.cli.commands.mcp.connect import run_with_logging
from holodeck.cli.commands.mcp.target import Target, select_server, target_options
from holodeck.config.agent_loader import LoadedTool
from holodeck.lib.errors import ConfigError
from holodeck.models.tool import MCPTool

_EPILOG = """\b
Example:
  holodeck mcp logout tickets"""


@click.command("logout", epilog=_EPILOG)
@click.argument("server", required=False)
@target_options
def command(target: Target, server: str | None) -> int:
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
