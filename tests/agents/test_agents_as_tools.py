"""An agent among the tools of another one: asked by a call, paid by both, seen by the caller, and ended with it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from agents.served_agent import output_of, write_agent
from async_tests import async_test

from holodeck import (
    LLM,
    Agent,
    AgentProgressed,
    ConfigError,
    FunctionCallOutput,
    Hooks,
    MCPServer,
    Price,
    RefuseCall,
    RequestedCall,
    RunContext,
    RunFinished,
    RunLimits,
    RunStarted,
    TextAdded,
    ToolStarted,
    TurnStarted,
    Usage,
    runs,
)
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, fail, say, spend, wait


def asks(tool: str, *, then: str = "Asked.") -> ScriptedModel:
    """A model that asks one question of an agent, and answers."""
    return ScriptedModel([call(tool, question="What is it?"), spend(10, 1)], [say(then), spend(10, 1)])


@async_test
async def test_a_model_asks_another_agent_and_both_are_paid_by_the_caller() -> None:
    librarian = Agent(ScriptedModel([say("A book."), spend(100, 20)]), name="librarian", description="Knows books.")
    reader = Agent(asks("ask_librarian"), name="reader", tools=[librarian])
    model = asks("ask_reader")
    result = await Agent(model, tools=[reader]).run("What is it?")
    assert (result.output, result.turns, result.tool_calls) == ("Asked.", 2, 1)
    assert result.usage == Usage(input_tokens=140, output_tokens=24)
    (offered,) = model.requests[0].tools
    assert (offered.name, offered.description) == (
        "ask_reader",
        "Hand a task to an agent, and get its answer. The agent: the agent 'reader'",
    )
    assert librarian.as_tool().description.endswith("The agent: Knows books.")
    assert output_of(model.requests[1]) == "Asked."


@async_test
async def test_the_events_of_an_agent_that_is_asked_are_inside_those_of_its_caller() -> None:
    inner = Agent(ScriptedModel(say("Deep.")), name="inner")
    middle = Agent(asks("ask_inner"), name="middle", tools=[inner])
    events = [event async for event in Agent(asks("ask_middle"), tools=[middle]).stream("Go")]
    nested = [each for each in events if isinstance(each, AgentProgressed)]
    assert {(each.agent, each.call_id) for each in nested} == {("middle", "call_1")}
    assert isinstance(nested[0].event, RunStarted)
    assert isinstance(nested[-1].event, RunFinished)
    deepest = [each.event for each in nested if isinstance(each.event, AgentProgressed)]
    assert [each.event.text for each in deepest if isinstance(each.event, TextAdded)] == ["Deep."]
    kinds = [each.type for each in events]
    assert kinds.index("tool.started") < kinds.index("agent.progressed") < kinds.index("tool.finished")


@async_test
async def test_the_cost_of_an_agent_that_is_asked_counts_in_its_caller() -> None:
    async with asks("ask_cheap").serve() as dear_server, ScriptedModel([say("1"), spend(7, 0)]).serve() as cheap_server:
        cheap = Agent(priced(cheap_server.url, 1), name="cheap")
        result = await Agent(priced(dear_server.url, 100), tools=[cheap]).run("Go")
        assert result.cost == 2 * (10 * 100 + 1) + 7
    unpriced = Agent(ScriptedModel(), name="unpriced")
    with pytest.raises(ConfigError, match="'unpriced' has a limit of cost, but its model has no price"):
        Agent("openai:gpt-5-mini", tools=[unpriced], limits=RunLimits(cost=1))


def priced(url: str, amount: float) -> LLM:
    price = Price(input=amount * 1_000_000, output=1_000_000)
    return LLM.model_validate({"provider": "openai", "name": "m", "endpoint": url, "api_key": "k", "price": price})


@async_test
async def test_the_limit_of_a_caller_stops_the_agent_that_it_has_asked() -> None:
    loops = ScriptedModel(*[[call("look"), spend(40, 0)]] * 9)
    busy = Agent(loops, name="busy", tools=[look])
    model = asks("ask_busy")
    result = await Agent(model, name="boss", tools=[busy], limits=RunLimits(tokens=100)).run("Go")
    assert (result.status, result.cause, result.usage.total_tokens) == ("incomplete", "max_tokens", 11 + 3 * 40)
    assert result.reason == "The limit of 100 tokens is reached; the model was not asked again."
    (output,) = [each for each in result.items if isinstance(each, FunctionCallOutput)]
    assert "The limit of 100 tokens of the agent 'boss' that asked is reached" in str(output.content)
    assert len(loops.requests) == 3


@async_test
async def test_the_calls_of_an_agent_that_is_asked_count_for_its_caller() -> None:
    helper_model = ScriptedModel(call("look"), [call("look"), call("look")], say("Seen."))
    helper = Agent(helper_model, name="helper", tools=[look])
    model = ScriptedModel(call("ask_helper", question="Look"), say("Done."))
    result = await Agent(model, tools=[helper]).run("Go", limits=RunLimits(tool_calls=3))
    assert (result.output, result.tool_calls) == ("Done.", 1)
    assert "limit of tool calls" in output_of(helper_model.requests[2], "call_3")
    assert model.requests[1].tool_choice.mode == "none"


def look() -> str:
    """Look around."""
    return "nothing"


@async_test
async def test_the_own_limit_of_an_agent_that_is_asked_holds_and_its_caller_goes_on() -> None:
    busy = Agent(ScriptedModel(call("look")), name="busy", tools=[look], limits=RunLimits(turns=1))
    model = asks("ask_busy", then="It gave up.")
    assert (await Agent(model, tools=[busy]).run("Go")).output == "It gave up."
    assert "The agent 'busy' did not finish: The limit of 1 turn is reached" in output_of(model.requests[1])


@async_test
async def test_an_agent_that_fails_is_an_error_that_the_model_reads() -> None:
    broken = Agent(ScriptedModel(fail("quota exceeded")), name="broken")
    model = asks("ask_broken", then="It is broken.")
    result = await Agent(model, tools=[broken]).run("Go")
    assert result.output == "It is broken."
    assert "The agent 'broken' did not finish" in output_of(model.requests[1])
    assert "quota exceeded" in output_of(model.requests[1])


@async_test
async def test_what_an_agent_has_spent_counts_though_its_caller_ran_out_of_time() -> None:
    never = asyncio.Event()
    slow = Agent(ScriptedModel([call("look"), spend(5, 5)], wait(never)), name="slow", tools=[look])
    model = asks("ask_slow")
    result = await Agent(model, tools=[slow], limits=RunLimits(seconds=2)).run("Go")
    assert (result.cause, result.usage.total_tokens) == ("max_seconds", 11 + 10)
    assert result.reason.endswith("it is unknown what they have done: ask_slow.")


@async_test
async def test_an_agent_that_is_asked_ends_with_its_caller() -> None:
    ended: list[str] = []

    async def ponder() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ponder")

    thinker = Agent(ScriptedModel(call("ponder")), name="thinker", tools=[ponder])
    async with aclosing(Agent(asks("ask_thinker"), tools=[thinker]).stream("Go")) as events:
        async for event in events:
            if isinstance(event, AgentProgressed) and isinstance(event.event, ToolStarted):
                break
    assert ended == ["ponder"]


class Watch(Hooks[Any]):
    """Notes each call, and refuses those of one tool."""

    def __init__(self, name: str, seen: list[tuple[str, str, str]], refused: str = "") -> None:
        self._name, self._seen, self._refused = name, seen, refused

    async def before_call(self, ctx: RunContext[Any], call: RequestedCall) -> RefuseCall | None:
        self._seen.append((self._name, call.agent, call.name))
        return RefuseCall(reason="Not that one.") if call.name == self._refused else None


@async_test
async def test_hooks_of_the_caller_decide_about_the_calls_of_agents_that_it_asks() -> None:
    seen: list[tuple[str, str, str]] = []
    helper_model = ScriptedModel(call("look"), say("I may not."))
    helper = Agent(helper_model, name="helper", tools=[look], hooks=[Watch("own", seen)])
    await Agent(asks("ask_helper"), name="boss", tools=[helper], hooks=[Watch("boss", seen, "look")]).run("Go")
    assert seen == [("boss", "boss", "ask_helper"), ("own", "helper", "look"), ("boss", "helper", "look")]
    assert output_of(helper_model.requests[1]) == "Not that one."


@pytest.mark.parametrize("is_file", [False, True], ids=["agent in code", "agent of a file"])
@async_test
async def test_an_approval_reaches_the_person_of_the_caller(tmp_path: Path, *, is_file: bool) -> None:
    asked: list[RequestedCall] = []

    def approve(ctx: RunContext[None], request: RequestedCall) -> bool:
        asked.append(request)
        return True

    adds = ScriptedModel(call("add", a=1, b=2), say("3"))
    async with FaultyMCPServer() as server:
        if is_file:
            helper: Agent = Agent.from_file(write_agent(tmp_path, server.url, {"approval": "always"}), model=adds)
        else:
            helper = Agent(adds, name="demo", tools=[MCPServer.http(server.url, approval="always")])
        await Agent(asks("ask_demo"), tools=[helper], on_approval=approve).run("Go")
    assert [(each.agent, each.tool, dict(each.arguments)) for each in asked] == [("demo", "add", {"a": 1, "b": 2})]
    assert output_of(adds.requests[1]) == "3"


@async_test
async def test_deps_of_the_caller_are_those_of_the_agent_that_it_asks() -> None:
    def whose(ctx: RunContext[str]) -> str:
        return f"{ctx.agent}: {ctx.deps}"

    helper_model = ScriptedModel(call("whose"), say("Found."))
    helper = Agent(helper_model, name="helper", tools=[whose], deps_type=str)
    await Agent(asks("ask_helper"), tools=[helper], deps_type=str).run("Go", deps="Ada")
    assert output_of(helper_model.requests[1]) == "helper: Ada"
    with pytest.raises(ConfigError, match="'helper' needs deps, which it gets from the agent that asks it"):
        Agent(ScriptedModel(), tools=[helper])


@async_test
async def test_servers_of_an_agent_that_is_asked_stay_open_in_the_block_of_its_caller() -> None:
    async with FaultyMCPServer() as server:
        adds = ScriptedModel(call("add", a=1, b=2), say("3"), call("add", a=3, b=4), say("7"))
        helper = Agent(adds, name="helper", tools=[MCPServer.http(server.url)])
        model = ScriptedModel(*[call("ask_helper", question="Add"), say("Added.")] * 2)
        async with Agent(model, tools=[helper]) as boss:
            await boss.run("Add")
            await boss.run("Add")
        assert len([each for each in server.requests if each.method == "tools/list"]) == 1


@async_test
async def test_a_resumed_run_counts_what_an_agent_has_spent_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLODECK_STATE", str(tmp_path / "state"))
    waits = wait(asyncio.Event())
    helper_model = ScriptedModel([say("Yes."), spend(100, 0)])
    helper = Agent(helper_model, name="helper")
    first = ScriptedModel([call("ask_helper", question="Is it?"), spend(1, 0)], waits)
    boss = Agent(first, name="boss", tools=[helper])
    async with aclosing(boss.stream("Go", durable=True, run_id="run_asked")) as events:
        async for event in events:
            if isinstance(event, TurnStarted) and event.turn == 2:
                break
    result = await runs.resume("run_asked", boss.with_(model=ScriptedModel([say("Done."), spend(10, 0)])))
    assert (result.output, result.usage.total_tokens) == ("Done.", 111)
    assert len(helper_model.requests) == 1


def test_names_of_agents_among_the_tools() -> None:
    one, two = (Agent(ScriptedModel()) for _ in range(2))
    with pytest.raises(ConfigError, match=r"Two agents among the tools .* 'ask_agent'.*agent.as_tool\(name=...\)"):
        Agent(ScriptedModel(), tools=[one, two])
    agent = Agent(ScriptedModel(), tools=[one, two.as_tool(name="second", description="The other one.")])
    assert [each.name for each in agent.tools] == ["ask_agent", "second"]
    with pytest.raises(ConfigError, match="'two words' cannot be the name of a tool"):
        one.as_tool(name="two words")
    with pytest.raises(ConfigError, match="Two tools of the agent are called 'look'"):
        Agent(ScriptedModel(), tools=[look, one.as_tool(name="look")])
    with pytest.raises(ConfigError, match=r"the agent 'agent' among its tools: give it a file"):
        Agent("openai:gpt-5-mini", tools=[one]).to_yaml()


def test_agents_that_wait_for_each_other_are_bounded() -> None:
    agent = Agent(ScriptedModel(), name="a1")
    for number in range(2, 9):
        agent = Agent(ScriptedModel(), name=f"a{number}", tools=[agent])
    with pytest.raises(ConfigError, match="asks agents that ask agents, more than 8 deep"):
        Agent(ScriptedModel(), tools=[agent])
