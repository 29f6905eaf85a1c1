"""The price of a model's tokens, and the cost of a run by it.

A price table ships with the package: what makers of models ask for a million tokens, as of its date. `make prices`
writes it anew. A price in a file wins over it. It has the services of makers and hosts only: a model behind another
address may cost anything, so its price is unknown unless the file says it.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

from pydantic import Field

from holodeck.lib.json.parse import parse_json
from holodeck.models.file_model import FileModel, Number
from holodeck.models.items import Usage

_MILLION = 1_000_000

Amount = Annotated[Number, Field(ge=0, allow_inf_nan=False)]


class Price(FileModel):
    """Price of a model per million tokens. All prices of a file are in one currency, which HoloDeck does not name."""

    input: Amount
    """Price of a million tokens that are sent to the model. E.g. `0.25`, not `-1`."""
    cached: Amount | None = None
    """Price of a million sent tokens that the provider reads from its cache. Absent: that of `input`. E.g. `0.025`, not
    `free`."""
    cache_write: Amount | None = None
    """Price of a million sent tokens that the provider stores in its cache. Absent: that of `input`. E.g. `0.3125`, not
    `-1`."""
    cache_write_1h: Amount | None = None
    """Price of a million sent tokens that the provider stores in its cache for an hour. Absent: that of `cache_write`.
    E.g. `0.5`, not `-1`."""
    output: Amount
    """Price of a million tokens that the model writes, those of its reasoning included. E.g. `2`, not absent."""

    def cost_of(self, usage: Usage) -> float:
        """Return the cost of these tokens."""
        cached = min(usage.cached_tokens, usage.input_tokens)
        written = min(usage.cache_write_tokens, usage.input_tokens - cached)
        for_hour = min(usage.cache_write_1h_tokens, written)
        cache_write = self.input if self.cache_write is None else self.cache_write
        sent = (
            (usage.input_tokens - cached - written) * self.input
            + cached * (self.input if self.cached is None else self.cached)
            + (written - for_hour) * cache_write
            + for_hour * (cache_write if self.cache_write_1h is None else self.cache_write_1h)
        )
        return (sent + usage.output_tokens * self.output) / _MILLION


@cache
def _read_table() -> dict[str, Any]:
    table: dict[str, Any] = parse_json(files("holodeck.models").joinpath("price_table.json").read_bytes())
    return table


def describe_table() -> str:
    """Return the date of the table and where its prices come from."""
    table = _read_table()
    return f"price table of {table['date']} ({table['source']}, {table['currency']})"


@cache
def find_known_price(url: str, model: str) -> Price | None:
    """Return the price of a model of the service at a URL; None if the service or the model is not known."""
    services = _read_table()["services"]
    for service in services.values():
        if re.match(service["url"], url):
            for each in (service, *(services[name] for name in service["others"])):
                for pattern, amounts in each["models"]:
                    if re.match(pattern, model.lower()):
                        return Price(**amounts)
    return None
