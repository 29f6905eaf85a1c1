"""The loop: what the model receives in each turn, and how a run ends. MCP servers are real, the model is scripted."""

from __future__ import annotations

from pathlib import Path

import pytest
from async_tests import async_test
from engine.scripted_agent import offered_tools, open_agent, open_agent_with_server, server_entry, tool_outputs
from fake_executor import FakeExecutor

from holodeck.engine.event_log import EventLog
from holodeck.engine.loop import Run, RunRequest
from holodeck.lib.errors import ModelError
from holodeck.models.items import FunctionCall, FunctionCallOutput, Usage, text_message
from holodeck.models.model_io import FinishReason, ModelRequest, ToolChoice, ToolSpec
from holodeck.models.run_limits import RunLimits
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, call_raw, fail, finish, say, spend
from holodeck.tools.calls import ArgumentChecker
from holodeck.tools.toolbox import Toolbox


@pytest.mark.proves("004:US2-1", "004:SC-001", "004:US1-2", "000:US1-1", "004:FR-008", "004:FR-009")
@async_test
async def test_three_turns_with_tools_end_in_an_answer(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=2, b=3), call("echo", text="five"), say("It is five."))
    async with open_agent_with_server(tmp_path, model, instructions="Be brief.") as (agent, mcp):
        result = await agent.run("What is 2 + 3?")
    assert (result.status, result.text, result.turns, result.tool_calls) == ("completed", "It is five.", 3, 2)
    first, second, third = model.requests
    assert first.items == (text_message("user", "What is 2 + 3?"),)
    assert first.instructions == "Be brief."
    assert {"add", "echo"} <= offered_tools(first)
    assert tool_outputs(second) == {"call_1": ("5", False)}
    assert tool_outputs(third) == {"call_1": ("5", False), "call_2": ("five", False)}
    assert [request.params["arguments"] for request in mcp.calls("add")] == [{"a": 2, "b": 3}]


@pytest.mark.proves("004:US4-1", "004:SC-002", "004:US2-2", "004:FR-008", "D-22")
@async_test
async def test_calls_of_one_turn_run_on_three_servers_and_keep_their_order(tmp_path: Path) -> None:
    async with FaultyMCPServer() as one, FaultyMCPServer() as two, FaultyMCPServer() as three:
        servers = [one, two, three]
        names = ["slow", "add", "echo", "add", "echo"]
        model = ScriptedModel(
            [
                call("slow", seconds=0.3),
                call("two__add", a=1, b=1),
                call("three__echo", text="c"),
                call("add", a=2, b=2),
                call("echo", text="e"),
            ],
            say("done"),
        )
        tools = [server_entry(name, each.url) for name, each in zip(("one", "two", "three"), servers, strict=True)]
        async with open_agent(tmp_path, model, tools) as agent:
            result = await agent.run("go")
    assert result.status == "completed"
    outputs = [item for item in model.requests[1].items if isinstance(item, FunctionCallOutput)]
    assert [item.call_id for item in outputs] == [f"call_{n + 1}" for n in range(len(names))]
    texts = tool_outputs(model.requests[1])
    assert (texts["call_2"], texts["call_3"], texts["call_4"]) == (("2", False), ("c", False), ("4", False))
    assert [len(each.calls("add")) for each in servers] == [1, 1, 0]


@pytest.mark.proves("004:US4-2", "D-18", "000:EDGE-7")
@async_test
async def test_the_same_tool_on_two_servers_is_offered_under_two_names(tmp_path: Path) -> None:
    model = ScriptedModel([call("add", a=1, b=2), call("second__add", a=3, b=4)], say("ok"))
    async with FaultyMCPServer() as one, FaultyMCPServer() as two:
        tools = [server_entry("first", one.url), server_entry("second", two.url)]
        async with open_agent(tmp_path, model, tools) as agent:
            await agent.run("add")
        assert {"add", "second__add"} <= offered_tools(model.requests[0])
        assert [request.params["arguments"]["a"] for request in one.calls("add")] == [1]
        assert [request.params["arguments"]["a"] for request in two.calls("add")] == [3]


@pytest.mark.proves("004:FR-010", "D-18")
@async_test
async def test_a_function_of_the_client_shadows_an_mcp_tool_in_schema_and_execution(tmp_path: Path) -> None:
    own = ToolSpec(name="add", description="mine", parameters={"type": "object", "properties": {"x": {}}})
    model = ScriptedModel(call("add", x=1))
    async with open_agent_with_server(tmp_path, model) as (agent, mcp):
        result = await agent.run("add", functions=[own])
        assert (result.status, result.pending) == ("completed", ())
        assert [spec for spec in model.requests[0].tools if spec.name == "add"] == [own]
        assert mcp.calls("add") == []


@pytest.mark.proves("004:US2-4", "D-23")
@async_test
async def test_a_mixed_turn_pauses_and_runs_nothing(tmp_path: Path) -> None:
    own = ToolSpec(name="ask_client")
    model = ScriptedModel([call("add", a=1, b=2), call("ask_client")])
    async with open_agent_with_server(tmp_path, model) as (agent, mcp):
        result = await agent.run("both", functions=[own])
        assert result.status == "requires_action"
        assert [each.name for each in result.pending] == ["add"]
        assert mcp.calls("add") == []


