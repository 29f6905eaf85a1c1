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
from holodeck.models.price import TierPrices, TokenPrices, describe_table
from holodeck.runtime import read_agent_or_gateway

_EPILOG = """\b
Examples:
  holodeck prices                    of ./agent.yaml, or else ./gateway.yaml
  holodeck prices team/agent.yaml
  holodeck prices gateway.yaml --json"""
_KINDS = tuple(TokenPrices.model_fields)
_COLUMNS = ("Name", "Model", *(kind.replace("_", " ") for kind in _KINDS), "From")


@click.command("prices", epilog=_EPILOG)
@click.argument("file", required=False, type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the prices as JSON.")
def command(file: str | None, as_json: bool) -> None:
    """Show the prices of a million tokens that are used for the models and stand-ins of an agent or gateway FILE.

    A price in the file wins over the price table that comes with HoloDeck. Models without either have no known cost,
    and no budget accepts them. Nothing is dialled.
    """
    loaded = read_agent_or_gateway(resolve_file(file, (DEFAULT_AGENT_FILE, DEFAULT_GATEWAY_FILE)))
    if isinstance(loaded, LoadedAgent):
        models = {loaded.agent.name: loaded.agent.model}
    else:
        models = {name: served.model for name, served in loaded.models.items()}
        models |= {name: agent.agent.model for name, agent in loaded.agents.items()}
    models = {
        label: each
        for name, llm in models.items()
        for label, each in ((name, llm), *((f"{name}/{stand_in}", each) for stand_in, each in llm.stand_ins.items()))
    }
    rows = [_describe(name, llm) for name, llm in models.items()]
    if as_json:
        click.echo(json.dumps({"table": describe_table(), "models": rows}, indent=2, ensure_ascii=False))
        return
    Terminal().table(_COLUMNS, [cells for name, llm in models.items() for cells in _list_cells(name, llm)])
    click.echo(f"For a million tokens; {describe_table()}.", err=True)
    if any(llm.price is None and llm.known_price is not None and llm.known_price.is_highest for llm in models.values()):
        click.echo("A price with 'highest' is less at some hours.", err=True)
    names = [name for name, llm in models.items() if _has_unpriced_tiers(llm)]
    if names:
        what = "Turns of other service tiers than the usual one, such as flex or priority, have the usual price for"
        click.echo(f"{what}: {', '.join(names)}. 'price' of the model can say them: 'service_tiers'.", err=True)


def _has_unpriced_tiers(llm: LLM) -> bool:
    """Return whether requests may ask for a service tier whose price is not known."""
    price = llm.effective_price
    return price is not None and not price.service_tiers and llm.spec.is_service


def _find_source(llm: LLM) -> str:
    if llm.effective_price is None:
        return "unknown" if llm.spec.is_service else "runs here"
    if llm.price is not None or llm.known_price is None:
        return "file"
    return "table, highest" if llm.known_price.is_highest else "table"


def _describe(name: str, llm: LLM) -> dict[str, Any]:
    price = llm.effective_price
    return {
        "name": name,
        "provider": str(llm.provider),
        "model": llm.name,
        "price": None if price is None else price.model_dump(exclude_none=True, exclude_defaults=True),
        "from": _find_source(llm),
    }


def _list_cells(name: str, llm: LLM) -> Iterator[tuple[str, ...]]:
    """Yield the row of a model, then those of its long prompts and service tiers."""
    price = llm.effective_price
    yield (name, llm.name or str(llm.provider), *_list_amounts(price), _find_source(llm))
    if price is None:
        return
    yield from _list_long_prompts("", price)
    for tier, prices in price.service_tiers.items():
        yield ("", f"  {tier}", *_list_amounts(prices), "")
        yield from _list_long_prompts(f"{tier}, ", prices)


def _list_long_prompts(tier: str, prices: TierPrices) -> Iterator[tuple[str, ...]]:
    for each in prices.long_prompts:
        yield ("", f"  {tier}prompts over {each.above:,}", *_list_amounts(each), "")


def _list_amounts(prices: TokenPrices | None) -> Iterator[str]:
    amounts = {} if prices is None else prices.model_dump()
    for kind in _KINDS:
        amount = amounts.get(kind)
        yield "-" if amount is None else f"{amount:g}"
