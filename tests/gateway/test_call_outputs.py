"""The model gets the outputs of the gateway's calls, even if a client resends only a part of them."""

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


async def ask(gateway: RunningGateway, agent: str, input_items: Any, **more: Any) -> dict[str, Any]:
    """Send a request with this user agent and return its response."""
    session = await gateway.http_client()
    body = {"model": MODEL, "input": input_items, "tools": [GET_TIME], **more}
    async with session.post("/v1/responses", json=body, headers={"user-agent": agent}) as answer:
        response: dict[str, Any] = await answer.json()
        assert answer.status == 200, response
        return response


def as_codex(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Codex drops items of unknown types."""
    return [item for item in output if item["type"] in ("message", "reasoning", "function_call")]


def as_agents(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """OpenAI's agents for JavaScript resend an `mcp_call` without its output."""
    return [
        {key: value for key, value in item.items() if item["type"] != "mcp_call" or key != "output"} for item in output
    ]


@pytest.mark.proves("D-25", "D-16")
@pytest.mark.parametrize("tools", [(GET_TIME,), (GET_TIME, DECLARED_SERVER)], ids=["auto", "declared"])
@async_test(30)
async def test_the_stored_output_of_a_call_that_is_resent_without_it_is_used(
    tmp_path: Path, tools: tuple[Any, ...]
) -> None:
    model = ScriptedModel(*THEN, say("Noon."), say("Noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        first = await ask(gateway, AGENTS, [GO], tools=tools)
        input_items = [GO, *as_agents(first["output"]), answer_get_time(first)]
        await ask(gateway, AGENTS, input_items, tools=tools)
        assert last_model_messages(gateway) == DONE
        late = await ask(gateway, AGENTS, input_items, tools=tools, background=True)
        await gateway.stream(f"/v1/responses/{late['id']}?stream=true")
        assert last_model_messages(gateway) == DONE


@pytest.mark.proves("D-25", "D-16")
@async_test(30)
async def test_a_call_with_a_lost_result_is_reported_as_run_with_an_unknown_result(tmp_path: Path) -> None:
    model = ScriptedModel(*THEN, say("Noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        first = await ask(gateway, AGENTS, [GO], store=False)
        await ask(gateway, AGENTS, [GO, *as_agents(first["output"]), answer_get_time(first)], store=False)
        outputs: dict[str, str] = dict(line for line in last_model_messages(gateway) if isinstance(line, tuple))
        assert "has been run. What came of it is not known here" in outputs["add"]


@pytest.mark.proves("D-25", "D-16")
@pytest.mark.parametrize(("agent", "select_resent"), [(CODEX, as_codex), (AGENTS, as_agents), (AGENTS, list)])
@async_test(30)
async def test_an_unstored_history_carries_the_outputs_of_gateway_calls(
    tmp_path: Path, agent: str, select_resent: Any
) -> None:
    model = ScriptedModel(*THEN, say("Noon."), call("echo", text="hi"), say("Hi."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        first = await ask(gateway, agent, [GO], **UNSTORED)
        input_items = [GO, *select_resent(first["output"]), answer_get_time(first)]
        second = await ask(gateway, agent, input_items, **UNSTORED)
        assert last_model_messages(gateway) == DONE
        input_items += [*select_resent(second["output"]), {"role": "user", "content": "Now hi"}]
        third = await ask(gateway, agent, input_items, **UNSTORED)
        assert last_model_messages(gateway) == [*DONE, "Noon.", "Now hi", ["echo"], ("echo", "hi")]
        assert third["output"][-1]["content"][0]["text"] == "Hi."
        assert [made.name for made in server.calls()] == ["add", "echo"]


@pytest.mark.proves("D-23", "D-25", "D-16")
@async_test(30)
async def test_codex_s_model_gets_the_output_of_a_gateway_call_in_a_mixed_turn(tmp_path: Path) -> None:
    model = ScriptedModel([call("get_time"), call("image")], say("Noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        first = await ask(gateway, CODEX, [GO], **UNSTORED)
        await ask(gateway, CODEX, [GO, *as_codex(first["output"]), answer_get_time(first)], **UNSTORED)
        messages = gateway.model_requests[-1]["messages"]
        assert [each["function"]["name"] for each in messages[1]["tool_calls"]] == ["get_time", "image"]
        assert "image_url" in str(messages), "the image itself, not a placeholder"
        assert len(server.calls()) == 1


@pytest.mark.proves("D-31", "D-16")
@async_test(30)
async def test_a_gateway_call_is_not_repeated_when_codex_retries_a_failed_response(tmp_path: Path) -> None:
    """Codex retries whatever the retry headers say, and resends the items that it has received so far."""
    failed = status(400, {"error": {"message": "no"}})
    model = ScriptedModel(call("add", a=1, b=2), failed, say("It is 3."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        session, body = await gateway.http_client(), {"model": MODEL, "input": [GO], "stream": True, **UNSTORED}
        async with session.post("/v1/responses", json=body, headers={"user-agent": CODEX}) as answer:
            events = parse_events((await answer.read()).decode())
        assert events[-1]["type"] == "response.failed"
        done_items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        await ask(gateway, CODEX, [GO, *as_codex(done_items)], **UNSTORED)
        assert last_model_messages(gateway) == DONE[:3]
        assert len(server.calls()) == 1


@pytest.mark.proves("D-25", "D-28")
@pytest.mark.parametrize("turn", [[call("get_time")], [call("add", a=1, b=2), call("get_time")]], ids=["own", "mixed"])
@async_test(30)
async def test_a_call_of_the_previous_response_can_be_resent(tmp_path: Path, turn: Any) -> None:
    """LlamaIndex sends `previous_response_id` and the whole history again, without ids."""
    model = ScriptedModel(turn, say("Noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        first = await ask(gateway, "AsyncOpenAI/Python 2.54.0", [GO])
        (called,) = [item for item in first["output"] if item["type"] == "function_call"]
        again = {key: called[key] for key in ("type", "call_id", "name", "arguments")}
        input_items = [GO, again, answer_get_time(first)]
        second = await ask(gateway, "AsyncOpenAI/Python 2.54.0", input_items, previous_response_id=first["id"])
        assert second["output"][-1]["content"][0]["text"] == "Noon."
        names = [each.name for each in turn]
        gave = {"add": "3", "get_time": "noon"}
        assert last_model_messages(gateway) == ["Go", names, *((name, gave[name]) for name in names), "Go"]
