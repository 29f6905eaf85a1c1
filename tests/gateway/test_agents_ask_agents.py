"""Agents of a gateway that ask each other: each is a run with its own account, for the same caller, under its scope."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.audit_entries import AUDIT_FILE, read_audit
from gateway.running_gateway import RunningGateway, run_gateway

from holodeck.lib.errors import ModelError
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, fail, say, spend

ALICE = "hd-alice"
INNER = {"type": "agent", "name": "ask_inner", "file": "inner.yaml"}
NAMED = {"type": "agent", "name": "ask_helper", "agent": "helper"}
TURNS = ([call("ask_inner", question="?"), spend(1, 1)], [say("Inside."), spend(100, 0)], [say("Done."), spend(2, 2)])


@asynccontextmanager
async def serve_boss(
    folder: Path, *turns: Any, tools: tuple[dict[str, Any], ...] = (), **more: Any
) -> AsyncIterator[RunningGateway]:
    """A gateway with a boss that may ask a helper, which is served as well, and an agent that only its file names.

    All of them have the same model. `tools`: of the agents that are asked.
    """
    async with ScriptedModel(*turns).serve() as scripted:
        llm = {"provider": "openai_compatible", "name": "scripted", "endpoint": scripted.url}
        for name, listed in (("boss", (INNER, NAMED)), ("helper", tools), ("inner", tools)):
            agent = {"name": name, "description": f"The {name}", "model": llm | PRICE, "tools": listed}
            (folder / f"{name}.yaml").write_bytes(orjson.dumps(agent))
        agents = [{"file": "boss.yaml"}, {"file": "helper.yaml"}]
        async with run_gateway(folder, agents=agents, **more) as gateway:
            gateway.model = scripted
            yield gateway


PRICE = {"price": {"input": 1_000_000, "output": 0}}


async def ask(gateway: RunningGateway, key: str = "hd-anybody") -> Any:
    status, answer = await gateway.send("POST", "/v1/responses", {"model": "boss", "input": "Go"}, key=key)
    assert status == 200, answer
    return answer


def output_of(gateway: RunningGateway, request: int = 2) -> str:
    """What the model of the boss got as the result of its call."""
    return str(gateway.model_requests[request]["messages"][-1]["content"])


@pytest.mark.parametrize("tool", ["ask_inner", "ask_helper"])
@async_test
async def test_an_agent_asks_another_one_and_each_is_a_run_of_its_own(tmp_path: Path, tool: str) -> None:
    turns = ([call(tool, question="Well?"), spend(1, 1)], *TURNS[1:])
    async with serve_boss(tmp_path, *turns, admins=[ALICE]) as gateway:
        answer = await ask(gateway, ALICE)
        assert answer["output"][-1]["content"][0]["text"] == "Done."
        assert output_of(gateway) == "Inside."
        assert answer["usage"]["total_tokens"] == 6
        _, usage = await gateway.send("GET", "/v1/usage?group_by=model", key=ALICE)
        asked = "boss/ask_inner" if tool == "ask_inner" else "helper"
        counted = {each["model"]: (each["input_tokens"], each["cost"]) for each in usage["data"]}
        assert counted == {"boss": (3, 3.0), asked: (100, 100.0)}


@async_test
async def test_an_agent_that_only_another_one_names_is_served_to_nobody_else(tmp_path: Path) -> None:
    async with serve_boss(tmp_path, *TURNS) as gateway:
        _, models = await gateway.send("GET", "/v1/models")
        assert {each["id"] for each in models["data"]} == {"demo", "boss", "helper"}
        body = {"model": "boss/ask_inner", "input": "Go"}
        assert (await gateway.send("POST", "/v1/responses", body))[0] == 404


@pytest.mark.parametrize(("tool", "told"), [("ask_inner", "Inside."), ("ask_helper", "There is no tool 'ask_helper'")])
@async_test
async def test_the_scope_of_the_caller_holds_for_agents_that_are_served(tmp_path: Path, tool: str, told: str) -> None:
    turns = (
        (call(tool, question="Well?"), say("Inside."), say("Done."))
        if tool == "ask_inner"
        else (call(tool, question="Well?"), say("Done."))
    )
    async with serve_boss(tmp_path, *turns, scopes={ALICE: {"agents": ["boss"]}}) as gateway:
        await ask(gateway, ALICE)
        assert told in output_of(gateway, len(turns) - 1)


@async_test
async def test_an_approval_that_an_agent_needs_is_refused_and_told(tmp_path: Path) -> None:
    async with FaultyMCPServer() as server:
        add = {"name": "calc", "type": "mcp", "description": "d", "transport": "http", "url": server.url}
        turns = (call("ask_inner", question="1 + 2?"), call("add", a=1, b=2), say("I may not."), say("It may not."))
        async with serve_boss(tmp_path, *turns, tools=({**add, "approval": "always"},)) as gateway:
            await ask(gateway)
            assert "needs a person's approval" in output_of(gateway)
        assert server.calls("add") == []


@async_test
async def test_the_cause_of_a_failure_of_an_agent_stays_with_the_operator(tmp_path: Path) -> None:
    turns = (call("ask_inner", question="?"), fail(ModelError("secret-host is down", status=401)), say("It failed."))
    async with serve_boss(tmp_path, *turns) as gateway:
        answer = await ask(gateway)
        assert answer["output"][-1]["content"][0]["text"] == "It failed."
        assert "The agent 'boss/ask_inner' did not finish" in output_of(gateway, -1)
        assert "secret-host" not in output_of(gateway, -1)


@async_test
async def test_a_budget_is_spent_by_the_agents_that_are_asked_as_well(tmp_path: Path) -> None:
    budgets = {ALICE: {"amount": 50, "period": "day"}}
    async with serve_boss(tmp_path, *TURNS, keys=[ALICE], budgets=budgets, price=PRICE["price"]) as gateway:
        answer = await ask(gateway, ALICE)
        assert answer["status"] == "incomplete"
        assert len(gateway.model_requests) == 2


@async_test
async def test_calls_of_an_agent_that_is_asked_are_in_the_audit_log(tmp_path: Path) -> None:
    async with FaultyMCPServer() as server:
        add = {"name": "calc", "type": "mcp", "description": "d", "transport": "http", "url": server.url}
        turns = (call("ask_inner", question="1 + 2?"), call("add", a=1, b=2), say("3"), say("Three."))
        audit = {"file": AUDIT_FILE}
        async with serve_boss(tmp_path, *turns, tools=(add,), keys=[ALICE], audit=audit) as gateway:
            await ask(gateway, ALICE)
        entries = read_audit(tmp_path, "tool_call")
    called = [(each["model"], each["tool"]) for each in entries]
    assert called == [("boss", "boss/ask_inner"), ("boss/ask_inner", "add")]


@async_test
async def test_an_agent_that_is_asked_is_reloaded(tmp_path: Path) -> None:
    async with serve_boss(tmp_path, *TURNS, *TURNS) as gateway:
        file = tmp_path / "inner.yaml"
        file.write_bytes(orjson.dumps(orjson.loads(file.read_bytes()) | {"instructions": "Be brief."}))
        assert await gateway.reload()
        await ask(gateway)
        assert gateway.model_requests[1]["messages"][0]["content"] == "Be brief."
