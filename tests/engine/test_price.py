"""The cost of tokens by the price of a model."""

from __future__ import annotations

import pytest

from holodeck.models.items import Usage
from holodeck.models.price import Price


def test_cached_tokens_cost_their_own_price() -> None:
    price = Price(input=2, cached=0.5, output=10)
    usage = Usage(input_tokens=1_000_000, cached_tokens=400_000, output_tokens=100_000)
    # 0.6 million at 2, 0.4 million at 0.5, 0.1 million at 10.
    assert price.cost_of(usage) == pytest.approx(1.2 + 0.2 + 1.0)


def test_without_a_cached_price_cached_tokens_cost_the_usual_one() -> None:
    usage = Usage(input_tokens=1_000_000, cached_tokens=1_000_000)
    assert Price(input=2, output=10).cost_of(usage) == pytest.approx(2)


def test_tokens_that_are_written_to_the_cache_cost_their_own_prices() -> None:
    price = Price(input=4, cached=0.4, cache_write=5, cache_write_1h=8, output=20)
    usage = Usage(
        input_tokens=1_000_000, cached_tokens=500_000, cache_write_tokens=300_000, cache_write_1h_tokens=100_000
    )
    # 0.2 million at 4, 0.5 million at 0.4, 0.2 million at 5, 0.1 million at 8.
    assert price.cost_of(usage) == pytest.approx(0.8 + 0.2 + 1.0 + 0.8)
    assert Price(input=4, cache_write=5, output=20).cost_of(usage) == pytest.approx(0.8 + 2.0 + 1.5)
    assert Price(input=4, output=20).cost_of(usage) == pytest.approx(4)
