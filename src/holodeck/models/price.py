"""The price of a model's tokens, and the cost of a turn by it.

A price table ships with the package: what makers of models ask for a million tokens, as of its date. `make prices`
writes it anew. A price in a file wins over it. It has the services of makers and hosts only: a model behind another
address may cost anything, so its price is unknown unless the file says it.

A price may depend on how long a prompt is, and on the service tier. So each turn has its own, and the cost of a run is
the sum of its turns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from typing import Annotated, Any

from pydantic import Field

from holodeck.lib.json.parse import parse_json
from holodeck.lib.record import record
from holodeck.models.file_model import FileModel, Integer, Number
from holodeck.models.generation import OPTION_OF, ServiceTier
from holodeck.models.items import Usage
from holodeck.models.model_io import ModelAnswer, ModelRequest

_MILLION = 1_000_000
_USUAL_TIERS = OPTION_OF["service_tier"].usual

Amount = Annotated[Number, Field(ge=0, allow_inf_nan=False)]


class TokenPrices(FileModel):
    """What a million tokens of each kind cost."""

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

    def add_up(self, usage: Usage) -> float:
        """Return the cost of tokens by these prices."""
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


class LongPromptPrices(TokenPrices):
    """Prices of a whole turn whose prompt is long, its output included."""

    above: Annotated[Integer, Field(ge=1)]
    """Tokens of a prompt, cached ones included, above which these prices hold. E.g. `200000`, not `0`."""


class TierPrices(TokenPrices):
    """The prices of one service tier."""

    long_prompts: list[LongPromptPrices] = Field(default_factory=list)
    """Prices of turns with long prompts, as providers have them. The largest `above` that a prompt exceeds counts. E.g.
    `[{above: 200000, input: 0.5, output: 3}]`, not `{above: 200000}`."""

    def cost_of_turn(self, usage: Usage) -> float:
        """Return the cost of a turn of this tier."""
        exceeded = [each for each in self.long_prompts if usage.input_tokens > each.above]
        prices = max(exceeded, key=lambda each: each.above) if exceeded else self
        return prices.add_up(usage)


class Price(TierPrices):
    """Price of a model per million tokens. All prices of a file are in one currency, which HoloDeck does not name."""

    service_tiers: dict[ServiceTier, TierPrices] = Field(default_factory=dict)
    """Prices of service tiers, by the name that the provider reports, such as `flex` and `priority`. All others have
    the usual price. E.g. `{flex: {input: 0.125, output: 1}}`, not `{cheap: {input: 0.125, output: 1}}`."""

    def cost_of(self, usage: Usage, service_tier: str | None = None) -> float:
        """Return the cost of one turn. `service_tier`: None for the usual one."""
        tier = self.service_tiers.get(service_tier) if service_tier else None  # type: ignore[call-overload]
        return (tier or self).cost_of_turn(usage)

    def cost_of_answer(self, answer: ModelAnswer) -> float:
        """Return the cost of a complete turn."""
        return self.cost_of(answer.usage, answer.service_tier)

    def cost_of_cut(self, request: ModelRequest, usage: Usage) -> float:
        """Return the cost of a turn that has no answer, by the tier that was asked for."""
        return self.cost_of(usage, request.service_tier)

    def find_unknown_tier(self, answer: ModelAnswer) -> str | None:
        """Return the service tier of a turn if its price is not known, so that it has the usual one."""
        tier = answer.service_tier
        return None if tier is None or tier in _USUAL_TIERS or tier in self.service_tiers else tier


@record
class ModelPrices:
    """The prices of a model and of its stand-ins. None: the price is unknown."""

    usual: Price | None = None
    stand_ins: Mapping[str, Price | None] = field(default_factory=dict)
    """By their names in the configuration."""

    def find(self, answered_by: str) -> Price | None:
        """Return the price of the model that answered: a stand-in, or the usual one for an empty name."""
        return self.stand_ins.get(answered_by) if answered_by else self.usual


NO_PRICES = ModelPrices()


@cache
def _read_table() -> dict[str, Any]:
    # Imported late: the import takes longer than that of this module.
    from importlib.resources import files

    table: dict[str, Any] = parse_json(files("holodeck.models").joinpath("price_table.json").read_bytes())
    return table


def describe_table() -> str:
    """Return the date of the table and where its prices come from."""
    table = _read_table()
    return f"price table of {table['date']} ({table['source']}, {table['currency']})"


def find_table_currency() -> str:
    """Return the currency of the table."""
    return str(_read_table()["currency"])


@record
class KnownPrice:
    """A price of the table."""

    price: Price
    is_highest: bool = False
    """Whether the service asks less at some hours."""


@cache
def find_known_price(url: str, model: str) -> KnownPrice | None:
    """Return the price of a model of the service at a URL; None if the service or the model is not known."""
    services = _read_table()["services"]
    for service in services.values():
        if re.match(service["url"], url):
            for each in (service, *(services[name] for name in service["others"])):
                for pattern, amounts, *highest in each["models"]:
                    if re.match(pattern, model.lower()):
                        return KnownPrice(price=Price.model_validate(amounts), is_highest=bool(highest))
    return None
