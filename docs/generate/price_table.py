"""Writes the price table of the package from the data of `genai-prices` (MIT): `make prices`.

A price is that of the day, of the usual service tier, and of prompts that are not so long that they cost more.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import orjson

TABLE = Path(__file__).parents[2] / "src" / "holodeck" / "models" / "price_table.json"
# Services with an API that a provider of ours speaks.
_SERVICES = (
    *("anthropic", "azure", "cerebras", "deepseek", "fireworks", "google", "groq", "minimax", "mistral", "moonshotai"),
    *("openai", "openrouter", "perplexity", "together", "x-ai", "zai"),
)
_KINDS = {
    "input": "input_mtok",
    "cached": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "cache_write_1h": "cache_write_1h_mtok",
    "output": "output_mtok",
}


def _build_pattern(clause: Any) -> str:
    """Return a pattern for the beginning of a model's name in lower case."""
    match vars(clause):
        case {"equals": text}:
            return re.escape(str(text).lower()) + "$"
        case {"starts_with": text}:
            return re.escape(str(text).lower())
        case {"ends_with": text}:
            return f".*{re.escape(text.lower())}$"
        case {"contains": text}:
            return f".*{re.escape(text.lower())}"
        case {"regex": text}:
            return str(text[1:]) if text.startswith("^") else f".*(?:{text})"
        case {"or_": parts}:
            return "(?:" + "|".join(map(_build_pattern, parts)) + ")"
        case {"and_": parts}:
            return "".join(f"(?={_build_pattern(part)})" for part in parts)
    raise TypeError(f"unknown clause {clause!r}")


def _find_amount(value: Any) -> float | None:
    amount = getattr(value, "base", value)
    return float(amount) if isinstance(amount, Decimal) else None


def _build_row(model: Any, now: datetime) -> list[Any] | None:
    prices = model.get_prices(now)
    found = {name: _find_amount(getattr(prices, key)) for name, key in _KINDS.items()}
    if found["input"] is None or found["output"] is None:
        return None
    return [_build_pattern(model.match), {name: amount for name, amount in found.items() if amount is not None}]


def write_table() -> None:
    """Write the table of today."""
    # No dependency: `make prices` adds it for this program alone.
    providers = import_module("genai_prices.data").providers
    now = datetime.now(UTC)
    by_id = {provider.id: provider for provider in providers}
    services = {
        name: {
            "url": by_id[name].api_pattern,
            "models": [row for model in by_id[name].models if (row := _build_row(model, now)) is not None],
            "others": [each for each in by_id[name].fallback_model_providers or () if each in _SERVICES],
        }
        for name in _SERVICES
    }
    source = f"genai-prices {metadata.version('genai-prices')}"
    table = {"date": now.date().isoformat(), "source": source, "currency": "USD", "services": services}
    TABLE.write_bytes(orjson.dumps(table))


if __name__ == "__main__":
    write_table()
