"""`holodeck mcp prompts`: the prompts of the servers with their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.commands.mcp.listing import print_listing
from holodeck.cli.commands.mcp.target import Target, start_timeout_option, target_options, to_plain_json
from holodeck.lib.escape import escape_unprintable, one_line
from holodeck.lib.limits import MAX_DESCRIPTION_SHOWN, MAX_TOOL_NAME_CHARS

if TYPE_CHECKING:
    from holodeck.tools.mcp.discovery import MCPPromptInfo


_EPILOG = """\b
Examples:
  holodeck mcp prompts               all servers
  holodeck mcp prompts files -v      one server, with the arguments of its prompts"""


@click.command("prompts", epilog=_EPILOG)
@click.argument("server", required=False)
@start_timeout_option
@target_options
def command(target: Target, server: str | None, timeout: float | None) -> int:
    """Show the prompts of all servers, or of SERVER."""
    show = partial(_print_prompts, is_full=target.verbose)
    return print_listing(
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
