"""What servers offer, one server after the other: shared by `tools` and `prompts`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holodeck.cli.mcp.target import Target, choose, failure_data
from holodeck.cli.mcp.visit import Visit, run, short, visit_all, within
from holodeck.config.servers import LoadedServers
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
    visits = run(visit_all(chosen, ask, on_visit=lambda _: None, verb="asking"), verbose=target.verbose)
    refused = loaded.refused if server is None else {}
    if target.as_json:
        listed = [_data(visit, kind, data) for visit in visits]
        invalid = [{"name": name, "error": {"message": found[0].message}} for name, found in refused.items()]
        click.echo(json.dumps({"servers": [*listed, *invalid]}, indent=2))
    else:
        _print(loaded, visits, server, show, kind)
    failed = any(visit.error is not None for visit in visits) or bool(refused)
    return 1 if failed else 0


def _print(
    loaded: LoadedServers,
    visits: Sequence[Visit[list[T]]],
    server: str | None,
    show: Callable[[list[T]], None],
    kind: str,
) -> None:
    is_single = len(visits) == 1
    for visit in visits:
        if visit.error is not None:
            click.echo(f"{visit.name}: {printable(short(visit.error))}", err=True)
            continue
        if not is_single or not visit.is_enabled:
            remark = "" if visit.is_enabled else " (switched off)"
            click.secho(f"{visit.name}{remark}", bold=True)
        if visit.answer:
            show(visit.answer)
        elif visit.is_enabled:
            click.echo(f"(no {kind})")
        if not is_single:
            click.echo()
    for name, problems in loaded.refused.items() if server is None else ():
        click.echo(f"{printable(name)}: {printable(problems[0].message)}", err=True)


def _data(visit: Visit[list[T]], kind: str, data: Callable[[T], dict[str, Any]]) -> dict[str, Any]:
    if visit.error is not None:
        return {"name": visit.name, **failure_data(visit.error)}
    if not visit.is_enabled:
        return {"name": visit.name, "enabled": False, kind: []}
    return {"name": visit.name, kind: [data(item) for item in visit.answer or []]}
