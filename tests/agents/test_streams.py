"""Streams of agents: as text, and for code without an event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest
from async_tests import async_test

from holodeck import Agent, Message, RunFinished, RunIncompleteError, RunLimits, TextAdded
from holodeck.models.events import RunStarted
from holodeck.testing import ScriptedModel, call, say, wait


def look() -> str:
    return "nothing"


@async_test
async def test_the_text_of_the_model_comes_piece_by_piece() -> None:
    model = ScriptedModel([say("Let me see. "), call("look")], say("Nothing."), chunk=4)
    texts = [text async for text in Agent(model, tools=[look]).stream_text("What is there?")]
    assert "".join(texts) == "Let me see. Nothing."
    assert len(texts) > 2


@async_test
async def test_a_stream_of_text_says_at_its_end_that_the_run_is_not_complete() -> None:
    agent = Agent(ScriptedModel([say("Well"), call("look")]), tools=[look], limits=RunLimits(turns=1))
    texts: list[str] = []

    async def read() -> None:
        async for text in agent.stream_text("Go"):
            texts.append(text)

    with pytest.raises(RunIncompleteError, match="The limit of 1 turn is reached"):
        await read()
    assert texts == ["Well"]


def test_events_and_text_come_without_an_event_loop() -> None:
    agent = Agent(ScriptedModel(say("[1, 2]"), say("[3]")), output_type=list[int])
    events = list(agent.stream_sync("Count"))
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunFinished)
    assert events[-1].result.output == [1, 2]
    assert "".join(agent.stream_text_sync("Go on")) == "[3]"


@async_test
async def test_a_synchronous_stream_works_where_an_event_loop_runs() -> None:
    assert "".join(Agent(ScriptedModel(say("Hi."))).stream_text_sync("Hello")) == "Hi."


def test_closing_a_synchronous_stream_cancels_the_run() -> None:
    was_cancelled = threading.Event()

    async def ponder() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()

    events = Agent(ScriptedModel([say("Wait"), call("ponder")]), tools=[ponder]).stream_sync("Go")
    for event in events:
        if event.type == "tool.started":
            break
    events.close()
    assert was_cancelled.is_set()


def test_what_fails_in_a_synchronous_stream_is_raised() -> None:
    with pytest.raises(TypeError, match="A run has no option 'max_turn'"):
        list(Agent(ScriptedModel()).stream_sync("Go", max_turn=1))  # type: ignore[call-arg]


@async_test
async def test_text_that_came_before_the_time_was_over_is_kept() -> None:
    agent = Agent(ScriptedModel([say("The answer is"), wait(asyncio.Event())], say("42")))
    events = [event async for event in agent.stream("Go", limits=RunLimits(seconds=0.3))]
    assert isinstance(events[-1], RunFinished)
    result = events[-1].result
    assert (result.status, result.cause, result.text) == ("incomplete", "max_seconds", "The answer is")
    (message,) = result.items
    assert isinstance(message, Message)
    (finished,) = [event for event in events if event.type == "item.finished"]
    assert (finished.item, finished.is_cut) == (message, True)
    assert [each.item_id for each in events if isinstance(each, TextAdded)] == [message.id]
    assert (await agent.run("Go on", history=result.history)).output == "42"


@async_test
async def test_text_of_a_turn_that_has_ended_is_there_once_when_the_time_is_over() -> None:
    async def ponder() -> None:
        await asyncio.Event().wait()

    agent = Agent(ScriptedModel([say("I will think."), call("ponder")]), tools=[ponder])
    result = await agent.run("Go", limits=RunLimits(seconds=0.3))
    assert result.text == "I will think."
    assert [each.type for each in result.items] == ["message", "function_call"]
