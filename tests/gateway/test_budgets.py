"""Budgets: a key that has spent its amount is refused until the period ends, on all gateways with the same storage."""

from __future__ import annotations

import asyncio
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.gateway_process import run_gateway_process, write_gateway_file
from gateway.running_gateway import MODEL, RunningGateway, gateway_config, run_gateway
from gateway.test_run_list import ALICE, BOB
from storage.postgres_server import PostgresServer

from holodeck.gateway.auth.callers import Caller, hash_key
from holodeck.gateway.limits import CallerLimits
from holodeck.gateway.usage.budgets import BudgetExceededError, Budgets, find_period
from holodeck.gateway.usage.meter import UsageMeter
from holodeck.lib.errors import ConfigError
from holodeck.models.callers import Budget
from holodeck.models.gateway import GatewayFile, GatewayLimits
from holodeck.storage.factory import open_store
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, spend, wait
from holodeck.testing.model.script import Turn

PRICE = {"input": 1.0, "output": 1.0}
MILLION = 1_000_000


KEYS: dict[str, Any] = {
    "keys": [ALICE, BOB],
    "budgets": {ALICE: {"amount": 1.5, "period": "month"}},
}


@pytest.fixture
def database_url(postgres: PostgresServer) -> str:
    return postgres.new_database()


async def ask(gateway: RunningGateway, key: str = ALICE, **more: Any) -> tuple[int, Any]:
    return await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go", **more}, key=key)


@async_test(60)
async def test_a_spent_budget_refuses_with_its_reset_and_survives_a_restart_and_a_reload(
    tmp_path: Path, storage: dict[str, Any]
) -> None:
    model = ScriptedModel(lambda _: [say("ok"), spend(MILLION, 0)])
    async with run_gateway(tmp_path, model, price=PRICE, **KEYS, **storage) as gateway:
        assert [(await ask(gateway))[0] for _ in range(3)] == [200, 200, 429]
        assert (await ask(gateway, BOB))[0] == 200
    async with run_gateway(tmp_path, model, price=PRICE, **KEYS, **storage) as gateway:
        session = await gateway.http_client(ALICE)
        for path in ("/v1/responses", "/v1/chat/completions", "/v1/responses/compact", "/v1/embeddings"):
            async with session.post(path, json={"model": MODEL}) as answer:
                error = (await answer.json())["error"]
                assert (answer.status, error["code"]) == (429, "budget_exceeded"), path
                reset = int(answer.headers["retry-after"]) + time.time()
        assert answer.headers["x-should-retry"] == "false"
        assert datetime.fromtimestamp(reset, UTC).day == 1, "a month ends where the next one begins"
        assert "budget of 1.5 for this month" in error["message"]
        assert (await gateway.send("POST", "/v1/messages", {"model": MODEL}, key=ALICE))[1]["error"]["type"]
        assert (await gateway.send("GET", "/v1/runs", key=ALICE))[0] == 200, "reading costs nothing"
        more = {"amount": 2.5, "period": "month"}
        assert await gateway.reload(keys=[{"name": ALICE, "hash": hash_key(ALICE), "budget": more}])
        assert [(await ask(gateway))[0] for _ in range(2)] == [200, 429], "what was spent stays spent"


@async_test(60)
async def test_a_long_run_ends_with_the_turn_that_spends_the_budget(tmp_path: Path, storage: dict[str, Any]) -> None:
    model = ScriptedModel(lambda _: [call("add", a=1, b=2), spend(MILLION, 0)])
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"sums": server}, price=PRICE, **KEYS, **storage) as gateway,
    ):
        code, done = await ask(gateway)
        assert (code, done["status"], done["incomplete_details"]) == (200, "incomplete", {"reason": "budget_exceeded"})
        assert [item["type"] for item in done["output"]] == ["mcp_call", "mcp_call"], "what its tools did is told"
        assert done["usage"]["input_tokens"] == 2 * MILLION
        assert len(gateway.model_requests) == 2, "it has spent 2.0 of 1.5: one turn over"
        _, page = await gateway.send("GET", "/v1/runs", key=ALICE)
        [run] = page["data"]
        assert (run["status"], run["cost"], run["turns"]) == ("incomplete", 2.0, 3)


