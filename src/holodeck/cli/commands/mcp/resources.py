"""`holodeck mcp resources`: the resources of the servers, and their templates. Text from servers is escaped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.commands.mcp.listing import print_listing
from holodeck.cli.commands.mcp.target import Target, start_timeout_option, target_options, to_plain_json
from holodeck.lib.escape import escape_unprintable, one_line
from holodeck.lib.limits import KIB, MAX_DESCRIPTION_SHOWN, MAX_TOOL_NAME_CHARS

if TYPE_CHECKING:
    from holodeck.tools.mcp.plugin import MCPPlugin
    from holodeck.tools.mcp.resource_discovery import MCPResourceInfo, MCPResourceTemplateInfo

# Characters of a column up to which the others are aligned. A longer URI is shown whole: it is there to be copied.
_MAX_COLUMN = 60
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")

_EPILOG = """\b
Examples:
  holodeck mcp resources               all servers
  holodeck mcp resources files -v      one server, with descriptions
  holodeck mcp read notes://2026/plan  the content of one of them"""


@click.command("resources", epilog=_EPILOG)
@click.argument("server", required=False)
@start_timeout_option
@target_options
def command(target: Target, server: str | None, timeout: float | None) -> int:
    """Show the resources of all servers, or of SERVER, and the templates of their URIs."""
    show = partial(_print_resources, is_full=target.verbose)
    return print_listing(target, server, timeout, kind="resources", ask=_list_all, show=show, data=_build_data)


async def _list_all(plugin: MCPPlugin) -> list[MCPResourceInfo | MCPResourceTemplateInfo]:
    resources, templates = await asyncio.gather(plugin.list_resources(), plugin.list_resource_templates())
    return [*resources, *templates]


def _print_resources(listed: list[MCPResourceInfo | MCPResourceTemplateInfo], *, is_full: bool) -> None:
    resources, templates = _split_kinds(listed)
    if resources:
        rows = [(info.uri, info.name, info.mime_type or "", describe_size(info.size)) for info in resources]
        _print_table(("URI", "NAME", "TYPE", "SIZE"), rows, resources, is_full=is_full)
    if templates:
        if resources:
            click.echo()
        templated = [(info.uri_template, info.name, info.mime_type or "") for info in templates]
        _print_table(("TEMPLATE", "NAME", "TYPE"), templated, templates, is_full=is_full)


def _print_table(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    infos: Sequence[MCPResourceInfo | MCPResourceTemplateInfo],
    *,
    is_full: bool,
) -> None:
    shown = [[escape_unprintable(row[0]), *(one_line(cell, MAX_TOOL_NAME_CHARS) for cell in row[1:])] for row in rows]
    widths = [min(max(map(len, column)), _MAX_COLUMN) for column in zip(titles, *shown, strict=True)]
    click.secho("  " + _align(titles, widths), bold=True)
    for cells, info in zip(shown, infos, strict=True):
        click.echo("  " + _align(cells, widths))
        about = one_line(info.description or info.title or "", MAX_DESCRIPTION_SHOWN)
        if is_full and about:
            click.echo(f"    {about}")


def _align(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def describe_size(size: int | None) -> str:
    """Return a size for people, such as `1.5 MiB`; empty if it is not known."""
    if size is None:
        return ""
    amount, unit = float(size), 0
    while amount >= KIB and unit < len(_UNITS) - 1:
        amount, unit = amount / KIB, unit + 1
    return f"{size} {_UNITS[0]}" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def _build_data(listed: list[MCPResourceInfo | MCPResourceTemplateInfo]) -> dict[str, Any]:
    resources, templates = _split_kinds(listed)
    return {
        "resources": [to_plain_json({**info.raw, "uri": info.uri}) for info in resources],
        "resource_templates": [to_plain_json({**info.raw, "uriTemplate": info.uri_template}) for info in templates],
    }


def _split_kinds(
    listed: list[MCPResourceInfo | MCPResourceTemplateInfo],
) -> tuple[list[MCPResourceInfo], list[MCPResourceTemplateInfo]]:
    from holodeck.tools.mcp.resource_discovery import MCPResourceInfo, MCPResourceTemplateInfo

    resources = [info for info in listed if isinstance(info, MCPResourceInfo)]
    return resources, [info for info in listed if isinstance(info, MCPResourceTemplateInfo)]