CHOICES = [
    ToolChoice(mode="required"),
    ToolChoice(name="add"),
    ToolChoice(mode="required", allowed=("add", "echo")),
    ToolChoice(mode="auto", allowed=("add",)),
]


@pytest.mark.proves("D-22")
@pytest.mark.parametrize("choice", CHOICES)
@async_test
async def test_a_forced_choice_is_for_the_first_turn_only(tmp_path: Path, choice: ToolChoice) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3"))
    async with open_agent_with_server(tmp_path, model) as (agent, _):
        assert (await agent.run("add", tool_choice=choice)).status == "completed"
    first, second = model.requests
    assert first.tool_choice == choice
    assert second.tool_choice == ToolChoice(mode="auto", allowed=choice.allowed)


@pytest.mark.proves("D-24")
@async_test
async def test_a_call_outside_the_allowed_tools_is_answered_and_never_run(tmp_path: Path) -> None:
    model = ScriptedModel(call("echo", text="x"), say("sorry"))
    async with open_agent_with_server(tmp_path, model) as (agent, mcp):
        await agent.run("echo", tool_choice=ToolChoice(allowed=("add",)))
        assert mcp.calls("echo") == []
    text, is_error = tool_outputs(model.requests[1])["call_1"]
    assert is_error
    assert "not allowed" in text


@pytest.mark.proves("D-22")
@async_test
async def test_at_the_limit_of_turns_the_run_is_incomplete_and_says_why(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: call("add", a=1, b=1))
    async with open_agent_with_server(tmp_path, model, max_turns=3) as (agent, mcp):
        result = await agent.run("for ever")
        assert len(mcp.calls("add")) == 2, "the calls of the last turn would be for nobody"
    assert (result.status, result.turns) == ("incomplete", 3)
    assert "3 turns" in result.reason


@pytest.mark.proves("D-22")
@async_test
async def test_the_model_gets_the_limit_of_tool_calls_as_an_error_and_still_answers(tmp_path: Path) -> None:
    model = ScriptedModel([call("add", a=1, b=1), call("add", a=2, b=2), call("add", a=3, b=3)], say("enough"))
    async with open_agent_with_server(tmp_path, model) as (agent, mcp):
        result = await agent.run("add", limits=RunLimits(tool_calls=2))
        assert len(mcp.calls("add")) == 2
    assert (result.status, result.text, result.tool_calls) == ("completed", "enough", 2)
    text, is_error = tool_outputs(model.requests[1])["call_3"]
    assert is_error
    assert "limit" in text
    assert model.requests[1].tool_choice.mode == "none"


BAD_CALLS = [
    (FunctionCall(call_id="c", name="add", arguments='{"a": 1,'), "not valid JSON"),
    (FunctionCall(call_id="c", name="add", arguments="[1, 2]"), "must be a JSON object"),
    (FunctionCall(call_id="c", name="add", arguments='{"a": "one", "b": 2}'), "do not fit"),
    (FunctionCall(call_id="c", name="add", arguments=""), "do not fit"),
    (FunctionCall(call_id="c", name="ad", arguments="{}"), "Did you mean 'add'?"),
]


@pytest.mark.parametrize(("bad", "words"), BAD_CALLS, ids=[words for _, words in BAD_CALLS])
@async_test
async def test_a_call_that_cannot_be_run_is_explained_to_the_model(
    tmp_path: Path, bad: FunctionCall, words: str
) -> None:
    model = ScriptedModel(call_raw(bad.name, bad.arguments, call_id="c"), say("I see."))
    async with open_agent_with_server(tmp_path, model) as (agent, mcp):
        result = await agent.run("add")
        assert mcp.calls("add") == []
    assert result.status == "completed"
    text, is_error = tool_outputs(model.requests[1])["c"]
    assert is_error
    assert words in text


@async_test
async def test_an_empty_string_of_arguments_means_none(tmp_path: Path) -> None:
    model = ScriptedModel(call_raw("release", ""), say("ok"))
    async with open_agent_with_server(tmp_path, model) as (agent, mcp):
        await agent.run("go")
        assert [request.params["arguments"] for request in mcp.calls("release")] == [{}]


@pytest.mark.proves("004:US2-3", "004:FR-018", "000:US5-3", "000:FR-022")
@pytest.mark.parametrize(("tool", "words"), [("fail", "broken"), ("protocol_error", "-32050")])
@async_test
async def test_a_failed_tool_call_reaches_the_model_as_an_error(tmp_path: Path, tool: str, words: str) -> None:
    arguments = {"message": "broken"} if tool == "fail" else {}
    model = ScriptedModel(call(tool, **arguments), say("It failed."))
    async with open_agent_with_server(tmp_path, model) as (agent, _):
        assert (await agent.run("try")).status == "completed"
    text, is_error = tool_outputs(model.requests[1])["call_1"]
    assert is_error
    assert words in text


