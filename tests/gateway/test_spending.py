"""What callers and operators see of cost: what is spent and left, when that is reset, and an alert before the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway
from gateway.test_run_list import ALICE, BOB
from providers.model_exchange import run_with_timeout

from holodeck.gateway.auth.callers import hash_key
from holodeck.lib.errors import ModelError
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, fail, say, spend, wait
from holodeck.testing.model.scripted import DialectName

OPS = "hd-operator"
MILLION = 1_000_000
KEYS: dict[str, Any] = {
    "keys": [ALICE, BOB, OPS],
    "admins": [OPS],
    "budgets": {ALICE: {"amount": 10, "period": "month"}},
    "price": {"input": 4.0, "cached": 0.4, "cache_write": 5.0, "output": 20.0},
}
# One million of each kind of input at its price, and a tenth of a million of output.
COST = 4.0 - 0.7 * 4 + 0.5 * 0.4 + 0.2 * 5 + 0.1 * 20


@async_test(60)
async def test_spending_is_shown_to_its_caller_and_to_operators(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    turn = [say("ok"), spend(MILLION, MILLION // 10, cached=MILLION // 2, cache_write=MILLION // 5)]
    async with run_gateway(tmp_path, ScriptedModel(lambda _: turn), **KEYS) as gateway:
        session = await gateway.http_client(ALICE)
        asked = {"role": "user", "content": "Go"}
        for path, body in (
            ("/v1/responses", {"input": "Go"}),
            ("/v1/chat/completions", {"messages": [asked]}),
        ):
            async with session.post(path, json={"model": MODEL, **body}) as answer:
                assert float(answer.headers["x-holodeck-cost"]) == pytest.approx(COST, rel=0.001)
                assert "x-ratelimit-limit-requests" not in answer.headers
        _, mine = await gateway.send("GET", "/v1/budget", key=ALICE)
        assert (mine["amount"], mine["period"]) == (10, "month")
        assert mine["spent"] == pytest.approx(2 * COST)
        assert mine["left"] == pytest.approx(10 - 2 * COST)
        assert time.time() < mine["resets_at"] < time.time() + 32 * 86_400
        _, other = await gateway.send("GET", "/v1/budget", key=BOB)
        assert other == {"object": "budget"} | dict.fromkeys(
            ("amount", "period", "spent", "left", "resets_at", "group")
        )
        _, listed = await gateway.send("GET", "/v1/keys", key=OPS)
        spending = {key["name"]: key["spending"] for key in listed["data"]}
        assert spending == {ALICE: {name: mine[name] for name in ("spent", "left", "resets_at")}, BOB: None, OPS: None}
        alerts = [record for record in caplog.records if "budget.nearly_spent" in record.getMessage()]
        assert len(alerts) == 1, "at 80 % there is one alert"
        async with session.post("/v1/responses", json={"model": MODEL, "input": "Go"}):
            pass
        metrics = (await gateway.send("GET", "/metrics", key=OPS))[1].decode()
        assert "holodeck_budget_alerts_total 1.0" in metrics
        assert len([record for record in caplog.records if "budget.nearly_spent" in record.getMessage()]) == 1


@async_test(60)
async def test_a_limit_by_the_minute_is_in_the_headers_of_answers(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: [say("ok"), spend(60, 40)])
    limits = {"key": {"requests_per_minute": 5, "tokens_per_minute": 1_000}}
    async with run_gateway(tmp_path, model, keys=[ALICE], limits=limits) as gateway:
        session = await gateway.http_client(ALICE)
        for number in (1, 2):
            async with session.post("/v1/responses", json={"model": MODEL, "input": "Go"}) as answer:
                found = {name: value for name, value in answer.headers.items() if name.startswith("x-ratelimit")}
            seconds = {int(found.pop(f"x-ratelimit-reset-{what}").removesuffix("s")) for what in ("requests", "tokens")}
            assert all(0 < each <= 60 for each in seconds)
            assert found == {
                "x-ratelimit-limit-requests": "5",
                "x-ratelimit-remaining-requests": str(5 - number),
                "x-ratelimit-limit-tokens": "1000",
                "x-ratelimit-remaining-tokens": str(1_000 - 100 * number),
            }
            assert "x-holodeck-cost" not in answer.headers, "the price is not known"


@async_test(60)
async def test_a_model_without_a_price_is_named_once_in_the_log_and_never_counted_as_free(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel(lambda _: [say("ok"), spend(MILLION, 0)])
    caplog.set_level("INFO")
    async with run_gateway(tmp_path, model, keys=[ALICE], admins=[OPS]) as gateway:
        session = await gateway.http_client(ALICE)
        for _ in range(3):
            async with session.post("/v1/responses", json={"model": MODEL, "input": "Go"}) as answer:
                assert (answer.status, "x-holodeck-cost" in answer.headers) == (200, False)
        _, runs = await gateway.send("GET", "/v1/runs", key=ALICE)
        assert [run["cost"] for run in runs["data"]] == [None] * 3
        _, usage = await gateway.send("GET", "/v1/usage?bucket=day", key=ALICE)
        assert [row["cost"] for row in usage["data"]] == [None]
        budget = {"amount": 1, "period": "day"}
        code, said = await gateway.send("POST", "/v1/keys", {"name": "carol", "budget": budget}, key=OPS)
        assert (code, f"'{MODEL}' has none" in said["error"]["message"]) == (400, True), said
        named = [text for record in caplog.records if "gateway.price_unknown" in (text := record.getMessage())]
        assert [MODEL in text for text in named] == [True], "once, when the file is read"

        models = orjson.loads(gateway.file.read_bytes())["models"]
        models[0]["model"] |= {"price": {"input": 1, "output": 1}, "fallback": [models[0]["model"] | {"name": "other"}]}
        assert await gateway.reload(models=models)
        named = [text for record in caplog.records if "gateway.price_unknown" in (text := record.getMessage())]
        assert "models=other " in named[-1], "a stand-in may answer, too"
        key = {"name": BOB, "hash": hash_key(BOB), "budget": budget}
        assert not await gateway.reload(keys=[key])


LEFT: Mapping[str, tuple[DialectName, str]] = {
    f"{dialect} by {path}": (dialect, path)
    for dialect in ("chat", "responses", "anthropic")
    for path in ("/v1/responses", "/v1/chat/completions", "/v1/messages")
}


@pytest.mark.parametrize("has_budget", [False, True])
@pytest.mark.parametrize("name", LEFT)
def test_an_answer_that_is_left_is_paid_by_every_caller_and_shown_as_an_estimate(
    tmp_path: Path, name: str, has_budget: bool
) -> None:
    """Its input as the provider has told it, which only Anthropic does, and the output that came."""
    dialect, path = LEFT[name]

    async def leave() -> list[Any]:
        never = asyncio.Event()
        told = spend(MILLION, 0, cached=MILLION // 2, cache_write=MILLION // 5)
        model = ScriptedModel(lambda _: [told, say("x" * 4_000), wait(never)])
        config = KEYS | {"budgets": KEYS["budgets"] if has_budget else None}
        async with run_gateway(tmp_path, model, dialect=dialect, **config) as gateway:
            session, asked = await gateway.http_client(ALICE), [{"role": "user", "content": "Go" * 2_000}]
            body = {"input" if path == "/v1/responses" else "messages": asked, "model": MODEL, "stream": True}
            more = {"max_tokens": 9_000} if path == "/v1/messages" else {}
            async with session.post(path, json=body | more) as answer:
                while b"xxx" not in await answer.content.readline():
                    pass
            # The gateway ends the request at the model, which is the only one.
            await gateway.model.left.wait()
            while gateway.service.configurations.current.uses.count:  # noqa: ASYNC110 - the run stores its end
                await asyncio.sleep(0)
            _, budget = await gateway.send("GET", "/v1/budget", key=ALICE)
            _, usage = await gateway.send("GET", "/v1/usage?bucket=day&group_by=status", key=ALICE)
            _, runs = await gateway.send("GET", "/v1/runs", key=ALICE)
            metrics = (await gateway.send("GET", "/metrics", key=OPS))[1].decode()
            return [budget["spent"], usage["data"], runs["data"], metrics]

    spent, usage, runs, metrics = run_with_timeout(leave())
    # A token is counted for four characters, and some for the message.
    sent, received = (MILLION, 1_000) if dialect == "anthropic" else (1_004, 1_000)
    cost = COST - 0.1 * 20 if dialect == "anthropic" else sent * 4 / MILLION
    cost += received * 20 / MILLION
    # Anthropic tells the first token of its answer as well.
    estimated = received - 1 if dialect == "anthropic" else sent + received
    assert [row["status"] for row in usage] == ["cancelled"]
    assert (usage[0]["input_tokens"], usage[0]["output_tokens"]) == (sent, received)
    assert usage[0]["estimated_tokens"] == estimated
    assert usage[0]["cost"] == pytest.approx(cost, rel=0.001)
    assert f'holodeck_estimated_tokens_total{{model="{MODEL}"}} {estimated}.0' in metrics
    if has_budget:
        assert spent == pytest.approx(cost, rel=0.001)
    if path == "/v1/responses":
        assert [run["usage"]["estimated_tokens"] for run in runs] == [estimated]
        assert [run["cost"] for run in runs] == pytest.approx([cost], rel=0.001)


@async_test(60)
async def test_a_request_that_never_reached_the_model_is_not_paid(tmp_path: Path) -> None:
    """The client leaves while its turn waits for another one to end, since both may use up its budget."""
    first, never = wait(asyncio.Event()), asyncio.Event()
    model = ScriptedModel([first, say("ok"), spend(10, 10)], wait(never))
    config = KEYS | {"budgets": {ALICE: {"amount": 0.001, "period": "month"}}}
    async with run_gateway(tmp_path, model, **config) as gateway:
        session = await gateway.http_client(ALICE)
        body = {"model": MODEL, "input": "Go"}
        begun = asyncio.create_task(session.post("/v1/responses", json=body))
        await first.reached.wait()
        waiting = asyncio.create_task(session.post("/v1/responses", json=body))
        while len(gateway.service.runs) < 2:  # noqa: ASYNC110 - it has come
            await asyncio.sleep(0)
        waiting.cancel()
        while len(gateway.service.runs) > 1:  # noqa: ASYNC110 - it is gone
            await asyncio.sleep(0)
        first.until.set()
        (await begun).close()
        _, usage = await gateway.send("GET", "/v1/usage?bucket=day&group_by=status", key=ALICE)
    assert {row["status"]: row["input_tokens"] for row in usage["data"]} == {"cancelled": 0, "completed": 10}


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
def test_a_run_costs_what_its_turns_do_in_each_dialect_with_tools_and_failed(
    tmp_path: Path, dialect: DialectName
) -> None:
    told = spend(MILLION, MILLION // 10, cached=MILLION // 2, cache_write=MILLION // 5)
    looks = [call("add", a=1, b=2), told]

    async def ask() -> tuple[list[float], list[float]]:
        model = ScriptedModel(looks, [say("3"), told], looks, fail(ModelError("no", status=400)))
        async with (
            FaultyMCPServer() as server,
            run_gateway(
                tmp_path, model, mcp={"sums": server}, dialect=dialect, keys=[ALICE], price=KEYS["price"]
            ) as gateway,
        ):
            for _ in range(2):
                await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "1 + 2?"}, key=ALICE)
            _, runs = await gateway.send("GET", "/v1/runs", key=ALICE)
            _, usage = await gateway.send("GET", "/v1/usage?bucket=day&group_by=status", key=ALICE)
        return [run["cost"] for run in reversed(runs["data"])], [row["cost"] for row in usage["data"]]

    found, counted = run_with_timeout(ask())
    assert found == pytest.approx([2 * COST, COST], rel=0.01)
    assert sorted(counted) == pytest.approx([COST, 2 * COST], rel=0.01)
