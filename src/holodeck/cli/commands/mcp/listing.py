"""Listing of what servers offer, shared by `holodeck mcp tools`, `prompts` and `resources`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holodeck.cli.commands.mcp.connect import ServerResult, query_all, reason_text, run_with_logging, with_timeout
from holodeck.cli.commands.mcp.target import Target, failure_data, select_servers
from holodeck.lib.escape import escape_unprintable

if TYPE_CHECKING:
    from holodeck.tools.mcp.plugin import MCPPlugin

T = TypeVar("T")


def print_listing(
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

    def print_result(result: ServerResult[list[T]]) -> None:
        if not target.as_json:
            _print_server_items(result, show, kind, is_single=len(chosen) == 1)

    results = run_with_logging(query_all(chosen, ask, on_result=print_result, verb="asking"), verbose=target.verbose)
    if target.as_json:
        listed = [_server_items_data(result, data) for result in results]
        invalid = [{"name": name, "error": {"message": found[0].message}} for name, found in refused.items()]
        click.echo(json.dumps({"servers": [*listed, *invalid]}, indent=2))
    else:
        for name, problems in refused.items():
            click.echo(f"{escape_unprintable(name)}: {escape_unprintable(problems[0].message)}", err=True)
    return 1 if refused or any(result.error is not None for result in results) else 0


def _print_server_items(
    result: ServerResult[list[T]], show: Callable[[list[T]], None], kind: str, *, is_single: bool
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
    if not is_single:
        click.echo()


def _server_items_data(result: ServerResult[list[T]], data: Callable[[list[T]], dict[str, Any]]) -> dict[str, Any]:
    if result.error is not None:
        return {"name": result.name, **failure_data(result.error)}
    if not result.is_enabled:
        return {"name": result.name, "enabled": False, **data([])}
    return {"name": result.name, **data(result.answer or [])}