@async_test
async def test_usage_is_summed_over_turns(tmp_path: Path) -> None:
    model = ScriptedModel([call("add", a=1, b=1), spend(5, 2)], [say("2"), spend(9, 4, cached=5)])
    async with open_agent_with_server(tmp_path, model) as (agent, _):
        result = await agent.run("add")
    assert result.usage == Usage(input_tokens=14, output_tokens=6, cached_tokens=5)
    assert result.usage.total_tokens == 20


@async_test
async def test_a_model_that_fails_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=1), fail(ModelError("The model is on holiday.")))
    async with open_agent_with_server(tmp_path, model) as (agent, _):
        result = await agent.run("add")
    assert result.status == "failed"
    assert result.error is not None
    assert result.error.message == "The model is on holiday."
    assert [item.type for item in result.items] == ["function_call", "function_call_output"], "nothing is lost"


@pytest.mark.parametrize(("reason", "words"), [("length", "tokens"), ("content_filter", "filter")])
@async_test
async def test_an_answer_that_was_cut_is_incomplete(tmp_path: Path, reason: FinishReason, words: str) -> None:
    model = ScriptedModel([say("half"), finish(reason)])
    async with open_agent(tmp_path, model) as agent:
        result = await agent.run("tell")
    assert (result.status, result.text) == ("incomplete", "half")
    assert words in result.reason


@async_test
async def test_a_call_that_was_cut_is_not_made_and_ends_the_run(tmp_path: Path) -> None:
    model = ScriptedModel([say("I add."), call("add", a=1, b=2), call_raw("add", '{"a": 1'), finish("length")])
    async with open_agent_with_server(tmp_path, model) as (agent, mcp):
        result = await agent.run("add")
    assert (result.status, result.cause, result.tool_calls) == ("incomplete", "max_output_tokens", 0)
    assert [item.type for item in result.items] == ["message"], "nobody has to answer half a call"
    assert not mcp.calls()


@pytest.mark.proves("D-24")
@async_test
async def test_a_client_function_outside_the_allowed_tools_is_answered_instead_of_handed_out(tmp_path: Path) -> None:
    model = ScriptedModel(call("ask_client"), say("I may not."))
    own = [ToolSpec(name="ask_client"), ToolSpec(name="other")]
    async with open_agent(tmp_path, model) as agent:
        result = await agent.run("ask", functions=own, tool_choice=ToolChoice(allowed=("other",)))
    assert (result.status, result.text) == ("completed", "I may not.")
    text, is_error = tool_outputs(model.requests[1])["call_1"]
    assert is_error
    assert "not allowed" in text


@async_test
async def test_a_call_that_a_person_must_approve_holds_its_whole_turn() -> None:
    shelf = FakeExecutor(free=lambda: "ok", dangerous=lambda: "done")
    toolbox = Toolbox([shelf], checker=ArgumentChecker(), needs_approval=lambda each: each.name == "dangerous")
    model = ScriptedModel([call("free"), call("dangerous")], say("Both are done."))
    question = ModelRequest(items=(text_message("user", "do it"),))
    first = await Run(RunRequest(run_id="r1", model=question), model, toolbox).execute(EventLog())
    assert (first.status, shelf.calls) == ("requires_action", [])
    assert [each.name for each in first.pending] == ["free", "dangerous"]
    resumed = ModelRequest(items=(*question.items, *first.items))
    request = RunRequest(run_id="r2", model=resumed, pending=first.pending)
    second = await Run(request, model, Toolbox([shelf], checker=ArgumentChecker())).execute(EventLog())
    assert (second.status, second.text) == ("completed", "Both are done.")
    assert [name for name, _ in shelf.calls] == ["free", "dangerous"]


@pytest.mark.proves("D-23")
@async_test
async def test_a_mixed_turn_that_cannot_be_resumed_runs_our_calls_at_once() -> None:
    shelf = FakeExecutor(add=lambda: "3", dangerous=lambda: "never")
    toolbox = Toolbox(
        [shelf],
        checker=ArgumentChecker(),
        client_functions=[ToolSpec(name="ask_client")],
        needs_approval=lambda each: each.name == "dangerous",
    )
    model = ScriptedModel([call("add"), call("ask_client")], [call("add"), call("dangerous")])
    question = ModelRequest(items=(text_message("user", "both"),))
    mixed = await Run(RunRequest(run_id="r1", model=question, can_pause=False), model, toolbox).execute(EventLog())
    assert (mixed.status, mixed.pending) == ("completed", ())
    assert [item.type for item in mixed.items] == ["function_call", "function_call", "function_call_output"]
    undecided = await Run(RunRequest(run_id="r2", model=question, can_pause=False), model, toolbox).execute(EventLog())
    assert (undecided.status, [each.name for each in undecided.pending]) == ("requires_action", ["dangerous"])
    assert [name for name, _ in shelf.calls] == ["add", "add"]
