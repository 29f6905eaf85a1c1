"""The price table that ships with the package: what makers of models ask for a million tokens, as of its date.

`make prices` writes it anew. A price in a file wins over it. It has the services of makers and hosts only: a model
behind another address may cost anything, so its price is unknown unless the file says it.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

import orjson

from holodeck.models.price import Price


@cache
def _read_table() -> dict[str, Any]:
    table: dict[str, Any] = orjson.loads(files("holodeck.models").joinpath("price_table.json").read_bytes())
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
