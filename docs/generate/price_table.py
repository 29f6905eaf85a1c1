"""Writes the price table of the package from the data of `genai-prices` (MIT): `make prices`.

A price is that of the day, with those of long prompts and of service tiers where the data has them. Of a model whose
price depends on the hour it is the highest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
# Tiers that a provider may report for a turn. `batch` is that of an API for files of requests.
_TIERS = frozenset({"flex", "priority", "scale", "fast", "ultrafast", "batch"})


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


def _find_amount(value: Any, prompt_tokens: int) -> float | None:
    """Return the amount for a prompt of so many tokens."""
    if hasattr(value, "base"):
        exceeded = [tier.price for tier in value.tiers if prompt_tokens > tier.start]
        value = exceeded[-1] if exceeded else value.base
    return float(value) if isinstance(value, Decimal) else None


def _list_amounts(prices: Mapping[str, Any], prompt_tokens: int = 0) -> dict[str, Any]:
    found = {name: _find_amount(prices.get(key), prompt_tokens) for name, key in _KINDS.items()}
    return {name: amount for name, amount in found.items() if amount is not None}


def _build_tier(prices: Mapping[str, Any]) -> dict[str, Any]:
    """Return the prices of one service tier, with those of its long prompts."""
    starts = {tier.start for key in _KINDS.values() for tier in getattr(prices.get(key), "tiers", ())}
    longer = [{"above": start, **_list_amounts(prices, start + 1)} for start in sorted(starts)]
    return _list_amounts(prices) | ({"long_prompts": longer} if longer else {})


def _find_prices(model: Any, now: datetime) -> tuple[Any, bool]:
    """Return the prices of a day, and whether they are the highest of several hours."""
    if not isinstance(model.prices, list):
        return model.prices, False
    hours = [now.replace(hour=hour) for hour in range(24)]
    found = [model.get_prices(hour) for hour in hours]
    highest = max(found, key=lambda each: _find_amount(each.output_mtok, 0) or 0.0)
    return highest, any(each != highest for each in found)


def _build_row(model: Any, now: datetime) -> list[Any] | None:
    prices, is_highest = _find_prices(model, now)
    usual = vars(prices)
    amounts = _build_tier(usual)
    if "input" not in amounts or "output" not in amounts:
        return None
    tiers: dict[str, Any] = {}
    for variant in model.price_variants or ():
        name = _find_tier(variant.when)
        if name in _TIERS and (variant.constraint is None or variant.constraint.active(now)):
            own = {key: value for key, value in vars(variant.prices).items() if value is not None}
            tiers[name] = _build_tier({**usual, **own})
    tiers = {name: tier for name, tier in tiers.items() if tier != amounts}
    row = [_build_pattern(model.match), amounts | ({"service_tiers": tiers} if tiers else {})]
    return [*row, "highest"] if is_highest else row


def _find_tier(when: Mapping[str, str]) -> str | None:
    """Return the service tier that a condition is about. None: it is about something else as well."""
    key, value = next(iter(when.items()))
    return value if len(when) == 1 and key in ("service_tier", "speed", "processing") else None


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
