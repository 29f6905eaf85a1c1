"""Agents of a gateway as tools of an MCP client: asked, followed, cancelled, approved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.mcp_endpoint.sdk_client import MODES, Mode, connect, text_of
from gateway.mcp_endpoint.test_questions import Person
from gateway.running_gateway import RunningGateway, run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say
from holodeck.testing.model.scripted import ScriptedServer


@asynccontextmanager
async def _serve_agent(
    folder: Path, model: ScriptedModel, server: FaultyMCPServer, *, keys: tuple[str, ...] = (), **agent: Any
) -> AsyncIterator[tuple[RunningGateway, ScriptedServer]]:
    tool = agent.pop("tool", {})
    async with model.serve("chat") as scripted:
        content = {
            "name": "clerk",
            "description": "Knows how to add.",
            "model": {"provider": "openai_compatible", "name": "scripted", "endpoint": scripted.url},
            "instructions": "Help.",
            "tools": [{"name": "sums", "type": "mcp", "transport": "http", "url": server.url, **tool}],
            **agent,
        }
        (folder / "clerk.yaml").write_bytes(orjson.dumps(content))
        async with run_gateway(folder, agents=[{"file": "clerk.yaml"}], keys=keys) as gateway:
            yield gateway, scripted


@pytest.mark.proves("D-38")
@pytest.mark.parametrize("mode", MODES)
@async_test
async def test_an_agent_answers_as_a_tool_and_reports_each_turn_and_call(tmp_path: Path, mode: Mode) -> None:
    heard: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    model = ScriptedModel(call("add", a=2, b=3), say("It is 5."))
    async with (
        FaultyMCPServer() as server,
        _serve_agent(tmp_path, model, server) as (gateway, scripted),
        connect(gateway, mode) as client,
    ):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "Knows how to add." in (tools["ask_clerk"].description or "")
        assert "add" in tools
        result = await client.call_tool("ask_clerk", {"question": "2 + 3?"}, progress_callback=hear)
        assert (text_of(result), result.is_error) == ("It is 5.", False)
        assert [message["content"] for message in scripted.received[0].json["messages"]][-1] == "2 + 3?"
        steps = [(text or "").partition(" after")[0] for text in heard]
        assert steps == ["Turn 1", "Calling add", "add answered", "Turn 2"]


@pytest.mark.proves("D-38")
@async_test
async def test_the_answer_of_an_agent_with_a_response_format_is_structured(tmp_path: Path) -> None:
    form = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}
    model = ScriptedModel(say('{"total": 5}'))
    async with (
        FaultyMCPServer() as server,
        _serve_agent(tmp_path, model, server, response_format=form) as (gateway, _),
        connect(gateway) as client,
    ):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert (tools["ask_clerk"].output_schema or {})["required"] == ["total"]
        assert (await client.call_tool("ask_clerk", {"question": "2 + 3?"})).structured_content == {"total": 5}


@pytest.mark.proves("D-38", "D-15")
@pytest.mark.parametrize("mode", MODES)
@async_test
async def test_cancelling_the_question_cancels_the_agents_call(tmp_path: Path, mode: Mode) -> None:
    model = ScriptedModel(call("slow", seconds=600))
    async with (
        FaultyMCPServer(era="legacy") as server,
        _serve_agent(tmp_path, model, server) as (gateway, _),
        connect(gateway, mode) as client,
    ):
        asked = asyncio.create_task(client.call_tool("ask_clerk", {"question": "Wait."}))
        await server.received("tools/call", name="slow")
        asked.cancel()
        await server.received("notifications/cancelled")


@pytest.mark.proves("D-38")
@pytest.mark.parametrize(("action", "text"), [("accept", "5"), ("decline", "it was not given")])
@async_test
async def test_a_call_of_an_agent_that_needs_approval_is_asked_of_the_client(
    tmp_path: Path, action: str, text: str
) -> None:
    person = Person(action)
    model = ScriptedModel(call("add", a=2, b=3), say("Done."))
    async with (
        FaultyMCPServer() as server,
        _serve_agent(tmp_path, model, server, tool={"approval": "always"}) as (gateway, scripted),
        connect(gateway, elicitation_callback=person.answer) as client,
    ):
        await client.call_tool("ask_clerk", {"question": "2 + 3?"})
        assert len(person.asked) == 1
        assert text in scripted.received[1].json["messages"][-1]["content"]
        assert len(server.calls("add")) == (1 if action == "accept" else 0)


@pytest.mark.proves("D-38")
@async_test
async def test_an_agent_whose_model_fails_says_so_without_the_cause(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer() as server,
        _serve_agent(tmp_path, ScriptedModel(), server) as (gateway, _),
        connect(gateway) as client,
    ):
        result = await client.call_tool("ask_clerk", {"question": "Hello?"})
        assert result.is_error
        assert "127.0.0.1" not in text_of(result)


@pytest.mark.proves("D-38")
@async_test
async def test_agents_are_not_offered_at_the_address_of_a_server(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer() as server,
        _serve_agent(tmp_path, ScriptedModel(), server) as (gateway, _),
        connect(gateway, path="/mcp/sums") as client,
    ):
        assert "ask_clerk" not in {tool.name for tool in (await client.list_tools()).tools}


@pytest.mark.proves("D-38")
@async_test
async def test_of_two_different_servers_of_one_name_the_first_is_offered_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        FaultyMCPServer() as first,
        FaultyMCPServer() as second,
        ScriptedModel().serve("chat") as scripted,
    ):
        llm = {"provider": "openai_compatible", "name": "scripted", "endpoint": scripted.url}
        for name, server in (("one", first), ("two", second)):
            tools = [{"name": "sums", "type": "mcp", "transport": "http", "url": server.url}]
            content = {"name": name, "model": llm, "instructions": "Help.", "tools": tools}
            (tmp_path / f"{name}.yaml").write_bytes(orjson.dumps(content))
        agents = [{"file": "one.yaml"}, {"file": "two.yaml"}]
        async with run_gateway(tmp_path, agents=agents) as gateway, connect(gateway) as client:
            await client.call_tool("add", {"a": 1, "b": 2})
        assert (len(first.calls("add")), len(second.calls("add"))) == (1, 0)
        assert "mcp.server_hidden server=sums" in caplog.text
