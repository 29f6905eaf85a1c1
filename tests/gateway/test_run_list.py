"""`/v1/runs`: a caller finds its own responses as runs, an operator those of all callers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, spend, wait
from holodeck.testing.model.script import status

ALICE, BOB, ROOT, SCOPED_ROOT = "hd-alice", "hd-bob", "hd-root", "hd-scoped-root"
PRICE = {"input": 2.0, "cached": 0.5, "output": 10.0}


async def ask(gateway: RunningGateway, question: str, *, key: str = ALICE, **more: Any) -> Any:
    body = {"model": MODEL, "input": question, **more}
    return (await gateway.send("POST", "/v1/responses", body, key=key))[1]


async def list_runs(gateway: RunningGateway, query: str = "", *, key: str = ALICE) -> Any:
    code, page = await gateway.send("GET", f"/v1/runs{query}", key=key)
    assert code == 200, page
    return page


async def find_questions(gateway: RunningGateway, query: str, *, key: str = ALICE) -> list[str]:
    return [run["question"] for run in (await list_runs(gateway, query, key=key))["data"]]


@async_test(60)
async def test_a_run_says_what_was_asked_what_it_took_and_what_it_cost(tmp_path: Path, storage: dict[str, Any]) -> None:
    model = ScriptedModel(
        [call("add", a=1, b=2), spend(1_000, 100, cached=400, cache_write=300)],
        [say("Three."), spend(2_000, 200, reasoning=50)],
    )
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"sums": server}, keys=[ALICE], price=PRICE, **storage) as gateway,
    ):
        response = await ask(gateway, "What is the sum?")
        page = await list_runs(gateway)
        _, one = await gateway.send("GET", f"/v1/runs/{response['id']}", key=ALICE)
    [run] = page["data"]
    assert one == run
    assert (run["id"], run["object"], run["caller"]) == (response["id"], "run", f"key:{ALICE}")
    assert (run["model"], run["status"], run["background"]) == (MODEL, "completed", False)
    assert (run["turns"], run["tool_calls"], run["tools"], run["servers"]) == (2, 1, ["add"], ["sums"])
    assert run["usage"] == {
        "input_tokens": 3_000,
        "output_tokens": 300,
        "cached_tokens": 400,
        "cache_write_tokens": 300,
        "reasoning_tokens": 50,
        "estimated_tokens": 0,
        "total_tokens": 3_300,
    }
    assert run["cost"] == pytest.approx((2_600 * 2.0 + 400 * 0.5 + 300 * 10.0) / 1_000_000)
    assert (run["question"], run["answer"], run["error"]) == ("What is the sum?", "Three.", None)
    assert int(run["created_at"]) == response["created_at"]
    assert 0 < run["first_token_seconds"] <= run["seconds"]
    assert run["completed_at"] >= run["created_at"]
    assert "cost" not in response
    assert "cost" not in response["usage"], "the API of responses stays OpenAI's"


@async_test(60)
async def test_callers_see_their_own_runs_and_operators_all(tmp_path: Path, storage: dict[str, Any]) -> None:
    scopes = {SCOPED_ROOT: {"models": [MODEL]}}
    model = ScriptedModel(lambda _: say("ok"))
    async with run_gateway(
        tmp_path, model, keys=[ALICE, BOB], admins=[ROOT, SCOPED_ROOT], scopes=scopes, **storage
    ) as gateway:
        for key in (ALICE, BOB, SCOPED_ROOT):
            await ask(gateway, f"from {key}", key=key)
        assert await find_questions(gateway, "", key=ALICE) == [f"from {ALICE}"]
        assert await find_questions(gateway, "", key=BOB) == [f"from {BOB}"]
        assert len(await find_questions(gateway, "", key=ROOT)) == 3
        assert await find_questions(gateway, f"?caller=key:{BOB}", key=ROOT) == [f"from {BOB}"]
        assert await find_questions(gateway, f"?caller={BOB}", key=ROOT) == [f"from {BOB}"]
        assert await find_questions(gateway, f"?caller={ALICE}", key=ALICE) == [f"from {ALICE}"]
        assert await find_questions(gateway, "", key=SCOPED_ROOT) == [f"from {SCOPED_ROOT}"]
        for named in (f"key:{BOB}", BOB, "local", f"jwt:{ALICE}"):
            code, refused = await gateway.send("GET", f"/v1/runs?caller={named}", key=ALICE)
            assert (code, refused["error"]["code"]) == (403, "forbidden")
        bobs = (await list_runs(gateway, key=BOB))["data"][0]["id"]
        assert (await gateway.send("GET", f"/v1/runs/{bobs}/trace", key=ROOT))[0] == 200
        assert (await gateway.send("GET", f"/v1/runs/{bobs}/trace", key=ALICE))[0] == 404
        assert (await gateway.send("GET", f"/v1/runs/{bobs}", key=SCOPED_ROOT))[0] == 404
        assert (await gateway.send("GET", f"/v1/runs?after={bobs}", key=ALICE))[0] == 400


@async_test(60)
async def test_local_is_the_caller_of_a_gateway_without_keys_and_no_key_of_that_name(tmp_path: Path) -> None:
    storage: dict[str, Any] = {"storage": {"url": "sqlite:///kept.db"}}
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("ok")), **storage) as gateway:
        await ask(gateway, "without keys")
        assert await find_questions(gateway, "?caller=local") == ["without keys"]
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("ok")), admins=["local"], **storage) as gateway:
        await ask(gateway, "with a key", key="local")
        assert await find_questions(gateway, "?caller=local", key="local") == ["without keys"]
        assert await find_questions(gateway, "?caller=key:local", key="local") == ["with a key"]


@async_test(60)
async def test_pages_of_runs_have_every_run_once_and_newest_first(tmp_path: Path, storage: dict[str, Any]) -> None:
    model = ScriptedModel(lambda _: say("ok"))
    async with run_gateway(tmp_path, model, keys=[ALICE, BOB], **storage) as gateway:
        for number in range(7):
            await ask(gateway, f"question {number}")
            await ask(gateway, "another caller's", key=BOB)
        found: list[str] = []
        query = "?limit=3"
        while query:
            page = await list_runs(gateway, query)
            found += [run["question"] for run in page["data"]]
            query = f"?limit=3&after={page['last_id']}" if page["has_more"] else ""
    assert found == [f"question {number}" for number in reversed(range(7))]


@async_test(60)
async def test_runs_are_found_by_what_they_have(tmp_path: Path, storage: dict[str, Any]) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("Three apples."), say("PLAIN pears"), status(404))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"sums": server}, keys=[ALICE], **storage) as gateway,
    ):
        for question in ("with a tool", "100% without", "that fails"):
            await ask(gateway, question)
        runs = (await list_runs(gateway))["data"]
        assert [run["status"] for run in runs] == ["failed", "completed", "completed"]
        assert runs[0]["error"]["code"] == "server_error"
        for query, expected in {
            "?status=failed": ["that fails"],
            "?status=completed": ["100% without", "with a tool"],
            "?tool=add": ["with a tool"],
            "?tool=ad": [],
            "?server=sums": ["with a tool"],
            f"?model={MODEL}&limit=1": ["that fails"],
            "?model=other": [],
            "?text=plain": ["100% without"],
            "?text=100%25": ["100% without"],
            "?text=APPLES&tool=add": ["with a tool"],
            f"?created_before={runs[1]['created_at']}": ["with a tool"],
            f"?created_after={runs[0]['created_at']}": ["that fails"],
        }.items():
            assert await find_questions(gateway, query) == expected, query
        assert (await gateway.send("GET", "/v1/runs?created_after=yesterday", key=ALICE))[0] == 400


@async_test(60)
async def test_a_search_looks_at_so_many_runs_and_says_where_it_goes_on(
    tmp_path: Path, storage: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holodeck.storage.runs.SEARCHED_RUNS", 3)
    model = ScriptedModel(lambda _: say("ok"))
    async with run_gateway(tmp_path, model, keys=[ALICE], **storage) as gateway:
        for question in ("needle", "hay 1", "hay 2", "hay 3", "hay 4"):
            await ask(gateway, question)
        first = await list_runs(gateway, "?text=needle")
        assert (first["data"], first["has_more"]) == ([], True)
        second = await list_runs(gateway, f"?text=needle&after={first['last_id']}")
    assert ([run["question"] for run in second["data"]], second["has_more"]) == (["needle"], False)


@async_test(60)
async def test_running_responses_are_listed_and_traced_as_far_as_they_have_come(
    tmp_path: Path, storage: dict[str, Any]
) -> None:
    go_on = asyncio.Event()
    model = ScriptedModel(call("add", a=1, b=2), [wait(go_on), say("Three.")], say("later"))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"sums": server}, keys=[ALICE, BOB], **storage) as gateway,
    ):
        asked = asyncio.create_task(ask(gateway, "slowly"))
        while len(gateway.model_requests) < 2:  # noqa: ASYNC110 - the model counts
            await asyncio.sleep(0.01)
        [running] = (await list_runs(gateway, "?status=in_progress"))["data"]
        assert (running["question"], running["completed_at"], running["turns"]) == ("slowly", None, 2)
        assert (await list_runs(gateway, key=BOB))["data"] == []
        _, trace = await gateway.send("GET", f"/v1/runs/{running['id']}/trace", key=ALICE)
        assert [(span["kind"], span["status"]) for span in trace["spans"]] == [
            *(("run", "running"), ("turn", "ok"), ("model", "ok"), ("tool", "ok")),
            *(("turn", "running"), ("model", "running")),
        ]
        assert trace["spans"][3]["output"] == "3"
        go_on.set()
        response = await asked
        [finished] = (await list_runs(gateway))["data"]
    assert (finished["id"], finished["status"]) == (running["id"], "completed")
    assert response["id"] == finished["id"]
    assert finished["created_at"] == running["created_at"]


@async_test(60)
async def test_a_deleted_response_is_no_run_and_one_that_is_not_stored_never_was(
    tmp_path: Path, storage: dict[str, Any]
) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("ok")), keys=[ALICE], **storage) as gateway:
        await ask(gateway, "not stored", store=False)
        response = await ask(gateway, "deleted")
        assert await find_questions(gateway, "") == ["deleted"]
        await gateway.send("DELETE", f"/v1/responses/{response['id']}", key=ALICE)
        assert await find_questions(gateway, "") == []
        assert (await gateway.send("GET", f"/v1/runs/{response['id']}", key=ALICE))[0] == 404
