"""`holodeck mcp tools`, `prompts` and `resources`: what the servers offer, with `-v` in full. Their text is escaped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holodeck.cli.commands.mcp.connect import (
    ServerResult,
    list_notices,
    query_all,
    reason_text,
    run_with_logging,
    with_timeout,
)
from holodeck.cli.commands.mcp.target import (
    Target,
    failure_data,
    select_servers,
    start_timeout_option,
    target_options,
    to_plain_json,
)
from holodeck.lib.escape import escape_unprintable, one_line
from holodeck.lib.limits import KIB, MAX_DESCRIPTION_SHOWN, MAX_TOOL_NAME_CHARS

if TYPE_CHECKING:
    from holodeck.tools.mcp.discovery import MCPPromptInfo, MCPToolInfo
    from holodeck.tools.mcp.plugin import MCPPlugin
    from holodeck.tools.mcp.resource_discovery import MCPResourceInfo, MCPResourceTemplateInfo

T = TypeVar("T")
_TOOLS_EPILOG = """\b
Examples:
  holodeck mcp tools                 all servers
  holodeck mcp tools files -v        one server, with schemas
  holodeck mcp tools --url https://mcp.example.com/mcp --json"""
_PROMPTS_EPILOG = """\b
Examples:
  holodeck mcp prompts               all servers
  holodeck mcp prompts files -v      one server, with the arguments of its prompts"""
# Characters of a column up to which the others are aligned. A longer URI is shown whole: it is there to be copied.
_MAX_COLUMN = 60
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_RESOURCES_EPILOG = """\b
Examples:
  holodeck mcp resources               all servers
  holodeck mcp resources files -v      one server, with descriptions
  holodeck mcp read notes://2026/plan  the content of one of them"""


def _print_listing(
    target: Target,
    server: str | None,
    timeout: float | None,
    *,
    kind: str,
    ask: Callable[[MCPPlugin], Awaitable[list[T]]],
    show: Callable[[list[T]], None],
    data: Callable[[list[T]], dict[str, Any]],
) -> int:
    """Query the servers, print what each offers as soon as it is known, and return the exit code.

    `kind` names the items; `show` prints those of one server, `data` converts them to keys of JSON for `--json`.
    """
    loaded = target.load_servers()
    chosen = [with_timeout(item, timeout) for item in select_servers(loaded, server, target)]
    refused = loaded.refused if server is None else {}

    notices: dict[str, list[str]] = {}

    async def query(plugin: MCPPlugin) -> list[T]:
        items = await ask(plugin)
        notices[plugin.name] = list_notices(plugin)
        return items

    def print_result(result: ServerResult[list[T]]) -> None:
        if not target.as_json:
            _print_server_items(result, show, kind, notices.get(result.name, []), is_single=len(chosen) == 1)

    results = run_with_logging(query_all(chosen, query, on_result=print_result, verb="asking"), verbose=target.verbose)
    if target.as_json:
        listed = [_server_items_data(result, data) for result in results]
        invalid = [{"name": name, "error": {"message": found[0].message}} for name, found in refused.items()]
        click.echo(json.dumps({"servers": [*listed, *invalid]}, indent=2))
    else:
        for name, problems in refused.items():
            click.echo(f"{escape_unprintable(name)}: {escape_unprintable(problems[0].message)}", err=True)
    return 1 if refused or any(result.error is not None for result in results) else 0


def _print_server_items(
    result: ServerResult[list[T]],
    show: Callable[[list[T]], None],
    kind: str,
    notices: Sequence[str],
    *,
    is_single: bool,
) -> None:
    if result.error is not None:
        click.echo(f"{result.name}: {escape_unprintable(reason_text(result.error))}", err=True)
        return
    if not is_single or not result.is_enabled:
        remark = "" if result.is_enabled else " (switched off)"
        click.secho(f"{result.name}{remark}", bold=True)
    if result.answer:
        show(result.answer)
    elif result.is_enabled:
        click.echo(f"(no {kind})")
    for notice in notices:
        click.secho(f"  {escape_unprintable(notice)}", fg="yellow", err=True)
    if not is_single:
        click.echo()


