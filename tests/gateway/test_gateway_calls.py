"""Calls that the gateway runs are `mcp_call` items, so that no client runs them as its own functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say


async def output_of(gateway: RunningGateway, model: str = MODEL, **more: Any) -> list[dict[str, Any]]:
    """The output of a response."""
    _, answer = await gateway.send("POST", "/v1/responses", {"model": model, "input": "Go", **more})
    output: list[dict[str, Any]] = answer["output"]
    return output


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_call_to_the_operator_s_server_is_an_mcp_call(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("It is 3."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        done, message = await output_of(gateway)
        assert (done["type"], done["server_label"], done["name"]) == ("mcp_call", "sums", "add")
        assert (done["output"], message["content"][0]["text"]) == ("3", "It is 3.")


@async_test(30)
async def test_calls_over_the_limit_of_a_request_are_no_items_of_its_response(tmp_path: Path) -> None:
    calls = [call("add", a=1, b=2), call("add", a=3, b=4)]
    async with FaultyMCPServer() as server:
        async with run_gateway(
            tmp_path, ScriptedModel(calls, call("add", a=5, b=6), say("It is 3.")), mcp={"sums": server}
        ) as gateway:
            done, message = await output_of(gateway, max_tool_calls=1)
            assert (done["type"], done["output"]) == ("mcp_call", "3")
            assert message["content"][0]["text"] == "It is 3."
            results = [each["content"] for each in gateway.model_requests[-1]["messages"] if each["role"] == "tool"]
            assert results[0] == "3"
            assert all("limit of tool calls" in result for result in results[1:])
        assert len(server.calls()) == 1


@pytest.mark.proves("D-26", "D-12")
@async_test(30)
async def test_a_client_that_declares_no_server_is_not_asked_for_approval(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("No."))
    async with FaultyMCPServer() as server:
        guarded = {"name": "sums", "description": "Sums.", "url": server.url, "approval": "always"}
        async with run_gateway(tmp_path, model, mcp_servers=[guarded]) as gateway:
            refused, message = await output_of(gateway)
            assert (refused["type"], refused["status"]) == ("mcp_call", "failed")
            assert "needs a person's approval" in refused["error"]["content"][0]["text"]
            assert message["content"][0]["text"] == "No."
        assert not server.calls()


@pytest.mark.proves("D-25", "D-26")
@async_test(30)
async def test_a_call_of_a_tool_that_does_not_exist_is_not_the_client_s_to_answer(tmp_path: Path) -> None:
    """Codex answered it a second time, and its next request was refused; other agents looked for a function."""
    model = ScriptedModel(call("made_up"), say("I was wrong."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        failed, message = await output_of(gateway)
        assert (failed["type"], failed["server_label"], failed["name"]) == ("mcp_call", MODEL, "made_up")
        assert "no tool 'made_up'" in failed["error"]["content"][0]["text"]
        assert message["content"][0]["text"] == "I was wrong."


@pytest.mark.proves("D-25", "D-26")
@async_test(30)
async def test_the_functions_of_an_agent_behind_the_gateway_are_not_the_client_s_to_run(tmp_path: Path) -> None:
    model = ScriptedModel(call("greet"), say("Hello to you."))
    (tmp_path / "mine.py").write_text("def greet(): return 'hello'")
    async with model.serve() as scripted:
        tools = [{"type": "function", "name": "greet", "file": "mine.py", "function": "greet"}]
        llm = {"provider": "openai_compatible", "name": "scripted", "endpoint": scripted.url}
        agent = {"name": "helper", "model": llm, "tools": tools}
        (tmp_path / "agent.yaml").write_bytes(orjson.dumps(agent))
        async with run_gateway(tmp_path, agents=[{"file": "agent.yaml"}]) as gateway:
            done, message = await output_of(gateway, model="helper")
            assert (done["type"], done["server_label"], done["name"]) == ("mcp_call", "helper", "greet")
            assert (done["output"], message["content"][0]["text"]) == ("hello", "Hello to you.")
