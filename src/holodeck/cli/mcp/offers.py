"""What servers offer, each as soon as it is known: shared by `tools` and `prompts`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holodeck.cli.mcp.target import Target, choose, failure_data
from holodeck.cli.mcp.visit import Visit, run, short, visit_all, within
from holodeck.lib.display import printable

if TYPE_CHECKING:
    from holodeck.tools.mcp.plugin import MCPPlugin

T = TypeVar("T")


def show_offers(
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
    loaded = target.read()
    chosen = [within(item, timeout) for item in choose(loaded, server, target)]
    refused = loaded.refused if server is None else {}

    def told(visit: Visit[list[T]]) -> None:
        if not target.as_json:
            _print(visit, show, kind, is_single=len(chosen) == 1)

    visits = run(visit_all(chosen, ask, on_visit=told, verb="asking"), verbose=target.verbose)
    if target.as_json:
        listed = [_data(visit, kind, data) for visit in visits]
        invalid = [{"name": name, "error": {"message": found[0].message}} for name, found in refused.items()]
        click.echo(json.dumps({"servers": [*listed, *invalid]}, indent=2))
    else:
        for name, problems in refused.items():
            click.echo(f"{printable(name)}: {printable(problems[0].message)}", err=True)
    return 1 if refused or any(visit.error is not None for visit in visits) else 0


def _print(visit: Visit[list[T]], show: Callable[[list[T]], None], kind: str, *, is_single: bool) -> None:
    if visit.error is not None:
        click.echo(f"{visit.name}: {printable(short(visit.error))}", err=True)
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


def _data(visit: Visit[list[T]], kind: str, data: Callable[[T], dict[str, Any]]) -> dict[str, Any]:
    if visit.error is not None:
        return {"name": visit.name, **failure_data(visit.error)}
    if not visit.is_enabled:
        return {"name": visit.name, "enabled": False, kind: []}
    return {"name": visit.name, kind: [data(item) for item in visit.answer or []]}
