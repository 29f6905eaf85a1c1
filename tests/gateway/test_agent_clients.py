"""Programs that take every function_call for a function of their own are not shown the gateway's calls as such."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

AGENTS = (
    "Agents/Python 0.17.3",
    "Agents/JavaScript 0.20.0",
    "ai/6.0.326 ai-sdk/provider-utils/4.0.65 runtime/node.js/v20.20.2",
    "langchainjs-openai/1.0.0 ((node/v20.20.2; linux; x64))",
    "pydantic-ai/2.38.0",
    "codex_cli_rs/0.61.0 (Debian 12.0.0; x86_64) xterm-256color",
)


async def output_of(stand: RunningGateway, agent: str, model: str = MODEL) -> list[dict[str, Any]]:
    """What a client of this name gets as output."""
    session = await stand.http_client()
    body = {"model": model, "input": "Go"}
    async with session.post("/v1/responses", json=body, headers={"user-agent": agent}) as answer:
        output: list[dict[str, Any]] = (await answer.json())["output"]
        return output


@pytest.mark.proves("D-25")
@pytest.mark.parametrize("agent", AGENTS)
@async_test(30)
async def test_an_agent_sees_the_gateway_s_calls_as_the_gateway_s(tmp_path: Path, agent: str) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("It is 3."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        done, said = await output_of(stand, agent)
        assert (done["type"], done["server_label"], done["name"]) == ("mcp_call", "sums", "add")
        assert (done["output"], said["content"][0]["text"]) == ("3", "It is 3.")


@pytest.mark.proves("D-26")
@async_test(30)
async def test_the_packages_beneath_them_see_calls_in_the_open_form(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("It is 3."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        output = await output_of(stand, "AsyncOpenAI/Python 3.49.0")
        assert [item["type"] for item in output] == ["function_call", "function_call_output", "message"]


@pytest.mark.proves("D-26", "D-12")
@async_test(30)
async def test_an_agent_that_did_not_speak_of_the_server_is_not_asked_for_approval(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("No."))
    async with FaultyMCPServer() as server:
        guarded = {"name": "sums", "description": "Sums.", "url": server.url, "approval": "always"}
        async with run_gateway(tmp_path, model, mcp_servers=[guarded]) as stand:
            refused, said = await output_of(stand, AGENTS[0])
            assert (refused["type"], refused["status"]) == ("mcp_call", "failed")
            assert "needs a person's approval" in refused["error"]["content"][0]["text"]
            assert said["content"][0]["text"] == "No."
        assert not server.calls()


@pytest.mark.proves("D-25", "D-26")
@pytest.mark.parametrize(("agent", "config"), [(AGENTS[-1], {}), ("anything", {"mcp_output": "openai"})])
@async_test(30)
async def test_a_call_of_a_tool_that_nobody_has_is_not_the_client_s_to_answer(
    tmp_path: Path, agent: str, config: dict[str, Any]
) -> None:
    """Codex answered it a second time, and its next request was refused; other agents looked for a function."""
    model = ScriptedModel(call("made_up"), say("I was wrong."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}, **config) as stand:
        failed, said = await output_of(stand, agent)
        assert (failed["type"], failed["server_label"], failed["name"]) == ("mcp_call", MODEL, "made_up")
        assert "no tool 'made_up'" in failed["error"]["content"][0]["text"]
        assert said["content"][0]["text"] == "I was wrong."


@pytest.mark.proves("D-25", "D-26")
@async_test(30)
async def test_an_agent_s_own_functions_are_not_the_client_s_to_run(tmp_path: Path) -> None:
    model = ScriptedModel(call("greet"), say("Hello to you."))
    (tmp_path / "mine.py").write_text("def greet(): return 'hello'")
    async with model.serve() as scripted:
        tools = [{"type": "function", "name": "greet", "file": "mine.py", "function": "greet"}]
        llm = {"provider": "openai_compatible", "name": "scripted", "endpoint": scripted.url}
        agent = {"name": "helper", "model": llm, "tools": tools}
        (tmp_path / "agent.yaml").write_bytes(orjson.dumps(agent))
        async with run_gateway(tmp_path, agents=[{"file": "agent.yaml"}]) as stand:
            done, said = await output_of(stand, AGENTS[0], model="helper")
            assert (done["type"], done["server_label"], done["name"]) == ("mcp_call", "helper", "greet")
            assert (done["output"], said["content"][0]["text"]) == ("hello", "Hello to you.")
