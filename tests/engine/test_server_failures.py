"""Servers that come and go while an agent runs: the run goes on with the others, and nothing is left behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from async_tests import async_test
from engine.scripted_agent import offered_tools, open_agent, open_agent_with_server, server_entry, tool_outputs

from holodeck.models.items import FunctionCallOutput, ImageContent
from holodeck.runtime import People
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say


@pytest.mark.proves("004:US1-3", "004:FR-017", "004:SC-004", "000:SC-006", "D-14")
@async_test
async def test_a_server_that_is_down_is_missing_and_comes_back_by_itself(tmp_path: Path) -> None:
    model = ScriptedModel(say("none"), say("there"))
    async with FaultyMCPServer(down=True) as dead, FaultyMCPServer() as alive:
        tools = [server_entry("dead", dead.url), server_entry("alive", alive.url)]
        async with open_agent(tmp_path, model, tools) as agent:
            assert (await agent.run("one")).status == "completed"
            assert "alive__add" in offered_tools(model.requests[0])
            assert "add" not in offered_tools(model.requests[0]), "it may be a tool of the other server"
            assert "dead" in agent.mcp.failures
            await dead.come_up()
            while "dead" in agent.mcp.failures:
                await agent.mcp.specs()
            await agent.run("two")
            assert {"add", "alive__add"} <= offered_tools(model.requests[1])


@pytest.mark.proves("004:EDGE-1", "000:US5-2", "000:FR-023", "D-16")
@async_test
async def test_a_server_that_dies_in_a_call_is_an_error_for_the_model_and_then_works_again(tmp_path: Path) -> None:
    model = ScriptedModel(call("echo", text="a"), call("echo", text="b"), say("done"))
    async with open_agent_with_server(tmp_path, model) as (agent, mcp):
        await agent.mcp.specs()
        mcp.misbehave("dies-mid-call", on="tools/call:echo", times=1)
        result = await agent.run("echo")
    assert result.status == "completed"
    outputs = tool_outputs(model.requests[2])
    text, is_error = outputs["call_1"]
    assert is_error
    assert "calc" in text
    assert outputs["call_2"] == ("b", False)


@pytest.mark.proves("D-14")
@async_test(40)
async def test_of_two_hundred_servers_a_hundred_and_fifty_are_unreachable(tmp_path: Path) -> None:
    model = ScriptedModel(say("hello"))
    async with FaultyMCPServer() as alive, FaultyMCPServer(down=True) as dead:
        tools = [server_entry(f"s{n}", (alive if n % 4 == 0 else dead).url) for n in range(200)]
        async with open_agent(tmp_path, model, tools) as agent:
            result = await agent.run("hi")
            assert len(agent.mcp.failures) == 150
    assert result.status == "completed"
    assert len(model.requests[0].tools) % 50 == 0, "the tools of fifty servers"


@async_test
async def test_images_from_tools_reach_the_model_as_images(tmp_path: Path) -> None:
    model = ScriptedModel(call("image"), say("a pixel"))
    async with open_agent_with_server(tmp_path, model) as (agent, _):
        await agent.run("draw")
    (outputs,) = [item for item in model.requests[1].items if isinstance(item, FunctionCallOutput)]
    assert any(isinstance(part, ImageContent) for part in outputs.content)


@pytest.mark.proves("000:EDGE-4")
@async_test
async def test_a_large_result_is_cut_and_the_model_can_read_on(tmp_path: Path) -> None:
    model = ScriptedModel(
        call("big", bytes=100_000),
        call("read_result", id="call_1", start_char=99_990),
        call("read_result", id="r9"),
        say("read"),
    )
    async with open_agent_with_server(tmp_path, model) as (agent, _):
        await agent.run("big")
    assert "read_result" not in offered_tools(model.requests[0]), "not before there is something to read"
    assert "read_result" in offered_tools(model.requests[1])
    cut, _ = tool_outputs(model.requests[1])["call_1"]
    assert len(cut) < 30_000
    assert "of 100000 characters" in cut
    rest, is_error = tool_outputs(model.requests[2])["call_2"]
    assert (rest.splitlines()[-1], is_error) == ("[characters 99990 to 100000 of 100000]", False)
    assert tool_outputs(model.requests[3])["call_3"][1] is True


@async_test
async def test_a_linked_resource_can_be_read_until_the_conversation_ends(tmp_path: Path) -> None:
    model = ScriptedModel(
        call("resource_link"), say("one"), call("read_resource", uri="test://far.pdf"), *[say("")] * 2
    )
    async with open_agent_with_server(tmp_path, model) as (agent, mcp):
        await agent.run("find it")
        assert "resources/read" not in [one.method for one in mcp.requests], "nothing is read by itself"
        await agent.run("read it")
        agent.forget()
        await agent.run("hello")
    assert "far away" in tool_outputs(model.requests[3])["call_2"][0]
    offered = ["read_resource" in offered_tools(request) for request in model.requests]
    assert offered == [False, True, True, True, False]


@async_test
async def test_cancelling_a_run_stops_the_tool_call_at_its_server(tmp_path: Path) -> None:
    model = ScriptedModel(call("slow", seconds=60))
    async with open_agent_with_server(tmp_path, model) as (agent, mcp):
        stream = agent.stream("wait")
        seen = []
        async for event in stream:
            seen.append(event.type)
            if event.type == "tool.started":
                await mcp.received("tools/call", name="slow")
                break
        await stream.aclose()
        await mcp.received("notifications/cancelled")
    assert "run.finished" not in seen


@pytest.mark.parametrize("approves", [True, False])
@async_test
async def test_a_call_that_needs_approval_waits_for_the_person(tmp_path: Path, approves: bool) -> None:
    approvals: list[tuple[str, str]] = []

    async def approve(server_name: str, tool: str, arguments: object) -> bool:
        approvals.append((server_name, tool))
        return approves

    model = ScriptedModel([call("add", a=1, b=2), call("echo", text="free")], say("ok"))
    settings = {"approval": {"always": ["add"]}}
    people = People(approve=approve)
    async with open_agent_with_server(tmp_path, model, settings, people=people) as (agent, mcp):
        await agent.run("add")
        assert approvals == [("calc", "add")]
        assert len(mcp.calls("add")) == int(approves)
    assert tool_outputs(model.requests[1])["call_1"][1] is not approves


@async_test
async def test_without_a_person_a_call_that_needs_approval_is_not_run(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("ok"))
    async with open_agent_with_server(tmp_path, model, {"approval": "always"}) as (agent, mcp):
        await agent.run("add")
        assert mcp.calls("add") == []
    assert "approval" in tool_outputs(model.requests[1])["call_1"][0]


@pytest.mark.proves("000:EDGE-9")
@pytest.mark.parametrize("allowed", [True, False])
@async_test
async def test_a_server_may_use_the_agents_model_only_where_it_is_allowed(tmp_path: Path, allowed: bool) -> None:
    model = ScriptedModel(*([call("ask_sampling", anyway=True)] + [say("from the model")] * allowed + [say("end")]))
    settings = {"sampling": "allow"} if allowed else {}
    async with open_agent_with_server(tmp_path, model, settings) as (agent, _):
        result = await agent.run("ask")
    text, _ = tool_outputs(model.requests[-1])["call_1"]
    assert ("from the model" in text) is allowed
    assert result.status == "completed"
    if allowed:
        assert model.requests[1].max_tokens is not None
        assert model.requests[1].tools == ()


@pytest.mark.proves("000:EDGE-2", "001:DEC-9")
@async_test
async def test_parallel_calls_can_be_turned_off(tmp_path: Path) -> None:
    model = ScriptedModel([call("slow", seconds=0.2), call("add", a=1, b=1)], say("ok"))
    async with open_agent_with_server(tmp_path, model) as (agent, mcp):
        task = asyncio.create_task(agent.run("go", parallel_tool_calls=False))
        await mcp.received("tools/call", name="slow")
        assert mcp.calls("add") == []
        mcp.release()
        assert (await task).status == "completed"
        assert len(mcp.calls("add")) == 1


@async_test
async def test_ten_megabytes_of_arguments_reach_the_server_whole(tmp_path: Path) -> None:
    text = "x" * 10_000_000
    model = ScriptedModel(call("echo", text=text), say("ok"))
    async with open_agent_with_server(tmp_path, model) as (agent, mcp):
        assert (await agent.run("echo")).status == "completed"
        assert len(mcp.calls("echo")[0].params["arguments"]["text"]) == len(text)
