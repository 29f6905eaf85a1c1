"""Queued background responses: how many a caller may have, and which one runs next when a slot is free."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from durable.crash_cases import wait_model_requests
from gateway.gateway_process import GatewayProcess, run_gateway_process, write_gateway_file
from openai import AsyncOpenAI, RateLimitError
from storage.postgres_server import PostgresServer

from holodeck.gateway.auth.callers import hash_key
from holodeck.testing import ScriptedModel, say, wait

SECONDS = 90.0
ALICE, BOB, CAROL = "hd-alice", "hd-bob", "hd-carol"
MOST = 3


def keys(**limits: dict[str, int]) -> list[dict[str, Any]]:
    """All three callers, as a file has them; `limits` are those of their own, by their names."""
    known = {"alice": ALICE, "bob": BOB, "carol": CAROL}
    own = {name: {"limits": limits[name]} for name in limits}
    return [{"name": name, "hash": hash_key(key), **own.get(name, {})} for name, key in known.items()]


def waiting_model(gate: asyncio.Event) -> ScriptedModel:
    """A model that answers nothing before the gate is open."""
    return ScriptedModel(lambda received: [wait(gate), say("done")])


async def send(served: GatewayProcess, key: str, method: str, path: str, body: Any = None) -> tuple[int, Any, Any]:
    return await served.send(method, path, body, {"authorization": f"Bearer {key}"})


async def queue(served: GatewayProcess, key: str, text: str = "hi") -> tuple[int, Any, Any]:
    """Request a background response."""
    return await send(served, key, "POST", "/v1/responses", {"model": "demo", "input": text, "background": True})


async def done(served: GatewayProcess, key: str, response_id: str) -> None:
    """Wait until a response is completed."""
    while (await send(served, key, "GET", f"/v1/responses/{response_id}"))[1]["status"] != "completed":  # noqa: ASYNC110 - another process runs it
        await asyncio.sleep(0.02)


def count_stored(folder: Path) -> int:
    """How many responses are stored."""
    database = sqlite3.connect(next(folder.glob("**/*.db")))
    try:
        return int(database.execute("SELECT COUNT(*) FROM responses").fetchone()[0])
    finally:
        database.close()


@pytest.mark.proves("D-29", "D-32")
@async_test(SECONDS)
async def test_the_quota_of_background_responses_of_a_caller_also_holds_after_a_restart(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with waiting_model(gate).serve() as model:
        background = {"durable": True, "at_once": 1}
        file = write_gateway_file(tmp_path, model.url, keys=keys(bob={"background": 1}), background=background)
        environ = {"HOLODECK_LIMITS__KEY__BACKGROUND": f"{MOST}"}
        async with run_gateway_process(file, environ=environ) as served:
            asking = [await queue(served, ALICE) for _ in range(MOST)]
            assert [status for status, _, _ in asking] == [200] * MOST
            made = [answer["id"] for _, answer, _ in asking]
            status, refused, headers = await queue(served, ALICE)
            assert (status, refused["error"]["code"]) == (429, "rate_limit_exceeded")
            assert f"{MOST} background responses" in refused["error"]["message"]
            assert "cancel" in refused["error"]["message"]
            assert int(headers["retry-after"]) >= 1
            assert count_stored(tmp_path) == MOST
            # Others are not in its way, each with limits of its own; nor is it in its own, for what it waits for.
            assert [(await queue(served, BOB))[0] for _ in range(2)] == [200, 429]
            async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key=ALICE, max_retries=0) as client:
                with pytest.raises(RateLimitError, match="background responses"):
                    await client.responses.create(model="demo", input="hi", background=True, stream=True)
            # A finished response frees its slot, however it ended.
            await send(served, ALICE, "POST", f"/v1/responses/{made[1]}/cancel")
            assert [(await queue(served, ALICE))[0] for _ in range(2)] == [200, 429]
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        async with run_gateway_process(file, environ=environ) as served:
            assert (await queue(served, ALICE))[0] == 429
            gate.set()
            await done(served, ALICE, made[0])
            await done(served, ALICE, made[2])
            assert (await queue(served, ALICE))[0] == 200


@pytest.mark.proves("D-28", "D-29", "D-32")
@async_test(SECONDS)
async def test_gateways_that_share_a_database_count_together(tmp_path: Path, postgres: PostgresServer) -> None:
    url, gate = await asyncio.to_thread(postgres.new_database), asyncio.Event()
    async with waiting_model(gate).serve() as model:
        file = write_gateway_file(
            tmp_path,
            model.url,
            keys=keys(),
            storage={"url": "${DATABASE_URL}"},
            background={"durable": True, "at_once": 1},
            limits={"key": {"background": MOST}, "drain_seconds": 0},
        )
        environ = {"DATABASE_URL": url}
        async with (
            run_gateway_process(file, environ=environ) as first,
            run_gateway_process(file, environ=environ) as second,
        ):
            asking = [queue(each, key) for _ in range(MOST * 2) for each in (first, second) for key in (ALICE, BOB)]
            answers = await asyncio.gather(*asking)
            assert sorted(status for status, _, _ in answers) == [200] * 2 * MOST + [429] * 6 * MOST
            mine = [answer["id"] for status, answer, _ in answers[::2] if status == 200]
            assert len(mine) == MOST
            gate.set()
            for response_id in mine:
                await done(first, ALICE, response_id)
            assert (await queue(second, ALICE))[0] == 200


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_callers_take_turns_when_a_slot_is_free(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with waiting_model(gate).serve() as model:
        file = write_gateway_file(tmp_path, model.url, keys=keys(), background={"durable": True, "at_once": 1})
        async with run_gateway_process(file) as served:
            mine = [(await queue(served, ALICE, f"alice {number}"))[1]["id"] for number in range(5)]
            await wait_model_requests(model, 1)
            theirs = [(BOB, (await queue(served, BOB, f"bob {number}"))[1]["id"]) for number in range(2)]
            theirs.append((CAROL, (await queue(served, CAROL, "carol 0"))[1]["id"]))
            gate.set()
            for key, response_id in [*((ALICE, each) for each in mine), *theirs]:
                await done(served, key, response_id)
            order = [received.json["messages"][0]["content"] for received in model.received]
            assert order[0] == "alice 0"
            assert {"bob 0", "carol 0"} <= set(order[:4])
            assert order.index("bob 1") < order.index("alice 3")
            assert [text for text in order if text.startswith("alice")] == [f"alice {number}" for number in range(5)]


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_a_caller_that_keeps_submitting_does_not_overtake_callers_in_the_queue(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with waiting_model(gate).serve() as model:
        file = write_gateway_file(tmp_path, model.url, keys=keys(), background={"durable": True, "at_once": 1})
        async with run_gateway_process(file) as served:
            last = (await queue(served, ALICE, "alice 0"))[1]["id"]
            await wait_model_requests(model, 1)
            waiting = (await queue(served, BOB, "bob"))[1]["id"]
            gate.set()
            for number in range(1, 4):
                await done(served, ALICE, last)
                last = (await queue(served, ALICE, f"alice {number}"))[1]["id"]
            await done(served, BOB, waiting)
            order = [received.json["messages"][0]["content"] for received in model.received]
            assert order[:2] == ["alice 0", "bob"]
