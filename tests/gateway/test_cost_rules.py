"""What a response costs beside the rules that the makers publish, which are written here as arithmetic.

The prices are those of the table in the package, so it is held against the rules as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway
from gateway.test_run_list import ALICE
from gateway.test_stand_ins import run_with_stand_in
from patience import patience

from holodeck import LLM
from holodeck.lib.errors import ModelError
from holodeck.models.items import Usage
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, fail, say, spend
from holodeck.testing.model.script import Spend, Step, Turn, raw, status, tier
from holodeck.testing.model.scripted import DialectName


@dataclass(frozen=True, kw_only=True)
class Told:
    """The tokens of one turn, of which each is in one place only."""

    plain: int = 10_000
    read: int = 0
    """From the cache."""
    written: int = 0
    """To the cache, for some minutes."""
    for_hour: int = 0
    """To the cache, for an hour."""
    output: int = 1_000
    reasoning: int = 0
    """Of the output."""
    tier: str = ""

    @property
    def prompt(self) -> int:
        return self.plain + self.read + self.written + self.for_hour

    def tell(self, *steps: Step) -> Turn:
        """A turn that a model answers, with its usage and its tier."""
        usage = Usage(
            input_tokens=self.prompt,
            output_tokens=self.output,
            cached_tokens=self.read,
            cache_write_tokens=self.written + self.for_hour,
            cache_write_1h_tokens=self.for_hour,
            reasoning_tokens=self.reasoning,
        )
        return [*([tier(self.tier)] if self.tier else []), *steps, Spend(usage=usage)]


def pay_claude_sonnet_4_5(told: Told) -> float:
    """3 and 15 dollars for a million. Reads cost a tenth of the input, writes 1.25 times, those for an hour twice.

    For prompts over 200,000 tokens all input costs twice as much, and output 1.5 times. A batch costs half.
    """
    is_long = told.prompt > 200_000
    sent, received = (3 * 2, 15 * 1.5) if is_long else (3, 15)
    tokens = told.plain + told.read / 10 + told.written * 1.25 + told.for_hour * 2
    return (tokens * sent + told.output * received) / 1e6 / (2 if told.tier == "batch" else 1)


def pay_gpt_5_4(told: Told) -> float:
    """2.50 and 15 dollars for a million. What is cached costs a tenth; reasoning is output; writes cost nothing more.

    For prompts over 272,000 tokens input costs twice as much, and output 1.5 times, but not in the priority tier, which
    costs twice as much in any case. Flex and batch cost half.
    """
    is_long = told.prompt > 272_000 and told.tier != "priority"
    sent, received = (2.5 * 2, 15 * 1.5) if is_long else (2.5, 15)
    tokens = told.plain + told.read / 10 + told.written
    factor = {"flex": 0.5, "batch": 0.5, "priority": 2}.get(told.tier, 1)
    return (tokens * sent + told.output * received) / 1e6 * factor


def pay_gemini_2_5_pro(told: Told) -> float:
    """1.25 and 10 dollars for a million, 2.50 and 15 for prompts over 200,000 tokens. What is cached costs a tenth."""
    sent, received = (2.5, 15) if told.prompt > 200_000 else (1.25, 10)
    return ((told.plain + told.read / 10) * sent + told.output * received) / 1e6


def pay_own(told: Told) -> float:
    """The price that the file has for a server of its owner."""
    return (told.plain * 0.2 + told.read * 0.02 + told.written * 0.25 + told.output * 0.8) / 1e6


def price_of(provider: str, name: str) -> dict[str, Any]:
    """The price of the table."""
    price = LLM.model_validate({"provider": provider, "name": name}).effective_price
    assert price is not None
    return price.model_dump(exclude_none=True)


OWN = {"input": 0.2, "cached": 0.02, "cache_write": 0.25, "output": 0.8}
Maker = tuple[Callable[[Told], float], DialectName, dict[str, Any]]
MAKERS: dict[str, Maker] = {
    "Anthropic": (pay_claude_sonnet_4_5, "anthropic", price_of("anthropic", "claude-sonnet-4-5")),
    "OpenAI": (pay_gpt_5_4, "responses", price_of("openai", "gpt-5.4")),
    "OpenAI in chat": (pay_gpt_5_4, "chat", price_of("openai", "gpt-5.4")),
    "Gemini": (pay_gemini_2_5_pro, "chat", price_of("gemini", "gemini-2.5-pro")),
    "own server": (pay_own, "chat", OWN),
}
SITUATIONS: dict[str, Sequence[Told]] = {
    "plain": [Told()],
    "cached": [Told(read=90_000)],
    "reasoning": [Told(output=9_000, reasoning=8_000)],
    "written": [Told(read=20_000, written=30_000)],
    "for an hour": [Told(read=20_000, written=10_000, for_hour=30_000)],
    "at 200,000": [Told(plain=200_000)],
    "over 200,000 with what is cached": [Told(plain=50_000, read=150_001)],
    "at 272,000": [Told(plain=272_000)],
    "over 272,000 with what is cached": [Told(plain=72_001, read=200_000)],
    "each turn of a tool loop by itself": [Told(plain=150_000), Told(plain=160_000), Told(plain=280_000)],
    "usual tier": [Told(tier="default")],
    "standard": [Told(tier="standard")],
    "flex": [Told(read=4_000, tier="flex")],
    "priority": [Told(read=4_000, tier="priority")],
    "batch": [Told(read=4_000, tier="batch")],
    "flex and long": [Told(plain=300_000, tier="flex")],
    "priority and long": [Told(plain=300_000, tier="priority")],
    "batch and long": [Told(plain=300_000, read=4_000, tier="batch")],
    "a turn of each tier": [Told(tier="flex"), Told(tier="priority"), Told()],
}
# The tiers that a maker does not have.
_WITHOUT = {
    "Anthropic": ("default", "flex", "priority"),
    "OpenAI": ("standard",),
    "Gemini": ("default", "standard", "flex", "priority", "batch"),
    "own server": ("default", "standard", "flex", "priority", "batch"),
}


def has_situation(maker: str, turns: Sequence[Told]) -> bool:
    """Whether there can be such turns at a maker."""
    kind = maker.removesuffix(" in chat")
    if any(told.tier in _WITHOUT[kind] for told in turns):
        return False
    # An hour is Anthropic's only. OpenAI asks nothing for writes of this model, and Gemini tells none.
    return kind == "Anthropic" or not any(told.for_hour or (told.written and kind == "Gemini") for told in turns)


LOOK = call("add", a=1, b=2)
BODIES: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": "1 + 2?"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "1 + 2?"}]},
    "/v1/messages": {"messages": [{"role": "user", "content": "1 + 2?"}], "max_tokens": 1_000},
}


@pytest.mark.parametrize("maker", MAKERS)
@async_test(120)
async def test_a_response_costs_what_the_rules_of_its_maker_say_by_each_api(tmp_path: Path, maker: str) -> None:
    pay, dialect, price = MAKERS[maker]
    situations = {name: told for name, told in SITUATIONS.items() if has_situation(maker, told)}
    asked = [(path, is_streamed) for path in BODIES for is_streamed in (False, True)]
    turns: list[Turn] = []
    for *looks, last in situations.values():
        turns += [*(told.tell(LOOK) for told in looks), last.tell(say("3"))] * len(asked)

    async with (
        FaultyMCPServer() as server,
        run_gateway(
            tmp_path, ScriptedModel(*turns), mcp={"sums": server}, dialect=dialect, keys=[ALICE], price=price
        ) as gateway,
    ):
        session, total = await gateway.http_client(ALICE), 0.0
        for name, told in situations.items():
            expected = sum(map(pay, told))
            for path, is_streamed in asked:
                body = {"model": MODEL, "stream": is_streamed, **BODIES[path]}
                async with session.post(path, json=body) as answer:
                    assert answer.status == 200, await answer.text()
                    await answer.read()
                if not is_streamed:
                    said = float(answer.headers["x-holodeck-cost"])
                    assert said == pytest.approx(expected, rel=0.01), (name, path)
                total += expected
            _, runs = await gateway.send("GET", "/v1/runs?limit=2", key=ALICE)
            assert [run["cost"] for run in runs["data"]] == pytest.approx([expected] * 2, rel=0.01), name
        _, usage = await gateway.send("GET", "/v1/usage?bucket=day", key=ALICE)
    assert usage["data"][0]["cost"] == pytest.approx(total, rel=0.01)


@pytest.mark.parametrize("maker", MAKERS)
@async_test(120)
async def test_a_response_that_fails_costs_the_turns_that_were_answered(tmp_path: Path, maker: str) -> None:
    pay, dialect, price = MAKERS[maker]
    turns = [Told(read=5_000).tell(LOOK), fail(ModelError("no", status=400))]

    async with (
        FaultyMCPServer() as server,
        run_gateway(
            tmp_path,
            ScriptedModel(*turns * len(BODIES)),
            mcp={"sums": server},
            dialect=dialect,
            keys=[ALICE],
            price=price,
        ) as gateway,
    ):
        for path, body in BODIES.items():
            assert (await gateway.send("POST", path, {"model": MODEL, **body}, key=ALICE))[0] >= 400
        _, usage = await gateway.send("GET", "/v1/usage?bucket=day", key=ALICE)
    assert usage["data"][0]["cost"] == pytest.approx(pay(Told(read=5_000)) * len(BODIES), rel=0.01)


@pytest.mark.parametrize("path", BODIES)
@async_test(60)
async def test_a_stand_in_costs_its_own_price_with_its_own_tiers(tmp_path: Path, path: str) -> None:
    told = Told(read=4_000, tier="flex")
    usual, second = ScriptedModel(lambda _: status(503)), ScriptedModel(lambda _: told.tell(say("a")))
    more = {"price": price_of("openai", "gpt-5.4")}
    async with run_with_stand_in(tmp_path, usual, second, more=more, keys=[ALICE]) as (gateway, _):
        session = await gateway.http_client(ALICE)
        async with session.post(path, json={"model": MODEL, **BODIES[path]}) as answer:
            assert answer.status == 200, await answer.text()
            assert float(answer.headers["x-holodeck-cost"]) == pytest.approx(pay_gpt_5_4(told), rel=0.01)
        _, usage = await gateway.send("GET", "/v1/usage?bucket=day", key=ALICE)
    assert usage["data"][0]["cost"] == pytest.approx(pay_gpt_5_4(told), rel=0.01)


@async_test(60)
async def test_a_budget_is_charged_by_the_same_rules(tmp_path: Path) -> None:
    told = Told(plain=300_000, tier="flex")
    model = ScriptedModel(lambda _: told.tell(say("a")))
    price = price_of("openai", "gpt-5.4")
    budgets = {ALICE: {"amount": 10, "period": "month"}}
    async with run_gateway(tmp_path, model, dialect="responses", keys=[ALICE], price=price, budgets=budgets) as gateway:
        await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Hi"}, key=ALICE)
        _, budget = await gateway.send("GET", "/v1/budget", key=ALICE)
    assert budget["spent"] == pytest.approx(pay_gpt_5_4(told), rel=0.01)


@async_test(60)
async def test_a_tier_without_a_price_is_named_once_and_has_the_usual_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel(lambda _: [tier("ultrafast"), say("a"), spend(10_000, 1_000)])
    price = price_of("openai", "gpt-5.4")
    async with run_gateway(tmp_path, model, dialect="responses", keys=[ALICE], price=price) as gateway:
        for _ in range(2):
            await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Hi"}, key=ALICE)
        _, runs = await gateway.send("GET", "/v1/runs", key=ALICE)
    assert [run["cost"] for run in runs["data"]] == pytest.approx([pay_gpt_5_4(Told())] * 2, rel=0.01)
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
    # Twice the usual price of 5 and 25 dollars for this model.
    price = price_of("anthropic", "claude-opus-4-8")
    async with run_gateway(tmp_path, model, dialect="anthropic", keys=[ALICE], price=price) as gateway:
        async with asyncio.timeout(patience(30)):
            await gateway.stream("/v1/responses", {"model": MODEL, "input": "Hi", "stream": True}, key=ALICE)
        _, runs = await gateway.send("GET", "/v1/runs", key=ALICE)
    assert runs["data"][0]["cost"] == pytest.approx((10_000 * 5 + 1_000 * 25) * 2 / 1e6, rel=0.01)
