"""Sessions: a conversation goes on from run to run, of one program, of several, and after a crash."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest
from async_tests import async_test

from holodeck import Agent, ConfigError, HoloDeckError, Session, SessionConflictError, tool
from holodeck.lib.errors import ExecutionError, StorageError
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, Message, TextContent
from holodeck.models.model_io import ToolSpec
from holodeck.testing import ScriptedModel, call, fail, say, wait

# What another process runs: it asks one question in the session, and the parent reads its answer.
OTHER_PROGRAM = """
import sys
from holodeck import Agent, Session
from holodeck.testing import ScriptedModel, say
session = Session.open(sys.argv[1], store=sys.argv[2])
Agent(ScriptedModel(say(sys.argv[4]))).run_sync(sys.argv[3], session=session)
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "state" / "sessions.db"


def texts(items: tuple[Item, ...]) -> list[str]:
    return [item.text for item in items if isinstance(item, Message)]


def run_other_program(*args: str | Path) -> None:
    subprocess.run([sys.executable, "-c", OTHER_PROGRAM, *map(str, args)], check=True, timeout=60)


@async_test
async def test_each_run_of_a_session_gets_the_conversation_so_far() -> None:
    model = ScriptedModel(say("Hello Ada."), say("Ada."))
    agent, session = Agent(model), Session()
    await agent.run("I am Ada.", session=session)
    result = await agent.run("Who am I?", session=session)
    assert result.output == "Ada."
    assert texts(model.requests[1].items) == ["I am Ada.", "Hello Ada.", "Who am I?"]
    assert session.items == result.history
    assert session.title == "I am Ada."
    session.clear()
    assert (session.items, session.title) == ((), "")


def test_run_sync_has_sessions_as_well(store: Path) -> None:
    agent = Agent(ScriptedModel(say("One."), say("Two.")))
    for question in ("First?", "Second?"):
        agent.run_sync(question, session=Session.open("numbers", store=store))
    assert texts(Session.open("numbers", store=store).items) == ["First?", "One.", "Second?", "Two."]


def test_a_stored_session_is_private_and_has_calls_with_their_outputs(store: Path) -> None:
    @tool
    def price(product: str) -> str:
        """Price of a product."""
        return "3.50"

    agent = Agent(ScriptedModel(call("price", product="tea"), say("3.50 euros.")), name="shop", tools=[price])
    session = Session.open("tea", store=store)
    result = agent.run_sync("What does tea cost?", session=session)
    assert session.items == result.history
    assert [type(item) for item in session.items] == [Message, FunctionCall, FunctionCallOutput, Message]
    (info,) = Session.list(store=store)
    assert (info.id, info.title, info.agent, info.file, info.items) == ("tea", "What does tea cost?", "shop", "", 4)
    assert store.stat().st_mode & 0o777 == 0o600
    assert store.parent.stat().st_mode & 0o777 == 0o700


@async_test
async def test_the_last_event_of_a_stream_comes_after_the_session_is_stored(store: Path) -> None:
    session = Session.open("s", store=store)
    async for event in Agent(ScriptedModel(say("Hi."))).stream("Hello", session=session):
        if event.type == "run.finished":
            assert texts(session.items) == ["Hello", "Hi."]


@async_test
async def test_a_run_that_failed_or_was_cancelled_leaves_the_session_as_it_was() -> None:
    never = asyncio.Event()
    agent, session = Agent(ScriptedModel(say("One."), fail("busy"), [say("Two"), wait(never)])), Session()
    await agent.run("First?", session=session)
    assert (await agent.run("Second?", session=session)).status == "failed"
    async with aclosing(agent.stream("Third?", session=session)) as events:
        async for event in events:
            if event.type == "text.added":
                break
    assert texts(session.items) == ["First?", "One."]