def _server_items_data(result: ServerResult[list[T]], data: Callable[[list[T]], dict[str, Any]]) -> dict[str, Any]:
    if result.error is not None:
        return {"name": result.name, **failure_data(result.error)}
    if not result.is_enabled:
        return {"name": result.name, "enabled": False, **data([])}
    return {"name": result.name, **data(result.answer or [])}


@click.command("tools", epilog=_TOOLS_EPILOG)
@click.argument("server", required=False)
@start_timeout_option
@target_options
def tools_command(target: Target, server: str | None, timeout: float | None) -> int:
    """Show the tools of all servers, or of SERVER."""
    show = partial(_print_tools, is_full=target.verbose)
    return _print_listing(
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


@click.command("prompts", epilog=_PROMPTS_EPILOG)
@click.argument("server", required=False)
@start_timeout_option
@target_options
def prompts_command(target: Target, server: str | None, timeout: float | None) -> int:
    """Show the prompts of all servers, or of SERVER."""
    show = partial(_print_prompts, is_full=target.verbose)
    return _print_listing(
        target,
        server,
        timeout,
        kind="prompts",
        ask=lambda plugin: plugin.list_prompts(),
        show=show,
        data=lambda prompts: {"prompts": [_prompt_data(prompt) for prompt in prompts]},
    )


def _print_prompts(prompts: list[MCPPromptInfo], *, is_full: bool) -> None:
    heads = [_prompt_signature(prompt) for prompt in prompts]
    width = min(max(map(len, heads)), MAX_TOOL_NAME_CHARS)
    for head, prompt in zip(heads, prompts, strict=True):
        about = one_line(prompt.description or prompt.title or "", MAX_DESCRIPTION_SHOWN)
        click.echo(f"  {head.ljust(width)}  {about}".rstrip())
        for argument in prompt.arguments if is_full else ():
            click.echo(
                f"    {_argument_name(argument)}: {escape_unprintable(str(argument.get('description') or ''))}".rstrip(
                    ": "
                )
            )


def _prompt_signature(prompt: MCPPromptInfo) -> str:
    """Return a text such as `review CODE [STYLE]`, with optional arguments in brackets."""
    names = [
        _argument_name(argument).upper() if argument.get("required") else f"[{_argument_name(argument).upper()}]"
        for argument in prompt.arguments
    ]
    return " ".join([one_line(prompt.name, MAX_TOOL_NAME_CHARS), *names])


def _argument_name(argument: Mapping[str, Any]) -> str:
    return one_line(str(argument.get("name")), MAX_TOOL_NAME_CHARS)


def _prompt_data(prompt: MCPPromptInfo) -> dict[str, Any]:
    return {
        "name": prompt.name,
        "title": prompt.title,
        "description": prompt.description,
        "arguments": to_plain_json(list(prompt.arguments)),
    }


@click.command("resources", epilog=_RESOURCES_EPILOG)
@click.argument("server", required=False)
@start_timeout_option
@target_options
def resources_command(target: Target, server: str | None, timeout: float | None) -> int:
    """Show the resources of all servers, or of SERVER, and the templates of their URIs."""
    show = partial(_print_resources, is_full=target.verbose)
    return _print_listing(target, server, timeout, kind="resources", ask=_list_all, show=show, data=_resources_data)


async def _list_all(plugin: MCPPlugin) -> list[MCPResourceInfo | MCPResourceTemplateInfo]:
    resources, templates = await asyncio.gather(plugin.list_resources(), plugin.list_resource_templates())
    return [*resources, *templates]


def _print_resources(listed: list[MCPResourceInfo | MCPResourceTemplateInfo], *, is_full: bool) -> None:
    resources, templates = _split_kinds(listed)
    if resources:
        rows = [(info.uri, info.name, info.mime_type or "", _describe_size(info.size)) for info in resources]
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


def _describe_size(size: int | None) -> str:
    """Return a size for people, such as `1.5 MiB`; empty if it is not known."""
    if size is None:
        return ""
    amount, unit = float(size), 0
    while amount >= KIB and unit < len(_UNITS) - 1:
        amount, unit = amount / KIB, unit + 1
    return f"{size} {_UNITS[0]}" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def _resources_data(listed: list[MCPResourceInfo | MCPResourceTemplateInfo]) -> dict[str, Any]:
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