@async_test(60)
async def test_a_budget_that_is_spent_after_tools_have_acted_ends_the_run_with_its_usage_in_each_api(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(lambda _: [call("add", a=1, b=2), spend(MILLION, 0)])
    names = [f"hd-{number}" for number in range(6)]
    budgets = {name: {"amount": 0.5, "period": "month"} for name in names}
    messages = [{"role": "user", "content": "Go"}]
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"sums": server}, price=PRICE, keys=names, budgets=budgets) as gateway,
    ):
        ends: list[dict[str, Any]] = []
        for path, body in (
            ("/v1/responses", {"input": "Go"}),
            ("/v1/chat/completions", {"messages": messages}),
            ("/v1/messages", {"messages": messages, "max_tokens": 100}),
        ):
            for is_streamed in (False, True):
                session = await gateway.http_client(names[len(ends)])
                sent = {"model": MODEL, "stream": is_streamed, **body}
                if path == "/v1/chat/completions" and is_streamed:
                    sent["stream_options"] = {"include_usage": True}
                async with session.post(path, json=sent) as answer:
                    text = await answer.text()
                    assert answer.status == 200, text
                    assert is_streamed or answer.headers["x-should-retry"] == "false"
                lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
                found = [orjson.loads(line) for line in lines] if is_streamed else [orjson.loads(text)]
                assert any('"reason":"budget_exceeded"' in line for line in lines or [text]), text
                ends.append(next(one for one in map(_ended, reversed(found)) if one))
        assert ends == [
            {"status": "incomplete", "tokens": MILLION},
            {"status": "incomplete", "tokens": MILLION},
            {"status": "length", "tokens": MILLION},
            {"tokens": MILLION},
            {"status": "max_tokens", "tokens": MILLION},
            {"status": "max_tokens", "tokens": MILLION},
        ]
        assert len(gateway.model_requests) == 6


def _ended(found: dict[str, Any]) -> dict[str, Any]:
    """The end and the input tokens of a response, a completion, a message, or of an event that has them."""
    found = found.get("response", found)
    usage = found.get("usage")
    if not usage:
        return {}
    tokens = usage.get("input_tokens", usage.get("prompt_tokens"))
    choices = found.get("choices") or [{}]
    status = found.get("status") or choices[0].get("finish_reason") or found.get("stop_reason")
    status = status or found.get("delta", {}).get("stop_reason")
    return {"status": status, "tokens": tokens} if status else {"tokens": tokens}


