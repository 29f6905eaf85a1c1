"""`holodeck prices`: what a million tokens of each model of a file cost, and where that is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from holodeck.cli.default_file import resolve_file
from holodeck.cli.output.terminal import Terminal
from holodeck.config.agent_loader import DEFAULT_AGENT_FILE, DEFAULT_GATEWAY_FILE, LoadedAgent
from holodeck.models.llm import LLM
from holodeck.models.price import Price, describe_table
from holodeck.runtime import read_agent_or_gateway

_EPILOG = """\b
Examples:
  holodeck prices                    of ./agent.yaml, or else ./gateway.yaml
  holodeck prices team/agent.yaml
  holodeck prices gateway.yaml --json"""
_KINDS = tuple(Price.model_fields)
_COLUMNS = ("Name", "Model", *(kind.replace("_", " ") for kind in _KINDS), "From")


@click.command("prices", epilog=_EPILOG)
@click.argument("file", required=False, type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the prices as JSON.")
def command(file: str | None, as_json: bool) -> None:
    """Show the prices of a million tokens that are used for the models of an agent or gateway FILE.

    A price in the file wins over the price table that comes with HoloDeck. Models without either have no known cost,
    and no budget accepts them. Nothing is dialled.
    """
    loaded = read_agent_or_gateway(resolve_file(file, (DEFAULT_AGENT_FILE, DEFAULT_GATEWAY_FILE)))
    if isinstance(loaded, LoadedAgent):
        models = {loaded.agent.name: loaded.agent.model}
    else:
        models = {name: served.model for name, served in loaded.models.items()}
        models |= {name: agent.agent.model for name, agent in loaded.agents.items()}
    rows = [_describe(name, llm) for name, llm in models.items()]
    if as_json:
        click.echo(json.dumps({"table": describe_table(), "models": rows}, indent=2, ensure_ascii=False))
        return
    Terminal().table(_COLUMNS, [tuple(_list_cells(row)) for row in rows])
    click.echo(f"For a million tokens; {describe_table()}.", err=True)


def _describe(name: str, llm: LLM) -> dict[str, Any]:
    price = llm.effective_price
    source = "unknown" if price is None else "table" if llm.price is None else "file"
    if price is None and not llm.spec.is_service:
        source = "runs here"
    return {
        "name": name,
        "provider": str(llm.provider),
        "model": llm.name,
        "price": None if price is None else price.model_dump(exclude_none=True),
        "from": source,
    }


def _list_cells(row: dict[str, Any]) -> Iterator[str]:
    yield row["name"]
    yield row["model"] or row["provider"]
    for kind in _KINDS:
        amount = (row["price"] or {}).get(kind)
        yield "-" if amount is None else f"{amount:g}"
    yield row["from"]
