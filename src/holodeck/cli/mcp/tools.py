"""`holodeck mcp tools`: what the servers can do, in their own words, made harmless for the terminal."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.mcp.offers import show_offers
from holodeck.cli.mcp.target import Target, plain, start_timeout, target_options
from holodeck.lib.display import one_line, printable
from holodeck.lib.limits import MAX_DESCRIPTION_SHOWN, MAX_TOOL_NAME_CHARS

if TYPE_CHECKING:
    from holodeck.tools.mcp.discovery import MCPToolInfo

_EPILOG = """\b
Examples:
  holodeck mcp tools                 all servers
  holodeck mcp tools files -v        one server, with schemas
  holodeck mcp tools --url https://mcp.example.com/mcp --json"""


@click.command("tools", epilog=_EPILOG)
@click.argument("server", required=False)
@start_timeout
@target_options
def command(target: Target, server: str | None, timeout: float | None) -> int:
    """Show the tools of all servers, or of SERVER."""
    show = partial(_show, is_full=target.verbose)
    return show_offers(
        target, server, timeout, kind="tools", ask=lambda plugin: plugin.list_tools(), show=show, data=_data
    )


def _show(tools: list[MCPToolInfo], *, is_full: bool) -> None:
    if is_full:
        for tool in tools:
            _show_full(tool)
        return
    names = [one_line(tool.name, MAX_TOOL_NAME_CHARS) for tool in tools]
    width = min(max(map(len, names)), MAX_TOOL_NAME_CHARS // 2)
    for name, tool in zip(names, tools, strict=True):
        click.echo(
            f"  {name.ljust(width)}  {one_line(tool.description or tool.title or '', MAX_DESCRIPTION_SHOWN)}".rstrip()
        )


def _show_full(tool: MCPToolInfo) -> None:
    click.secho(f"  {printable(tool.name)}", bold=True)
    if tool.model_name != tool.name:
        click.echo(f"    for models: {tool.model_name}")
    for text in (tool.title, tool.description):
        for line in printable(text or "").splitlines():
            click.echo(f"    {line}")
    for label, schema in (("input", tool.input_schema), ("output", tool.output_schema)):
        if schema:
            body = json.dumps(plain(schema), indent=2).replace("\n", "\n    ")
            click.echo(f"    {label}: {body}")
    for change in _changes(tool):
        click.echo(f"    for OpenAI: {printable(change)}")
    if tool.annotations:
        click.echo(f"    annotations: {json.dumps(plain(tool.annotations))}")


def _changes(tool: MCPToolInfo) -> tuple[str, ...]:
    """What must be different when the strictest of the common providers is offered this tool."""
    from holodeck.models.exchange import ToolSpec
    from holodeck.providers.schemas import adapt

    spec = ToolSpec(name=tool.model_name, description=tool.description or "", parameters=tool.input_schema)
    return adapt(spec, "openai").changes


def _data(tool: MCPToolInfo) -> dict[str, Any]:
    return {
        "name": tool.name,
        "model_name": tool.model_name,
        "title": tool.title,
        "description": tool.description,
        "input_schema": plain(tool.input_schema),
        "output_schema": plain(tool.output_schema),
        "annotations": plain(tool.annotations),
        "changes_for_openai": list(_changes(tool)),
    }