@async_test
async def test_a_run_at_its_limit_of_turns_leaves_a_conversation_that_models_accept(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text("name: demo\nmax_turns: 1\n")

    def add(a: int, b: int) -> int:
        return a + b

    model = ScriptedModel(call("add", a=1, b=2), say("Fine."))
    agent, session = Agent.from_file(tmp_path / "agent.yaml", model=model, tools=[add]), Session()
    assert (await agent.run("Add", session=session)).status == "incomplete"
    await agent.run("And now?", session=session)
    calls = [item.call_id for item in model.requests[1].items if isinstance(item, FunctionCall)]
    outputs = [item.call_id for item in model.requests[1].items if isinstance(item, FunctionCallOutput)]
    assert calls == outputs
    assert len(calls) == 1


@async_test
async def test_outputs_of_the_programs_own_functions_are_the_next_question() -> None:
    function = ToolSpec(name="ask", description="Ask the user", parameters={"type": "object"})
    model = ScriptedModel(call("ask"), say("Blue it is."))
    agent, session = Agent(model), Session()
    paused = await agent.run("Choose", session=session, functions=[function])
    assert paused.items == session.items[1:]
    (pending,) = [item for item in session.items if isinstance(item, FunctionCall)]
    await agent.run(
        [FunctionCallOutput(call_id=pending.call_id, content=(TextContent(text="blue"),))],
        session=session,
        functions=[function],
    )
    assert texts(session.items) == ["Choose", "Blue it is."]


@async_test
async def test_runs_of_one_session_wait_for_each_other(store: Path) -> None:
    may_answer = asyncio.Event()
    slow = ScriptedModel([wait(may_answer), say("One.")])
    quick = ScriptedModel(say("Two."))
    first = asyncio.create_task(Agent(slow).run("First?", session=Session.open("s", store=store)))
    while not slow.requests:  # noqa: ASYNC110 - the model has no event for it
        await asyncio.sleep(0)
    second = asyncio.create_task(Agent(quick).run("Second?", session=Session.open("s", store=store)))
    third = asyncio.create_task(Agent(quick).run("Third?", session=Session.open("s", store=store)))
    await asyncio.sleep(0)
    third.cancel()
    may_answer.set()
    await first
    await second
    assert texts(quick.requests[0].items) == ["First?", "One.", "Second?"]


@async_test
async def test_runs_in_two_event_loops_wait_for_each_other(store: Path) -> None:
    may_answer = asyncio.Event()
    slow, quick = ScriptedModel([wait(may_answer), say("One.")]), ScriptedModel(say("Two."))
    first = asyncio.create_task(Agent(slow).run("First?", session=Session.open("s", store=store)))
    while not slow.requests:  # noqa: ASYNC110 - the model has no event for it
        await asyncio.sleep(0)
    session = Session.open("s", store=store)
    second = asyncio.create_task(asyncio.to_thread(Agent(quick).run_sync, "Second?", session=session))
    await asyncio.sleep(0)
    may_answer.set()
    await first
    assert (await second).output == "Two."
    assert texts(quick.requests[0].items) == ["First?", "One.", "Second?"]


@async_test
async def test_a_tool_that_asks_in_the_session_of_its_own_run_gets_an_error_instead_of_waiting() -> None:
    session = Session()
    inner = Agent(ScriptedModel(say("never")))

    async def ask() -> str:
        try:
            return (await inner.run("Inner?", session=session)).output
        except ExecutionError as error:
            return str(error)

    result = await Agent(ScriptedModel(call("ask"), say("Done.")), tools=[ask]).run("Go", session=session)
    output = result.items[1]
    assert isinstance(output, FunctionCallOutput)
    assert "would wait for its end" in str(output.content)
    assert len(session.items) == 4


@async_test(60)
async def test_another_process_goes_on_with_a_session(store: Path) -> None:
    session = Session.open("shared", store=store)
    await Agent(ScriptedModel(say("Hello Ada."))).run("I am Ada.", session=session)
    await asyncio.to_thread(run_other_program, "shared", store, "Who am I?", "Ada.")
    assert texts(session.items) == ["I am Ada.", "Hello Ada.", "Who am I?", "Ada."]


@async_test(60)
async def test_a_change_by_another_process_during_a_run_is_a_conflict_that_loses_nothing(store: Path) -> None:
    may_answer = asyncio.Event()
    model = ScriptedModel([wait(may_answer), say("Mine.")], say("Again."))
    agent, session = Agent(model), Session.open("shared", store=store)
    running = asyncio.create_task(agent.run("My question", session=session))
    while not model.requests:  # noqa: ASYNC110 - the model has no event for it
        await asyncio.sleep(0)
    await asyncio.to_thread(run_other_program, "shared", store, "Other question", "Other answer")
    may_answer.set()
    with pytest.raises(SessionConflictError, match="Another process has changed the session 'shared'") as caught:
        await running
    assert caught.value.result is not None
    assert caught.value.result.output == "Mine."
    assert texts(session.items) == ["Other question", "Other answer"]
    await agent.run("My question", session=session)
    assert texts(session.items) == ["Other question", "Other answer", "My question", "Again."]


@async_test
async def test_a_session_that_was_deleted_and_made_again_during_a_run_is_a_conflict(store: Path) -> None:
    may_answer = asyncio.Event()
    model = ScriptedModel(say("One."), [wait(may_answer), say("Two.")])
    agent, session = Agent(model), Session.open("s", store=store)
    await agent.run("First?", session=session)
    running = asyncio.create_task(agent.run("Second?", session=session))
    while len(model.requests) < 2:  # noqa: ASYNC110 - the model has no event for it
        await asyncio.sleep(0)
    Session.delete("s", store=store)
    await asyncio.to_thread(run_other_program, "s", store, "New", "Yes")
    may_answer.set()
    with pytest.raises(SessionConflictError):
        await running
    assert texts(session.items) == ["New", "Yes"]


def test_sessions_are_listed_by_their_last_use_and_stay_until_deleted(store: Path) -> None:
    assert Session.list(store=store) == []
    agent = Agent(ScriptedModel(*[say("Yes.")] * 3))
    for name in ("a", "b", "a"):
        agent.run_sync(f"Question of {name} " + "x" * 200, session=Session.open(name, store=store))
    assert [info.id for info in Session.list(store=store)] == ["a", "b"]
    assert len(Session.list(store=store)[0].title) <= 80
    Session.delete("a", store=store)
    assert [info.id for info in Session.list(store=store)] == ["b"]
    with pytest.raises(ExecutionError, match="There is no session 'a'"):
        Session.delete("a", store=store)


def test_the_store_is_in_the_state_folder_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLODECK_STATE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert Session.open("x").path == tmp_path / "holodeck" / "sessions.db"
    monkeypatch.setenv("HOLODECK_STATE", str(tmp_path / "own"))
    assert Session.open("x").path == tmp_path / "own" / "sessions.db"
    assert Session().path is None


def test_a_session_and_a_history_together_and_a_name_without_its_session_are_refused() -> None:
    with pytest.raises(ConfigError, match="'session' or a 'history'"):
        Agent(ScriptedModel()).run_sync("Hi", session=Session(), history=[Message(role="user", content=())])
    with pytest.raises(ConfigError, match="printable"):
        Session.open("a\nb")
    with pytest.raises(ConfigError, match=r"'session' is a str: give a Session, as in Session.open\('name'\)"):
        Agent(ScriptedModel()).run_sync("Hi", session=cast("Any", "name"))


def test_a_damaged_store_is_an_error_that_says_what_to_do(store: Path) -> None:
    agent = Agent(ScriptedModel(*[say("Yes.")] * 4))
    agent.run_sync("First?", session=Session.open("a", store=store))
    with sqlite3.connect(store) as connection:
        connection.execute("UPDATE items SET data = ? WHERE position = 1", (b"\0\0",))
    connection.close()
    with pytest.raises(StorageError, match="holodeck sessions delete a"):
        agent.run_sync("Second?", session=Session.open("a", store=store))
    agent.run_sync("Other?", session=Session.open("b", store=store))
    store.write_bytes(os.urandom(8192))
    with pytest.raises(StorageError, match=r"is damaged .* Restore a copy of it, or move it away"):
        agent.run_sync("Second?", session=Session.open("a", store=store))
    store.unlink()
    store.mkdir()
    with pytest.raises(HoloDeckError, match="cannot be"):
        agent.run_sync("Second?", session=Session.open("a", store=store))


def test_a_newer_store_is_left_alone(store: Path) -> None:
    store.parent.mkdir()
    with sqlite3.connect(store) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StorageError, match="newer HoloDeck"):
        Session.list(store=store)


def test_importing_holodeck_does_not_import_sqlite() -> None:
    code = "import sys, holodeck, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "sqlite3" not in json.loads(done.stdout)
