"""`max_concurrent_calls` in a gateway: concurrent calls of all callers to one server, and the order of the queue."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.personal_server import PersonalServer
from gateway.running_gateway import ANY_KEY, MODEL, RunningGateway, run_gateway

from holodeck.testing import ScriptedModel, call, say

ALICE, BOB, OPERATOR = "hd-alice", "hd-bob", "tok-operator"
TOKENS = {ALICE: "tok-alice", BOB: "tok-bob"}
PEOPLE = {"Bearer tok-alice": "alice", "Bearer tok-bob": "bob", f"Bearer {OPERATOR}": "operator"}


def _model() -> ScriptedModel:
    return ScriptedModel(lambda got: say("Done.") if got.json["messages"][-1]["role"] == "tool" else call("whoami"))


def _entry(server: PersonalServer, **more: Any) -> dict[str, Any]:
    headers = {"Authorization": "${TOKEN}"}
    entry = {"name": "work", "type": "mcp", "description": "w", "transport": "http", "url": server.url}
    return {**entry, "headers": headers, "caller_authorization": True, "max_concurrent_calls": 1, **more}


def _run_gateway(folder: Path, server: PersonalServer, **more: Any) -> Any:
    environ = {"TOKEN": f"Bearer {OPERATOR}"}
    entry = _entry(server, **more)
    return run_gateway(folder, _model(), mcp_servers=[entry], keys=[BOB], admins=[ALICE], environ=environ)


def _ask(gateway: RunningGateway, key: str, *, is_own: bool = True) -> asyncio.Task[tuple[int, Any]]:
    own = {"authorization": TOKENS[key]} if is_own else {}
    tool = {"type": "mcp", "server_label": "work", "require_approval": "never", **own}
    body = {"model": MODEL, "input": "Go", "tools": [tool]}
    return asyncio.create_task(gateway.send("POST", "/v1/responses", body, key=key))


async def _wait_waiting(gateway: RunningGateway, times: int, key: str = ALICE) -> None:
    """Wait until the calls of `times` responses wait for the server: a response is stored before its first call."""
    is_stored = False
    while not is_stored:
        _, listed = await gateway.send("GET", "/v1/runs?status=in_progress", key=key)
        stored = [await gateway.service.store.get(run["id"], run["caller"]) for run in listed["data"]]
        is_stored = len(stored) == times and None not in stored
    # The gateway then goes on to the call.
    for _ in range(3):
        await gateway.send("GET", "/v1/models", key=key)


def _output(answer: tuple[int, Any]) -> str:
    (made,) = [item for item in answer[1]["output"] if item["type"] == "mcp_call"]
    return str(made["output"] or made["error"])


def _note(done: list[str], key: str, _: object) -> None:
    done.append(key)


@pytest.mark.proves("D-12", "D-27")
@async_test(30)
async def test_a_server_gets_no_more_calls_at_once_from_many_callers_than_from_one(tmp_path: Path) -> None:
    async with PersonalServer(PEOPLE).serve() as server, _run_gateway(tmp_path, server) as gateway:
        server.answer_permits = asyncio.Semaphore(0)
        requests = [_ask(gateway, ALICE), _ask(gateway, BOB), _ask(gateway, ALICE, is_own=False)]
        await _wait_waiting(gateway, 3)
        for number in range(1, 4):
            while len(server.calls_by_person) < number:  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(0)
            await gateway.send("GET", "/v1/models", key=ALICE)
            assert (server.pending_calls, len(server.calls_by_person)) == (1, number)
            server.answer_permits.release()
        outputs = sorted(_output(answer) for answer in await asyncio.gather(*requests))
        assert outputs == ["You are alice.", "You are bob.", "You are operator."]


@pytest.mark.proves("D-12")
@pytest.mark.parametrize("is_own", [True, False], ids=["own credentials", "the operator's"])
@async_test(30)
async def test_callers_take_turns_however_many_calls_one_of_them_has_queued(tmp_path: Path, is_own: bool) -> None:
    async with PersonalServer(PEOPLE).serve() as server, _run_gateway(tmp_path, server) as gateway:
        server.answer_permits = asyncio.Semaphore(0)
        requests: list[asyncio.Task[tuple[int, Any]]] = []
        done: list[str] = []
        for number, key in enumerate([ALICE, ALICE, ALICE, ALICE, BOB], start=1):
            task = _ask(gateway, key, is_own=is_own)
            task.add_done_callback(partial(_note, done, key))
            requests.append(task)
            await _wait_waiting(gateway, number)
        for finished in range(1, 6):
            server.answer_permits.release()
            while len(done) < finished:  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(0)
        assert done == [ALICE, ALICE, BOB, ALICE, ALICE]
        await asyncio.gather(*requests)


@pytest.mark.proves("D-12", "D-15")
@async_test(30)
async def test_a_caller_that_disconnects_while_queued_leaves_the_queue(tmp_path: Path) -> None:
    async with PersonalServer(PEOPLE).serve() as server, _run_gateway(tmp_path, server) as gateway:
        server.answer_permits = asyncio.Semaphore(0)
        first = _ask(gateway, ALICE)
        while not server.calls_by_person:  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0)
        leaving = _ask(gateway, BOB)
        await _wait_waiting(gateway, 2)
        waiting = _ask(gateway, BOB)
        await _wait_waiting(gateway, 3)
        leaving.cancel()
        while b"holodeck_in_flight 3.0\n" in (await gateway.send("GET", "/metrics", key=ALICE))[1]:  # noqa: ASYNC110
            await asyncio.sleep(0)
        server.answer_permits.release()
        await first
        server.answer_permits.release()
        assert _output(await waiting) == "You are bob."
        assert server.calls_by_person == ["alice", "bob"]
        server.answer_permits.release()
        assert _output(await _ask(gateway, ALICE)) == "You are alice."


@pytest.mark.proves("D-12")
@async_test(30)
async def test_a_server_of_two_agents_has_one_call_limit(tmp_path: Path) -> None:
    async with PersonalServer(PEOPLE).serve() as server, _model().serve() as model:
        llm = {"provider": "openai_compatible", "name": "scripted", "endpoint": model.url}
        names = ("one", "two")
        for name in names:
            (tmp_path / f"{name}.yaml").write_text(
                str({"name": name, "model": llm, "instructions": "Go.", "tools": [_entry(server)]}).replace(
                    "True", "true"
                )
            )
        server.answer_permits = asyncio.Semaphore(0)
        agents, environ = [{"file": f"{name}.yaml"} for name in names], {"TOKEN": f"Bearer {OPERATOR}"}
        async with run_gateway(tmp_path, agents=agents, environ=environ) as gateway:
            requests = [
                asyncio.create_task(gateway.send("POST", "/v1/responses", {"model": name, "input": "Go"}))
                for name in names
            ]
            await _wait_waiting(gateway, len(names), key=ANY_KEY)
            assert server.calls_by_person == ["operator"]
            server.answer_permits.release()
            server.answer_permits.release()
            assert [status for status, _ in await asyncio.gather(*requests)] == [200, 200]
            assert server.calls_by_person == ["operator", "operator"]
