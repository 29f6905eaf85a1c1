"""What a response costs beside the published rules of the makers: figures that were computed by hand from them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway
from gateway.test_run_list import ALICE
from gateway.test_stand_ins import run_with_stand_in
from patience import patience
from providers.model_exchange import run_with_timeout

from holodeck.lib.errors import ModelError
from holodeck.models.items import Usage
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, fail, say, spend
from holodeck.testing.model.script import Spend, Turn, raw, status, tier
from holodeck.testing.model.scripted import DialectName

# Anthropic: reads cost a tenth, writes 1.25 times, for an hour twice; prompts over 200,000 tokens twice, their output
# 1.5 times.
SONNET: dict[str, Any] = {
    **{"input": 3, "cached": 0.3, "cache_write": 3.75, "cache_write_1h": 6, "output": 15},
    "long_prompts": [
        {"above": 200_000, "input": 6, "cached": 0.6, "cache_write": 7.5, "cache_write_1h": 12, "output": 22.5}
    ],
}
# OpenAI: flex costs a half, priority twice; prompts over 272,000 tokens twice, their output 1.5 times, but not those of
# priority.
GPT: dict[str, Any] = {
    **{"input": 2.5, "cached": 0.25, "output": 15},
    "long_prompts": [{"above": 272_000, "input": 5, "cached": 0.5, "output": 22.5}],
    "service_tiers": {
        "flex": {
            **{"input": 1.25, "cached": 0.13, "output": 7.5},
            "long_prompts": [{"above": 272_000, "input": 2.5, "cached": 0.25, "output": 11.25}],
        },
        "priority": {"input": 5, "cached": 0.5, "output": 30},
    },
}
HOUR = Spend(
    usage=Usage(input_tokens=50_000, output_tokens=100, cache_write_tokens=40_000, cache_write_1h_tokens=30_000)
)
LOOK = call("add", a=1, b=2)
Row = tuple[DialectName, dict[str, Any], Sequence[Turn], float]
ROWS: dict[str, Row] = {
    "plain": ("anthropic", SONNET, [[say("a"), spend(10_000, 1_000)]], 0.03 + 0.015),
    "read and written": (
        "anthropic",
        SONNET,
        [[say("a"), spend(150_000, 2_000, cached=100_000, cache_write=30_000)]],
        0.06 + 0.03 + 0.1125 + 0.03,
    ),
    "written for an hour": ("anthropic", SONNET, [[say("a"), HOUR]], 0.03 + 0.0375 + 0.18 + 0.0015),
    "at the threshold": ("anthropic", SONNET, [[say("a"), spend(200_000, 1_000)]], 0.6 + 0.015),
    "over it, by what is cached": (
        "anthropic",
        SONNET,
        [[say("a"), spend(250_000, 4_000, cached=200_000)]],
        0.3 + 0.12 + 0.09,
    ),
    "each turn by itself, not their sum": (
        "anthropic",
        SONNET,
        [[LOOK, spend(120_000, 1_000)], [LOOK, spend(130_000, 1_000)], [say("3"), spend(210_000, 1_000)]],
        (0.36 + 0.015) + (0.39 + 0.015) + (1.26 + 0.0225),
    ),
    "failed after a turn": (
        "anthropic",
        SONNET,
        [[LOOK, spend(10_000, 1_000)], fail(ModelError("no", status=400))],
        0.03 + 0.015,
    ),
    "usual tier": ("responses", GPT, [[tier("default"), say("a"), spend(10_000, 1_000)]], 0.025 + 0.015),
    "flex": (
        "responses",
        GPT,
        [[tier("flex"), say("a"), spend(10_000, 1_000, cached=4_000)]],
        0.0075 + 0.00052 + 0.0075,
    ),
    "priority": ("responses", GPT, [[tier("priority"), say("a"), spend(10_000, 1_000)]], 0.05 + 0.03),
    "flex and long": ("responses", GPT, [[tier("flex"), say("a"), spend(300_000, 1_000)]], 0.75 + 0.01125),
    "priority and long": ("responses", GPT, [[tier("priority"), say("a"), spend(300_000, 1_000)]], 1.5 + 0.03),
    "one turn of each tier": (
        "chat",
        GPT,
        [[tier("flex"), LOOK, spend(10_000, 1_000)], [tier("default"), say("3"), spend(10_000, 1_000)]],
        0.0125 + 0.0075 + 0.025 + 0.015,
    ),
    "cached in chat": ("chat", GPT, [[say("a"), spend(100_000, 1_000, cached=90_000)]], 0.025 + 0.0225 + 0.015),
}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": "1 + 2?"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "1 + 2?"}]},
    "/v1/messages": {"messages": [{"role": "user", "content": "1 + 2?"}], "max_tokens": 1_000},
}


@pytest.mark.parametrize("name", ROWS)
def test_a_response_costs_what_the_rules_of_its_maker_say_by_each_api(tmp_path: Path, name: str) -> None:
    dialect, price, turns, expected = ROWS[name]
    has_failed = name.startswith("failed")

    async def ask() -> tuple[list[str | None], list[float], float]:
        model = ScriptedModel(*turns, *turns, *turns)
        async with (
            FaultyMCPServer() as server,
            run_gateway(tmp_path, model, mcp={"sums": server}, dialect=dialect, keys=[ALICE], price=price) as gateway,
        ):
            session, told = await gateway.http_client(ALICE), []
            for path, body in BODIES.items():
                async with session.post(path, json={"model": MODEL, **body}) as answer:
                    assert (answer.status == 200) is not has_failed, await answer.text()
                    told.append(answer.headers.get("x-holodeck-cost"))
            _, runs = await gateway.send("GET", "/v1/runs", key=ALICE)
            _, usage = await gateway.send("GET", "/v1/usage?bucket=day", key=ALICE)
        return told, [run["cost"] for run in runs["data"]], usage["data"][0]["cost"]

    told, stored, used = run_with_timeout(ask())
    if not has_failed:
        assert [float(each or 0) for each in told] == pytest.approx([expected] * len(BODIES), rel=0.01)
    assert stored == pytest.approx([expected], rel=0.01)
    assert used == pytest.approx(expected * len(BODIES), rel=0.01)


@async_test(60)
async def test_a_stand_in_costs_its_own_price_with_its_own_tiers(tmp_path: Path) -> None:
    second = ScriptedModel(lambda _: [tier("flex"), say("a"), spend(10_000, 1_000)])
    usual = ScriptedModel(lambda _: status(503))
    async with run_with_stand_in(tmp_path, usual, second, more={"price": GPT}, keys=[ALICE]) as (gateway, _):
        _, said = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Hi"}, key=ALICE)
        assert said["status"] == "completed"
        _, runs = await gateway.send("GET", "/v1/runs", key=ALICE)
    assert runs["data"][0]["cost"] == pytest.approx(0.0125 + 0.0075, rel=0.01)


@async_test(60)
async def test_a_budget_is_charged_by_the_same_rules(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: [tier("flex"), say("a"), spend(300_000, 1_000)])
    budgets = {ALICE: {"amount": 10, "period": "month"}}
    async with run_gateway(tmp_path, model, dialect="responses", keys=[ALICE], price=GPT, budgets=budgets) as gateway:
        await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Hi"}, key=ALICE)
        _, budget = await gateway.send("GET", "/v1/budget", key=ALICE)
    assert budget["spent"] == pytest.approx(0.76125, rel=0.01)


@async_test(60)
async def test_a_tier_without_a_price_is_named_once_and_has_the_usual_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel(lambda _: [tier("ultrafast"), say("a"), spend(10_000, 1_000)])
    async with run_gateway(tmp_path, model, dialect="responses", keys=[ALICE], price=GPT) as gateway:
        for _ in range(2):
            await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Hi"}, key=ALICE)
        _, runs = await gateway.send("GET", "/v1/runs", key=ALICE)
    assert [run["cost"] for run in runs["data"]] == pytest.approx([0.04, 0.04], rel=0.01)
    named = [record.getMessage() for record in caplog.records if "tier_price_unknown" in record.getMessage()]
    assert len(named) == 1
    assert "ultrafast" in named[0]


@async_test(60)
async def test_the_fast_mode_of_anthropic_is_a_tier(tmp_path: Path) -> None:
    start = {
        "type": "message_start",
        "message": {"model": "m", "usage": {"input_tokens": 10_000, "output_tokens": 1, "speed": "fast"}},
    }
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1_000}}
    text = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}},
        {"type": "content_block_stop", "index": 0},
    ]
    model = ScriptedModel(lambda _: raw(start, *text, end, {"type": "message_stop"}))
    price = SONNET | {"service_tiers": {"fast": {"input": 30, "output": 150}}}
    async with run_gateway(tmp_path, model, dialect="anthropic", keys=[ALICE], price=price) as gateway:
        async with asyncio.timeout(patience(30)):
            await gateway.stream("/v1/responses", {"model": MODEL, "input": "Hi", "stream": True}, key=ALICE)
        _, runs = await gateway.send("GET", "/v1/runs", key=ALICE)
    assert runs["data"][0]["cost"] == pytest.approx(0.3 + 0.15, rel=0.01)
