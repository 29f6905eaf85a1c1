"""What servers offer, each as soon as it is known: shared by `tools` and `prompts`."""

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
    data: Callable[[T], dict[str, Any]],
) -> int:
    """Ask the servers, and print what they offer. Gives the exit code."""
    loaded = target.load_servers()
    chosen = [with_timeout(item, timeout) for item in select_servers(loaded, server, target)]
    refused = loaded.refused if server is None else {}

    def print_result(visit: ServerResult[list[T]]) -> None:
        if not target.as_json:
            _print_server_items(visit, show, kind, is_single=len(chosen) == 1)

    visits = run_with_logging(query_all(chosen, ask, on_result=print_result, verb="asking"), verbose=target.verbose)
    if target.as_json:
        listed = [_server_items_data(visit, kind, data) for visit in visits]
        invalid = [{"name": name, "error": {"message": found[0].message}} for name, found in refused.items()]
        click.echo(json.dumps({"servers": [*listed, *invalid]}, indent=2))
    else:
        for name, problems in refused.items():
            click.echo(f"{escape_unprintable(name)}: {escape_unprintable(problems[0].message)}", err=True)
    return 1 if refused or any(visit.error is not None for visit in visits) else 0


def _print_server_items(
    visit: ServerResult[list[T]], show: Callable[[list[T]], None], kind: str, *, is_single: bool
) -> None:
    if visit.error is not None:
        click.echo(f"{visit.name}: {escape_unprintable(reason_text(visit.error))}", err=True)
        return
    if not is_single or not visit.is_enabled:
        remark = "" if visit.is_enabled else " (switched off)"
        click.secho(f"{visit.name}{remark}", bold=True)
    if visit.answer:
        show(visit.answer)
    elif visit.is_enabled:
        click.echo(f"(no {kind})")
    if not is_single:
        click.echo()


def _server_items_data(visit: ServerResult[list[T]], kind: str, data: Callable[[T], dict[str, Any]]) -> dict[str, Any]:
    if visit.error is not None:
        return {"name": visit.name, **failure_data(visit.error)}
    if not visit.is_enabled:
        return {"name": visit.name, "enabled": False, kind: []}
    return {"name": visit.name, kind: [data(item) for item in visit.answer or []]}