@async_test(60)
async def test_a_client_that_hangs_up_before_the_usage_pays_for_what_it_was_sent(tmp_path: Path) -> None:
    never = asyncio.Event()
    model = ScriptedModel(lambda _: [say("The whole answer."), wait(never)])
    apis: tuple[tuple[str, dict[str, Any]], ...] = (
        ("/v1/responses", {"input": "Go"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Go"}]}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "Go"}], "max_tokens": 100}),
    )
    names = [f"hd{path}" for path, _ in apis]
    # Less than the input, so that one turn spends it whatever it costs.
    budgets = {name: {"amount": 0.000001, "period": "month"} for name in names}
    limits = {"drain_seconds": 0, "key": {"tokens_per_minute": 1}}
    config: dict[str, Any] = {"keys": [*names, BOB], "budgets": budgets, "limits": limits}
    async with run_gateway(tmp_path, model, price=PRICE, **config) as gateway:
        for key, (path, body) in zip([*names, BOB], [*apis, apis[0]], strict=True):
            session = await gateway.http_client(key)
            async with session.post(path, json={"model": MODEL, "stream": True, **body}) as answer:
                while b"answer." not in await answer.content.readline():
                    pass
            while len(gateway.service.runs):  # noqa: ASYNC110 - it notices that the client is gone
                await asyncio.sleep(0)
            status, said = await gateway.send("POST", path, {"model": MODEL, **body}, key=key)
            assert status == 429, key
            is_budget = "budget" in said["error"]["message"]
            assert is_budget or "tokens a minute" in said["error"]["message"]
            assert is_budget is (key != BOB)
        assert len(gateway.model_requests) == 4


@async_test(60)
async def test_requests_at_once_see_what_the_others_have_reserved(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: [say("ok"), spend(MILLION, MILLION)])
    budgets = {name: {"amount": 1, "period": "month"} for name in (ALICE, BOB)}
    async with run_gateway(tmp_path, model, price=PRICE, keys=[ALICE, BOB], budgets=budgets) as gateway:
        codes = [code for code, _ in await asyncio.gather(*(ask(gateway) for _ in range(64)))]
        assert set(codes) == {200, 429}
        assert len(gateway.model_requests) == codes.count(200) <= 4, "a quarter each, while nothing is known"
        before = len(gateway.model_requests)
        asked = (ask(gateway, BOB, max_output_tokens=MILLION) for _ in range(64))
        codes = [code for code, _ in await asyncio.gather(*asked)]
        assert len(gateway.model_requests) - before == codes.count(200) == 1, "the first one reserves it all"


@async_test(60)
async def test_clients_that_hang_up_at_once_overshoot_a_budget_by_less_than_one_turn(tmp_path: Path) -> None:
    """64 streams, left in the middle of their answers: a turn is charged by an estimate before the next one begins."""
    model = ScriptedModel(lambda _: [say("x" * 4_000), wait(asyncio.Event())])
    budgets = {ALICE: {"amount": 0.0025, "period": "month"}}
    async with run_gateway(tmp_path, model, price=PRICE, keys=[ALICE], budgets=budgets) as gateway:
        session = await gateway.http_client(ALICE)

        async def leave() -> bool:
            async with session.post("/v1/responses", json={"model": MODEL, "input": "Go", "stream": True}) as answer:
                async for line in answer.content:
                    if b"xxx" in line:
                        return True
            return False

        left = await asyncio.gather(*(leave() for _ in range(64)))
        while gateway.service.configurations.current.uses.count:  # noqa: ASYNC110 - the last run stores its end
            await asyncio.sleep(0)
        _, budget = await gateway.send("GET", "/v1/budget", key=ALICE)
        assert len(gateway.model_requests) == left.count(True) == 3
        turn = budget["spent"] / 3
        assert 0.001 < turn < 0.0011
        assert budget["spent"] - budget["amount"] < turn


@async_test(120)
async def test_a_kill_under_requests_at_once_forgets_no_turn_but_those_under_way(tmp_path: Path) -> None:
    """64 requests before the kill and 64 after it, each a quarter of the budget: two turns are asked for in vain."""
    asked = 0

    def answer(_: object) -> Turn:
        nonlocal asked
        asked += 1
        return wait(asyncio.Event()) if asked in (3, 4) else [say("ok"), spend(MILLION // 4, 0)]

    async with ScriptedModel(answer).serve() as model:
        written = gateway_config(model.url, {}, [ALICE], price=PRICE)
        written["keys"][0]["budget"] = {"amount": 1, "period": "month"}
        file = write_gateway_file(tmp_path, model.url, **written)
        headers, body = {"authorization": f"Bearer {ALICE}"}, {"model": MODEL, "input": "Go"}
        async with run_gateway_process(file) as served:
            sending = [asyncio.create_task(served.send("POST", "/v1/responses", body, headers)) for _ in range(64)]
            answered = asyncio.as_completed(sending)
            assert [(await next(answered))[0] for _ in range(2)] == [200, 200]
            while len(model.received) < 4:  # noqa: ASYNC110 - another process sends the requests
                await asyncio.sleep(0.02)
            served.stop(signal.SIGKILL)
            await served.wait_exit()
            assert sum(isinstance(each, Exception) for each in await asyncio.gather(*sending, return_exceptions=True))
            assert len(model.received) == 4, "the others wait for what these four have reserved"
        async with run_gateway_process(file) as served:
            done = await asyncio.gather(*(served.send("POST", "/v1/responses", body, headers) for _ in range(64)))
            _, budget, _ = await served.send("GET", "/v1/budget", None, headers)
    assert sorted(code for code, *_ in done) == [200] * 2 + [429] * 62
    assert (budget["spent"], len(model.received)) == (1, 6)


@async_test(60)
async def test_requests_at_once_do_not_use_a_multiple_of_the_tokens_a_minute(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: [say("ok"), spend(MILLION, 0)])
    limits = {"drain_seconds": 0, "key": {"tokens_per_minute": MILLION}}
    async with run_gateway(tmp_path, model, keys=[ALICE, BOB], limits=limits) as gateway:
        answers = await asyncio.gather(*(ask(gateway) for _ in range(64)))
        codes = [code for code, _ in answers]
        assert set(codes) == {200, 429}
        assert len(gateway.model_requests) == codes.count(200) <= 4, "a quarter each, while nothing is known"
        refusals = [said["error"] for code, said in answers if code == 429]
        assert {error["code"] for error in refusals} == {"rate_limit_exceeded"}
        assert all(f"limit of {MILLION} tokens a minute" in error["message"] for error in refusals)
        before = len(gateway.model_requests)
        asked = (ask(gateway, BOB, max_output_tokens=MILLION) for _ in range(64))
        codes = [code for code, _ in await asyncio.gather(*asked)]
        assert len(gateway.model_requests) - before == codes.count(200) == 1, "the first one reserves it all"


@async_test(60)
async def test_a_run_that_has_started_goes_on_beyond_the_tokens_a_minute(tmp_path: Path) -> None:
    turns = [[call("add", a=1, b=2), spend(MILLION, 0)], [say("3"), spend(MILLION, 0)]]
    limits = {"drain_seconds": 0, "key": {"tokens_per_minute": MILLION}}
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, ScriptedModel(*turns), mcp={"sums": server}, keys=[ALICE], limits=limits) as gateway,
    ):
        assert (await ask(gateway))[1]["status"] == "completed"
        assert (await ask(gateway))[0] == 429


@async_test(60)
async def test_a_model_that_tells_no_usage_is_charged_by_an_estimate(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: [say("x" * 400), spend(0, 0)])
    budgets = {ALICE: {"amount": 0.00015, "period": "month"}}
    async with run_gateway(tmp_path, model, price=PRICE, keys=[ALICE], budgets=budgets) as gateway:
        assert [(await ask(gateway))[0] for _ in range(3)] == [200, 200, 429], "105 tokens each"


@async_test(120)
async def test_a_killed_gateway_has_stored_the_cost_of_each_turn_that_was_used(tmp_path: Path) -> None:
    turns = [[call("slow", seconds=60), spend(MILLION, 0)], [say("ok"), spend(MILLION, 0)]]
    async with FaultyMCPServer() as server, ScriptedModel(*turns).serve() as scripted:
        written = gateway_config(scripted.url, {"sums": server}, [ALICE, BOB], price=PRICE)
        for entry in written["keys"]:
            entry["budget"] = {"amount": 0.5, "period": "month"}
        file = write_gateway_file(tmp_path, scripted.url, **written | {"background": {"durable": True}})
        alice, bob = ({"authorization": f"Bearer {key}"} for key in (ALICE, BOB))
        body = {"model": MODEL, "input": "Go"}
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.send("POST", "/v1/responses", body | {"background": True}, alice)
            await server.received("tools/call")
            assert (await served.send("POST", "/v1/responses", body | {"store": False}, bob))[0] == 200
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        async with run_gateway_process(file) as served:
            assert (await served.send("POST", "/v1/responses", body, bob))[0] == 429
            found = begun
            while found["status"] in ("queued", "in_progress"):
                await asyncio.sleep(0.02)
                _, found, _ = await served.send("GET", f"/v1/responses/{begun['id']}", None, alice)
    assert (found["status"], found["incomplete_details"]) == ("incomplete", {"reason": "budget_exceeded"})
    assert found["output"][0]["type"] == "mcp_call"
    assert found["usage"]["input_tokens"] == MILLION
    assert len(scripted.received) == 2


@async_test(60)
async def test_the_gateways_of_one_database_share_a_budget(tmp_path: Path, database_url: str) -> None:
    model = ScriptedModel(lambda _: [say("ok"), spend(MILLION, 0)])
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    shared: dict[str, Any] = {
        "storage": {"url": "${DATABASE_URL}"},
        "seal_key": ["${SEAL_KEY}"],
        "environ": {"DATABASE_URL": database_url, "SEAL_KEY": "k" * 64},
    }
    async with (
        run_gateway(first, model, price=PRICE, **KEYS, **shared) as one,
        run_gateway(second, model, price=PRICE, **KEYS, **shared) as other,
    ):
        assert (await ask(one))[0] == 200
        assert (await ask(other))[0] == 200
        await one.service.meter.flush()
        await other.service.meter.flush()
        # A gateway knows of the other's turns once it reads again, which it does after a second at most.
        while (code := (await ask(one))[0]) == 200:
            pass
        assert code == 429
        rows = (await other.send("GET", "/v1/usage?bucket=day", key=ALICE))[1]["data"]
    assert sum(row["requests"] for row in rows) >= 2


@async_test(60)
async def test_a_budget_needs_prices(tmp_path: Path) -> None:
    one: dict[str, Any] = {"budgets": {ALICE: {"amount": 1, "period": "week"}}}
    for scopes in ({}, {ALICE: {"models": ["de*"]}}, {ALICE: {"models": ["!other"]}}):
        with pytest.raises(ConfigError) as refused:
            async with run_gateway(tmp_path, ScriptedModel(), keys=[ALICE], scopes=scopes, **one):
                pass
        assert "keys[0].budget" in str(refused.value)
        assert f"'{MODEL}' has none" in str(refused.value)
    with pytest.raises(ConfigError) as refused:
        async with run_gateway(tmp_path, limits={"key_budget": {"amount": 1, "period": "day"}}):
            pass
    assert "limits.key_budget" in str(refused.value)
    async with run_gateway(tmp_path, ScriptedModel(), scopes={ALICE: {"models": []}}, **one):
        pass


@async_test(60)
async def test_callers_without_a_budget_of_their_own_have_that_of_all(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: [say("ok"), spend(MILLION, 0)])
    limits = {"drain_seconds": 0, "key_budget": {"amount": 0.5, "period": "hour"}}
    async with run_gateway(tmp_path, model, price=PRICE, limits=limits) as gateway:
        assert [(await ask(gateway))[0] for _ in range(2)] == [200, 429]


@async_test(60)
async def test_what_was_spent_in_hours_that_are_over_is_read_from_storage(tmp_path: Path) -> None:
    now = datetime(2026, 12, 31, 12, 59, tzinfo=UTC).timestamp()
    store = open_store("sqlite:///usage.db", folder=tmp_path)
    try:
        meter = UsageMeter(store.usage, is_known_server=lambda name: True, clock=lambda: now)
        gateway = GatewayFile(limits=GatewayLimits(key_budget=Budget(amount=2.5, period="day")))
        limits = CallerLimits(gateway.limits.key, gateway.limits.in_flight)
        budgets = Budgets(store.usage, meter, gateway, limits, clock=lambda: now)
        first = meter.spent_since
        for _ in range(3):
            await budgets.check(Caller(id="local"))
            meter.spend("local", 1.0)
            await meter.store_spending()
            now += 3_600
        assert meter.spent_since > first, "only the hour of now is in memory"
        assert meter.sum_spent("local", first) == 1.0
        with pytest.raises(BudgetExceededError):
            await budgets.check(Caller(id="local"))
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("period", "start", "end"),
    [
        ("hour", "2026-12-31T23:00", "2027-01-01T00:00"),
        ("day", "2026-12-31T00:00", "2027-01-01T00:00"),
        ("week", "2026-12-28T00:00", "2027-01-04T00:00"),
        ("month", "2026-12-01T00:00", "2027-01-01T00:00"),
    ],
)
def test_periods_follow_the_calendar(period: Any, start: str, end: str) -> None:
    now = datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
    found = find_period(Budget(amount=1.0, period=period), now)
    assert found.start == datetime.fromisoformat(f"{start}+00:00").timestamp()
    assert found.end == datetime.fromisoformat(f"{end}+00:00").timestamp()
