"""The cost of tokens by the price of a model."""

from __future__ import annotations

import pytest

from holodeck.models.items import Usage
from holodeck.models.price import Price


def test_cached_tokens_cost_their_own_price() -> None:
    price = Price(input=2, cached_input=0.5, output=10)
    usage = Usage(input_tokens=1_000_000, cached_tokens=400_000, output_tokens=100_000)
    # 0.6 million at 2, 0.4 million at 0.5, 0.1 million at 10.
    assert price.cost_of(usage) == pytest.approx(1.2 + 0.2 + 1.0)


def test_without_a_cached_price_cached_tokens_cost_the_usual_one() -> None:
    usage = Usage(input_tokens=1_000_000, cached_tokens=1_000_000)
    assert Price(input=2, output=10).cost_of(usage) == pytest.approx(2)
