"""The event log: numbered, append-only, and the same for every reader, whenever it comes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from async_tests import async_test
from engine.scripted_agent import open_agent_with_server

from holodeck.engine.event_log import EventLog
from holodeck.models.events import CallAdded, ItemFinished, RunFinished, RunResult, RunStarted, TextAdded, TurnStarted
from holodeck.testing import ScriptedModel, call, say

END = RunFinished(result=RunResult(status="completed", text=""))


@async_test
async def test_early_late_and_returning_readers_see_the_same_events() -> None:
    log = EventLog()
    early = asyncio.create_task(_collect(log))
    for number in range(5):
        log.append(TextAdded(item_id="m", text=str(number)))
        await asyncio.sleep(0)
    returning = asyncio.create_task(_collect(log, starting_after=2))
    log.append(END)
    late = await _collect(log)
    assert [number for number, _ in late] == [0, 1, 2, 3, 4, 5]
    assert await early == late
    assert await returning == late[3:]


def test_nothing_follows_the_end() -> None:
    log = EventLog()
    log.append(END)
    with pytest.raises(RuntimeError):
        log.append(RunStarted(run_id="r", model="m"))


@async_test
async def test_a_reader_that_leaves_does_not_disturb_the_others() -> None:
    log = EventLog()
    leaving = asyncio.create_task(_collect(log))
    staying = asyncio.create_task(_collect(log))
    await asyncio.sleep(0)
    leaving.cancel()
    log.append(END)
    assert len(await staying) == 1


@async_test
async def test_the_events_of_a_run_have_stable_ids_from_start_to_end(tmp_path: Path) -> None:
    model = ScriptedModel([say("let me add"), call("add", a=1, b=2)], say("three"), chunk=4)
    async with open_agent_with_server(tmp_path, model) as (agent, _):
        events = [event async for event in agent.stream("add")]
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunFinished)
    assert [event.turn for event in events if isinstance(event, TurnStarted)] == [1, 2]
    assert "".join(event.text for event in events if isinstance(event, TextAdded)) == "let me addthree"
    finished = {event.item.id for event in events if isinstance(event, ItemFinished)}
    pieces = {event.item_id for event in events if isinstance(event, TextAdded | CallAdded)}
    assert pieces <= finished
    assert len(finished) == 4, "two messages, a call and its output"


async def _collect(log: EventLog, starting_after: int = -1) -> list[tuple[int, object]]:
    return [pair async for pair in log.read(starting_after)]
