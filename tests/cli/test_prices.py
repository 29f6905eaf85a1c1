"""`holodeck prices`: the prices that are used, from the file or from the table that comes with HoloDeck."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from holodeck_command import run_holodeck

from holodeck import LLM
from holodeck.gateway.auth.callers import hash_key
from holodeck.lib.errors import ConfigError
from holodeck.models.items import Usage
from holodeck.runtime import read_gateway

MODELS: dict[str, dict[str, Any]] = {
    "fast": {"provider": "anthropic", "name": "claude-haiku-4-5", "api_key": "${KEY}"},
    "own": {"provider": "openai", "name": "gpt-5", "api_key": "${KEY}", "price": {"input": 9, "output": 8}},
    "new": {"provider": "openai", "name": "gpt-of-tomorrow", "api_key": "${KEY}"},
    "inside": {"provider": "openai_compatible", "name": "gpt-5", "endpoint": "http://localhost:8000/v1"},
    "practice": {"provider": "rehearsal"},
}

PLAIN = {"input": 2, "output": 8}


def write_gateway(folder: Path, *names: str, **more: object) -> Path:
    file = folder / "gateway.yaml"
    models = [{"name": name, "model": MODELS[name]} for name in names]
    file.write_text(yaml.safe_dump({"models": models, **more}))
    return file


def test_each_model_has_the_price_of_the_file_or_of_the_table(tmp_path: Path) -> None:
    file = write_gateway(tmp_path, *MODELS)
    done = run_holodeck("prices", str(file), "--json", cwd=tmp_path, env={"KEY": "k"})
    assert done.returncode == 0, done.stderr
    found = {each["name"]: each for each in json.loads(done.stdout)["models"]}
    assert {name: each["from"] for name, each in found.items()} == {
        "fast": "table",
        "own": "file",
        "new": "unknown",
        "inside": "unknown",
        "practice": "runs here",
    }
    amounts = {"input", "cached", "cache_write", "cache_write_1h", "output"}
    assert found["fast"]["price"].keys() - {"service_tiers"} == amounts
    assert found["own"]["price"] == {"input": 9, "output": 8}
    shown = run_holodeck("prices", str(file), cwd=tmp_path, env={"KEY": "k"})
    assert "claude-haiku-4-5" in shown.stdout
    assert "price table of 20" in shown.stderr


def test_a_stand_in_has_a_price_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    model = {**MODELS["own"], "fallback": [MODELS["fast"], MODELS["new"]]}
    file.write_text(yaml.safe_dump({"models": [{"name": "own", "model": model}]}))
    done = run_holodeck("prices", str(file), "--json", cwd=tmp_path, env={"KEY": "k"})
    assert {each["name"]: each["from"] for each in json.loads(done.stdout)["models"]} == {
        "own": "file",
        "own/claude-haiku-4-5": "table",
        "own/gpt-of-tomorrow": "unknown",
    }


@pytest.mark.parametrize(
    ("deployments", "is_known"),
    [
        ([{"api_key": "one"}, {"api_key": "other"}], True),
        ([{"name": "gpt-5"}, {"name": "gpt-5-2025-08-07"}], True),
        ([{"name": "gpt-5"}, {"name": "gpt-5-mini"}], False),
        ([{"api_key": "one"}, {"endpoint": "https://models.example.com/v1"}], False),
    ],
)
def test_deployments_have_the_price_of_the_table_only_if_it_is_that_of_all(
    deployments: list[dict[str, str]], is_known: bool
) -> None:
    deployed = LLM.model_validate({"provider": "openai", "name": "gpt-5", "deployments": deployments})
    assert deployed.effective_price == (LLM(provider="openai", name="gpt-5").effective_price if is_known else None)


@pytest.mark.parametrize(("name", "is_refused"), [("fast", False), ("own", False), ("new", True), ("inside", True)])
def test_a_budget_needs_a_price_that_is_known(
    tmp_path: Path, name: str, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "k")
    key = {"name": "alice", "hash": hash_key("hd-alice"), "budget": {"amount": 1, "period": "day"}}
    file = write_gateway(tmp_path, name, keys=[key])
    if not is_refused:
        read_gateway(file)
        return
    with pytest.raises(ConfigError, match=f"a budget needs the price of every model .* '{name}' has none"):
        read_gateway(file)


def test_known_prices_are_those_of_the_makers() -> None:
    """Published rules: Anthropic's cache writes cost 1.25 times the input, twice for an hour, and reads a tenth."""
    price = LLM(provider="anthropic", name="claude-sonnet-4-5-20250929").effective_price
    assert price is not None
    tokens = 100_000
    cases = {
        0.3: Usage(input_tokens=tokens),
        0.03: Usage(input_tokens=tokens, cached_tokens=tokens),
        0.375: Usage(input_tokens=tokens, cache_write_tokens=tokens),
        0.6: Usage(input_tokens=tokens, cache_write_tokens=tokens, cache_write_1h_tokens=tokens),
        1.5: Usage(output_tokens=tokens),
    }
    assert [price.cost_of(usage) for usage in cases.values()] == pytest.approx(list(cases), rel=0.01)
    # A date in the name, a region, and other services that serve the same model.
    assert LLM(provider="openai", name="gpt-5-2025-08-07").effective_price is not None
    azure = LLM(provider="azure_openai", name="gpt-5-mini", endpoint="https://me.openai.azure.com").effective_price
    assert azure == LLM(provider="openai", name="gpt-5-mini").effective_price


def test_the_table_has_long_prompts_and_service_tiers() -> None:
    """Published rules: over 200,000 tokens Anthropic asks twice as much, and flex costs half at OpenAI."""
    sonnet = LLM(provider="anthropic", name="claude-sonnet-4-5").effective_price
    gpt = LLM(provider="openai", name="gpt-5").effective_price
    assert sonnet is not None
    assert gpt is not None
    long = Usage(input_tokens=300_000, output_tokens=1_000)
    assert sonnet.cost_of(long) == pytest.approx(0.3 * 6 + 0.001 * 22.5, rel=0.01)
    assert gpt.cost_of(long) == pytest.approx(0.3 * 1.25 + 0.001 * 10, rel=0.01)
    assert gpt.cost_of(long, "flex") == pytest.approx(gpt.cost_of(long) / 2, rel=0.01)
    assert gpt.cost_of(long, "priority") == pytest.approx(gpt.cost_of(long) * 2, rel=0.01)
    assert gpt.cost_of(long, "default") == gpt.cost_of(long)


def test_long_prompts_and_tiers_are_shown_and_so_is_what_is_not_known(tmp_path: Path) -> None:
    price = {
        **{"input": 2, "output": 8},
        "long_prompts": [{"above": 100_000, "input": 4, "output": 9}],
        "service_tiers": {"flex": {"input": 1, "output": 4}},
    }
    own = {"provider": "openai_compatible", "name": "own", "endpoint": "http://localhost:8000/v1"}
    models = [{"name": "tiered", "model": own | {"price": price}}, {"name": "plain", "model": own | {"price": PLAIN}}]
    file = tmp_path / "gateway.yaml"
    file.write_text(yaml.safe_dump({"models": models}))
    shown = run_holodeck("prices", str(file), cwd=tmp_path)
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["prompts", "over", "100,000", "4", "-", "-", "-", "9"] in lines
    assert ["flex", "1", "-", "-", "-", "4"] in lines
    assert "have the usual price for: plain." in shown.stderr
    listed = json.loads(run_holodeck("prices", str(file), "--json", cwd=tmp_path).stdout)["models"]
    assert listed[0]["price"] == price
