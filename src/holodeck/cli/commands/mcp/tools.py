"""`holodeck mcp tools`: the tools of the servers, with `-v` in full. Text from servers is escaped."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.commands.mcp.listing import print_listing
from holodeck.cli.commands.mcp.target import Target, start_timeout_option, target_options, to_plain_json
from holodeck.lib.escape import escape_unprintable, one_line
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
@start_timeout_option
@target_options
def command(target: Target, server: str | None, timeout: float | None) -> int:
    """Show the tools of all servers, or of SERVER."""
    show = partial(_print_tools, is_full=target.verbose)
    return print_listing(
        target,
        server,
        timeout,
        kind="tools",
        ask=lambda plugin: plugin.list_tools(),
        show=show,
        data=lambda tools: {"tools": [_tool_data(tool) for tool in tools]},
    )


def _print_tools(tools: list[MCPToolInfo], *, is_full: bool) -> None:
    if is_full:
        for tool in tools:
            _print_tool_in_full(tool)
        return
    names = [one_line(tool.name, MAX_TOOL_NAME_CHARS) for tool in tools]
    width = min(max(map(len, names)), MAX_TOOL_NAME_CHARS // 2)
    for name, tool in zip(names, tools, strict=True):
        click.echo(
            f"  {name.ljust(width)}  {one_line(tool.description or tool.title or '', MAX_DESCRIPTION_SHOWN)}".rstrip()
        )


def _print_tool_in_full(tool: MCPToolInfo) -> None:
    click.secho(f"  {escape_unprintable(tool.name)}", bold=True)
    if tool.model_name != tool.name:
        click.echo(f"    for models: {tool.model_name}")
    for text in (tool.title, tool.description):
        for line in escape_unprintable(text or "").splitlines():
            click.echo(f"    {line}")
    for label, schema in (("input", tool.input_schema), ("output", tool.output_schema)):
        if schema:
            body = json.dumps(to_plain_json(schema), indent=2).replace("\n", "\n    ")
            click.echo(f"    {label}: {body}")
    for change in _openai_schema_changes(tool):
        click.echo(f"    for OpenAI: {escape_unprintable(change)}")
    if tool.annotations:
        click.echo(f"    annotations: {json.dumps(to_plain_json(tool.annotations))}")
    if tool.task_support != "forbidden":
        click.echo(f"    task: {tool.task_support}")


def _openai_schema_changes(tool: MCPToolInfo) -> tuple[str, ...]:
    """Return what the schema adapter changes for OpenAI, the strictest of the common providers."""
    from holodeck.models.model_io import ToolSpec
    from holodeck.providers.tool_schemas.adapt import adapt_tool

    spec = ToolSpec(name=tool.model_name, description=tool.description or "", parameters=tool.input_schema)
    return adapt_tool(spec, "openai").changes


def _tool_data(tool: MCPToolInfo) -> dict[str, Any]:
    return {
        "name": tool.name,
        "model_name": tool.model_name,
        "title": tool.title,
        "description": tool.description,
        "input_schema": to_plain_json(tool.input_schema),
        "output_schema": to_plain_json(tool.output_schema),
        "annotations": to_plain_json(tool.annotations),
        "task_support": tool.task_support.value,
        "changes_for_openai": list(_openai_schema_changes(tool)),
    }
