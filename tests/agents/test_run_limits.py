"""A run ends at its limits, with what it has and the truth about why."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from agents.served_agent import output_of
from async_tests import async_test

from holodeck import (
    LLM,
    Agent,
    ConfigError,
    FunctionCall,
    MCPServer,
    Price,
    RunIncompleteError,
    RunLimits,
    ToolStarted,
    tool,
)
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, spend, wait

ADD = [call("add", a=1, b=2), spend(80, 20)]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def priced(url: str) -> LLM:
    """A model behind HTTP whose token costs one."""
    price = Price(input=1_000_000, output=1_000_000)
    return LLM.model_validate({"provider": "openai", "name": "m", "endpoint": url, "api_key": "k", "price": price})


@pytest.mark.parametrize(
    ("limits", "cause", "turns"),
    [
        (RunLimits(turns=2), "max_turns", 2),
        (RunLimits(tokens=150), "max_tokens", 2),
        (RunLimits(tokens=100), "max_tokens", 1),
        (RunLimits(tokens=101), "max_tokens", 2),
    ],
)
@async_test
async def test_a_run_stops_before_more_work_once_a_limit_is_reached(limits: RunLimits, cause: str, turns: int) -> None:
    model = ScriptedModel(ADD, ADD, ADD, ADD)
    result = await Agent(model, tools=[add], limits=limits).run("add")
    assert (result.status, result.cause, result.turns, result.tool_calls) == ("incomplete", cause, turns, turns - 1)
    assert "1 more tool call was not run" in result.reason
    with pytest.raises(RunIncompleteError, match="limit of"):
        _ = result.output


@async_test
async def test_an_answer_counts_though_it_exceeds_a_limit_of_tokens() -> None:
    result = await Agent(ScriptedModel([say("3"), spend(500, 500)]), limits=RunLimits(tokens=10)).run("add")
    assert (result.status, result.output) == ("completed", "3")


@async_test
async def test_a_run_stops_at_its_cost() -> None:
    async with ScriptedModel(ADD, ADD, ADD).serve() as server:
        agent = Agent(priced(server.url), tools=[add], limits=RunLimits(cost=150.0))
        result = await agent.run("add")
    assert (result.status, result.cause, result.turns, result.cost) == ("incomplete", "max_cost", 2, 200.0)
    assert "The limit of 150 for the cost is reached" in result.reason


@async_test
async def test_a_limit_of_cost_needs_a_price() -> None:
    with pytest.raises(ConfigError, match="has no price"):
        Agent("openai:gpt-of-tomorrow", limits=RunLimits(cost=1))
    Agent("openai:gpt-5-mini", limits=RunLimits(cost=1))
    model = ScriptedModel(say("Hi."))
    with pytest.raises(ConfigError, match="has no price"):
        await Agent(model).run("Hello", limits=RunLimits(cost=1))
    assert model.requests == []


@async_test
async def test_after_the_last_call_the_model_must_answer() -> None:
    model = ScriptedModel([*ADD, call("add", a=2, b=2)], say("3, and no more."))
    result = await Agent(model, tools=[add], limits=RunLimits(tool_calls=1)).run("add")
    assert (result.status, result.tool_calls) == ("completed", 1)
    assert model.requests[1].tool_choice.mode == "none"
    assert "limit of tool calls" in output_of(model.requests[1], "call_2")


@async_test
async def test_a_turn_in_progress_ends_with_the_time_of_the_run() -> None:
    never = asyncio.Event()
    model = ScriptedModel([say("I am thinking"), wait(never), say("4")])
    result = await Agent(model, limits=RunLimits(seconds=0.01)).run("add")
    assert (result.status, result.cause) == ("incomplete", "max_seconds")
    assert result.reason == "The limit of 0.01 seconds is reached; the turn in progress was cancelled."


@async_test
async def test_calls_in_progress_end_with_the_time_of_the_run_and_are_named() -> None:
    was_cancelled = asyncio.Event()

    async def ponder() -> str:
        try:
            return await asyncio.Event().wait() and "never"
        finally:
            was_cancelled.set()

    model = ScriptedModel([call("ponder"), call("add", a=1, b=2)])
    # Long enough for the other call to end first, which waits for nothing.
    result = await Agent(model, tools=[ponder, add], limits=RunLimits(seconds=2)).run("add")
    assert was_cancelled.is_set()
    assert (result.status, result.cause) == ("incomplete", "max_seconds")
    assert result.reason.endswith("calls in progress were cancelled, and it is unknown what they have done: ponder.")
    assert [item.name for item in result.items if isinstance(item, FunctionCall)] == ["ponder", "add"]


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (RunLimits(tokens=1), {"call_1": "not run", "call_2": "not run"}),
        (RunLimits(seconds=2), {"call_1": "may or may not have taken effect", "call_2": "3"}),
    ],
    ids=["before the calls", "in the calls"],
)
@async_test
async def test_the_conversation_goes_on_after_a_limit(limits: RunLimits, told: dict[str, str]) -> None:
    async def ponder() -> None:
        await asyncio.Event().wait()

    model = ScriptedModel([call("ponder"), call("add", a=1, b=2), spend(9, 9)], say("Where were we?"))
    agent = Agent(model, tools=[ponder, add])
    stopped = await agent.run("add", limits=limits)
    result = await agent.run("Go on", history=stopped.history)
    assert (stopped.status, result.output) == ("incomplete", "Where were we?")
    # Model APIs refuse a call without its output.
    outputs = {call_id: output_of(model.requests[1], call_id) for call_id in told}
    assert {call_id: told[call_id] in text for call_id, text in outputs.items()} == dict.fromkeys(told, True), outputs


@async_test
async def test_a_server_is_told_that_its_call_was_cancelled_at_the_limit() -> None:
    model = ScriptedModel(call("slow", seconds=600))
    async with (
        FaultyMCPServer(era="legacy") as server,
        Agent(model, tools=[MCPServer.http(server.url)], limits=RunLimits(seconds=2)) as agent,
    ):
        events = [event async for event in agent.stream("go")]
        assert any(isinstance(event, ToolStarted) for event in events)
        await server.received("notifications/cancelled", count=1)


@async_test
async def test_limits_of_a_run_replace_those_of_its_agent_one_by_one() -> None:
    agent = Agent(ScriptedModel(*[ADD] * 9), tools=[add], limits=RunLimits(turns=5, tokens=1000))
    first = await agent.run("add", limits=RunLimits(turns=2))
    assert (first.cause, first.turns) == ("max_turns", 2)
    second = await agent.run("add", limits=RunLimits(tokens=300))
    assert (second.cause, second.turns) == ("max_tokens", 3)


@pytest.mark.parametrize(
    ("limits", "turns"), [(None, 2), (RunLimits(turns=3), 3)], ids=["of the file", "of the program"]
)
@async_test
async def test_an_agent_file_has_its_limit_of_turns(tmp_path: Path, limits: RunLimits | None, turns: int) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(json.dumps({"name": "demo", "max_turns": 2}))
    agent: Agent = Agent.from_file(file, model=ScriptedModel(*[ADD] * 4), tools=[add], limits=limits)
    result = await agent.run("add")
    assert (result.cause, result.turns) == ("max_turns", turns)


WRONG_LIMITS: list[dict[str, Any]] = [
    {"turns": 0},
    {"tool_calls": -1},
    {"tokens": 0},
    {"seconds": 0},
    {"seconds": float("inf")},
    {"cost": -0.5},
    {"turns": True},
    {"tokens": "many"},
]


@pytest.mark.parametrize("wrong", WRONG_LIMITS, ids=str)
def test_a_limit_that_makes_no_sense_is_refused_where_it_is_written(wrong: dict[str, Any]) -> None:
    name = next(iter(wrong))
    with pytest.raises(ConfigError, match=f"The limit '{name}' is"):
        RunLimits(**wrong)
