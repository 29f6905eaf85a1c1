"""The model knows what came of the gateway's calls, however little of them a client sends back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.conversation_client import DECLARED_SERVER, GET_TIME, answer_get_time, last_model_messages
from gateway.running_gateway import MODEL, RunningGateway, parse_events, run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say
from holodeck.testing.model.script import status

CODEX = "codex_exec/0.166.0 (Debian 12.0.0; x86_64) xterm (codex_exec; 0.166.0)"
AGENTS = "Agents/JavaScript 0.20.0"
UNSTORED = {"store": False, "include": ["reasoning.encrypted_content"]}
GO = {"role": "user", "content": "Go"}
THEN = (call("add", a=1, b=2), call("get_time"))
"""First a tool of the gateway, then a function of the client."""
DONE = ["Go", ["add"], ("add", "3"), ["get_time"], ("get_time", "noon")]


async def ask(stand: RunningGateway, agent: str, given: Any, **more: Any) -> dict[str, Any]:
    """What a program of this name gets."""
    session = await stand.http_client()
    body = {"model": MODEL, "input": given, "tools": [GET_TIME], **more}
    async with session.post("/v1/responses", json=body, headers={"user-agent": agent}) as answer:
        said: dict[str, Any] = await answer.json()
        assert answer.status == 200, said
        return said


def as_codex(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """It keeps no item whose type it does not know."""
    return [item for item in output if item["type"] in ("message", "reasoning", "function_call")]


def as_agents(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """OpenAI's agents for JavaScript send a call at a server without its output."""
    return [
        {key: value for key, value in item.items() if item["type"] != "mcp_call" or key != "output"} for item in output
    ]


@pytest.mark.proves("D-25", "D-16")
@pytest.mark.parametrize("tools", [(GET_TIME,), (GET_TIME, DECLARED_SERVER)], ids=["auto", "declared"])
@async_test(30)
async def test_a_call_that_comes_back_without_its_output_is_looked_up(tmp_path: Path, tools: tuple[Any, ...]) -> None:
    model = ScriptedModel(*THEN, say("Noon."), say("Noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        first = await ask(stand, AGENTS, [GO], tools=tools)
        given = [GO, *as_agents(first["output"]), answer_get_time(first)]
        await ask(stand, AGENTS, given, tools=tools)
        assert last_model_messages(stand) == DONE
        late = await ask(stand, AGENTS, given, tools=tools, background=True)
        await stand.stream(f"/v1/responses/{late['id']}?stream=true")
        assert last_model_messages(stand) == DONE


@pytest.mark.proves("D-25", "D-16")
@async_test(30)
async def test_a_call_with_a_lost_result_is_reported_as_run_with_an_unknown_result(tmp_path: Path) -> None:
    model = ScriptedModel(*THEN, say("Noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        first = await ask(stand, AGENTS, [GO], store=False)
        await ask(stand, AGENTS, [GO, *as_agents(first["output"]), answer_get_time(first)], store=False)
        words: dict[str, str] = dict(line for line in last_model_messages(stand) if isinstance(line, tuple))
        assert "has been run. What came of it is not known here" in words["add"]


@pytest.mark.proves("D-25", "D-16")
@pytest.mark.parametrize(("agent", "kept"), [(CODEX, as_codex), (AGENTS, as_agents), (AGENTS, list)])
@async_test(30)
async def test_a_client_that_keeps_everything_itself_carries_what_our_calls_gave(
    tmp_path: Path, agent: str, kept: Any
) -> None:
    model = ScriptedModel(*THEN, say("Noon."), call("echo", text="hi"), say("Hi."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        first = await ask(stand, agent, [GO], **UNSTORED)
        given = [GO, *kept(first["output"]), answer_get_time(first)]
        second = await ask(stand, agent, given, **UNSTORED)
        assert last_model_messages(stand) == DONE
        given += [*kept(second["output"]), {"role": "user", "content": "Now hi"}]
        third = await ask(stand, agent, given, **UNSTORED)
        assert last_model_messages(stand) == [*DONE, "Noon.", "Now hi", ["echo"], ("echo", "hi")]
        assert third["output"][-1]["content"][0]["text"] == "Hi."
        assert [made.name for made in server.calls()] == ["add", "echo"]


@pytest.mark.proves("D-23", "D-25", "D-16")
@async_test(30)
async def test_codex_s_model_knows_what_came_of_our_call_in_a_mixed_turn(tmp_path: Path) -> None:
    model = ScriptedModel([call("get_time"), call("image")], say("Noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        first = await ask(stand, CODEX, [GO], **UNSTORED)
        await ask(stand, CODEX, [GO, *as_codex(first["output"]), answer_get_time(first)], **UNSTORED)
        asked = stand.model_requests[-1]["messages"]
        assert [each["function"]["name"] for each in asked[1]["tool_calls"]] == ["get_time", "image"]
        assert "image_url" in str(asked), "the picture itself, not a word for it"
        assert len(server.calls()) == 1


@pytest.mark.proves("D-31", "D-16")
@async_test(30)
async def test_codex_tries_again_after_our_call_and_it_is_not_made_twice(tmp_path: Path) -> None:
    """It does so whatever the answer says of trying again, and sends what it has heard until then."""
    failed = status(400, {"error": {"message": "no"}})
    model = ScriptedModel(call("add", a=1, b=2), failed, say("It is 3."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        session, body = await stand.http_client(), {"model": MODEL, "input": [GO], "stream": True, **UNSTORED}
        async with session.post("/v1/responses", json=body, headers={"user-agent": CODEX}) as answer:
            events = parse_events((await answer.read()).decode())
        assert events[-1]["type"] == "response.failed"
        heard = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        await ask(stand, CODEX, [GO, *as_codex(heard)], **UNSTORED)
        assert last_model_messages(stand) == DONE[:3]
        assert len(server.calls()) == 1


@pytest.mark.proves("D-25", "D-28")
@pytest.mark.parametrize("turn", [[call("get_time")], [call("add", a=1, b=2), call("get_time")]], ids=["own", "mixed"])
@async_test(30)
async def test_a_call_of_the_previous_response_may_be_told_again(tmp_path: Path, turn: Any) -> None:
    """LlamaIndex names that response and sends everything again, without ids."""
    model = ScriptedModel(turn, say("Noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        first = await ask(stand, "AsyncOpenAI/Python 2.54.0", [GO])
        (called,) = [item for item in first["output"] if item["type"] == "function_call"]
        again = {key: called[key] for key in ("type", "call_id", "name", "arguments")}
        given = [GO, again, answer_get_time(first)]
        second = await ask(stand, "AsyncOpenAI/Python 2.54.0", given, previous_response_id=first["id"])
        assert second["output"][-1]["content"][0]["text"] == "Noon."
        names = [each.name for each in turn]
        gave = {"add": "3", "get_time": "noon"}
        assert last_model_messages(stand) == ["Go", names, *((name, gave[name]) for name in names), "Go"]
