"""Budgets: a key that has spent its amount is refused until the period ends, on all gateways with the same storage."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from gateway.test_run_list import ALICE, BOB
from storage.postgres_server import PostgresServer

from holodeck.gateway.auth.callers import hash_key
from holodeck.gateway.usage.budgets import find_period
from holodeck.lib.errors import ConfigError
from holodeck.models.callers import Budget
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, spend

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
        code, refused = await ask(gateway)
        assert (code, refused["error"]["code"]) == (429, "budget_exceeded")
        assert len(gateway.model_requests) == 2, "it has spent 2.0 of 1.5: one turn over"
        _, page = await gateway.send("GET", "/v1/runs", key=ALICE)
        [run] = page["data"]
        assert (run["status"], run["cost"], run["turns"]) == ("failed", 2.0, 3)
        assert "budget of 1.5 for this month" in run["error"]["message"]
        assert run["error"]["code"] == "rate_limit_exceeded", "of OpenAI's codes it is the nearest"


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
