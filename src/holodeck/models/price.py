"""The price of a model's tokens, and the cost of a run by it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holodeck.models.file_model import FileModel, Number
from holodeck.models.items import Usage

_MILLION = 1_000_000

Amount = Annotated[Number, Field(ge=0, allow_inf_nan=False)]


class Price(FileModel):
    """Price of a model per million tokens. All prices of a file are in one currency, which HoloDeck does not name."""

    input: Amount
    """Price of a million tokens that are sent to the model. E.g. `0.25`, not `-1`."""
    cached_input: Amount | None = None
    """Price of a million sent tokens that the provider has cached. Absent: that of `input`. E.g. `0.025`, not `free`.
    """
    output: Amount
    """Price of a million tokens that the model writes, those of its reasoning included. E.g. `2`, not absent."""

    def cost_of(self, usage: Usage) -> float:
        """Return the cost of these tokens."""
        cached = min(usage.cached_tokens, usage.input_tokens)
        cached_price = self.input if self.cached_input is None else self.cached_input
        sent = (usage.input_tokens - cached) * self.input + cached * cached_price
        return (sent + usage.output_tokens * self.output) / _MILLION
