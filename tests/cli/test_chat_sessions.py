"""Sessions in a terminal: `holodeck chat --session` and `--resume`, `holodeck sessions`, and a program beside them."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from agent_project import AgentProject, messages_of_turn, serve_scripted
from async_tests import async_test
from pty_terminal import CTRL_C, CTRL_D, TypingTerminal

from holodeck.testing.model.script import call, say, wait
from holodeck.testing.model.scripted import ScriptedServer

ENTER = "\r"
PROGRAM = """
import sys
from holodeck import Agent, Session
agent = Agent.from_file("agent.yaml")
print(agent.run_sync(sys.argv[2], session=Session.open(sys.argv[1])).output)
"""


@pytest.fixture
def project(tmp_path: Path) -> AgentProject:
    return AgentProject(tmp_path)


@asynccontextmanager
async def chatting(project: AgentProject, *args: str) -> AsyncIterator[TypingTerminal]:
    async with TypingTerminal("chat", *args, cwd=project.path, env=project.env) as terminal:
        await terminal.wait_for("/help lists the commands.")
        yield terminal


async def leave(terminal: TypingTerminal) -> str:
    """Leave the chat, and return what it said meanwhile."""
    await terminal.wait_for("you>")
    before = len(terminal.text)
    terminal.type_text(CTRL_D)
    assert await terminal.wait_exit() == 0
    return terminal.text[before:]


async def run_program(project: AgentProject, *args: str) -> str:
    environ = {"PATH": os.environ["PATH"], "HOME": str(project.path.parent), **project.env}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, *args), cwd=project.path, env=environ, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


def contents(model: ScriptedServer, turn: int) -> list[str]:
    return [message["content"] for message in messages_of_turn(model, turn)]


@async_test(120)
async def test_a_chat_a_program_and_a_resumed_chat_share_one_conversation(project: AgentProject) -> None:
    async with serve_scripted(say("Hello Ada."), say("You are Ada."), say("Ada, twice.")) as model:
        project.write(model)
        async with chatting(project, "--session", "trip") as terminal:
            await terminal.wait_for("stored as the session 'trip' in ")
            terminal.type_text("I am Ada." + ENTER)
            await terminal.wait_for("Hello Ada.")
            assert "holodeck chat --resume trip" in await leave(terminal)
        assert await run_program(project, "trip", "Who am I?") == "You are Ada.\n"
        async with chatting(project, "--resume") as terminal:
            await terminal.wait_for("Going on after 2 questions: Who am I?")
            terminal.type_text("And again?" + ENTER)
            await terminal.wait_for("Ada, twice.")
            await leave(terminal)
        assert contents(model, 2) == ["I am Ada.", "Hello Ada.", "Who am I?", "You are Ada.", "And again?"]
        listed = await project.run_holodeck("sessions", "list", "--json")
        (info,) = json.loads(listed.stdout)
        assert (info["id"], info["agent"], info["items"], info["title"]) == ("trip", "demo", 6, "I am Ada.")
        assert info["file"] == str(project.path / "agent.yaml")
        shown = await project.run_holodeck("sessions", "show", "trip")
        assert [line for line in shown.stdout.splitlines() if line][1:5] == [
            *("## You", "I am Ada.", "## Agent", "Hello Ada.")
        ]


@async_test(120)
async def test_a_chat_is_stored_only_if_the_user_asks_for_it(project: AgentProject) -> None:
    async with serve_scripted(say("One."), say("Two."), say("Three.")) as model:
        project.write(model)
        async with chatting(project) as terminal:
            terminal.type_text("First?" + ENTER)
            await terminal.wait_for("One.")
            assert "not stored. To store one: holodeck chat --session NAME" in " ".join((await leave(terminal)).split())
        assert not (project.path.parent / ".local" / "state" / "holodeck" / "sessions.db").exists()
        none = await project.run_holodeck("chat", "--resume")
        assert (none.returncode, none.stdout) == (1, "")
        assert "No session of " in none.stderr
        async with chatting(project) as terminal:
            terminal.type_text("Second?" + ENTER)
            await terminal.wait_for("Two.")
            await terminal.wait_for("you>")
            terminal.type_text("/session later" + ENTER)
            await terminal.wait_for("stored as the session 'later' in ")
            await leave(terminal)
        done = await project.run_holodeck("chat", "--resume", "later", stdin="Third?\n")
        assert (done.returncode, done.stdout) == (0, "Three.\n"), done.stderr
        assert contents(model, 2) == ["Second?", "Two.", "Third?"]


@async_test(120)
async def test_a_stopped_answer_and_a_reset_are_stored_as_well(project: AgentProject) -> None:
    async with serve_scripted([say("It was a dark"), wait(asyncio.Event())], say("Fine."), say("New.")) as model:
        project.write(model)
        async with chatting(project, "--session", "story") as terminal:
            terminal.type_text("Tell a story" + ENTER)
            await terminal.wait_for("It was a dark")
            terminal.type_text(CTRL_C)
            await terminal.wait_for("Stopped.")
            await leave(terminal)
        done = await project.run_holodeck("chat", "--resume", "story", stdin="Never mind\n/reset\nNew?\n")
        assert done.stdout == "Fine.\nNew.\n", done.stderr
        assert "forgotten, also in the session 'story'" in done.stderr
        assert contents(model, 1) == ["Tell a story", "It was a dark [stopped by the user]", "Never mind"]
        assert contents(model, 2) == ["New?"]


@async_test(120)
async def test_a_program_that_interferes_costs_the_chat_one_answer(project: AgentProject) -> None:
    may_answer = asyncio.Event()
    turns = ([say("Slow"), wait(may_answer), say(" answer.")], say("Quick."), say("After both."))
    async with serve_scripted(*turns) as model:
        project.write(model)
        async with chatting(project, "--session", "shared") as terminal:
            terminal.type_text("Slow?" + ENTER)
            await terminal.wait_for("Slow")
            await run_program(project, "shared", "Quick?")
            may_answer.set()
            await terminal.wait_for("Another process has changed the session 'shared'")
            await terminal.wait_for("you>")
            terminal.type_text("Slow again?" + ENTER)
            await terminal.wait_for("After both.")
        assert contents(model, 2) == ["Quick?", "Quick.", "Slow again?"]


@async_test(120)
async def test_sessions_are_shown_with_their_calls_and_deleted(project: AgentProject) -> None:
    async with serve_scripted(call("add", a=1, b=2), say("It is 3.")) as model:
        project.write(model, project.npx_server("calc"))
        done = await project.run_holodeck("chat", "--session", "sum", stdin="What is 1 + 2?\n")
        assert done.returncode == 0, done.stderr
        assert "stored as the session 'sum' in " in done.stderr
    table = await project.run_holodeck("sessions", "list")
    assert "sum" in table.stdout
    assert "What is 1 + 2?" in table.stdout
    items = json.loads((await project.run_holodeck("sessions", "show", "sum", "--json")).stdout)
    assert [item["type"] for item in items] == ["message", "function_call", "function_call_output", "message"]
    assert (await project.run_holodeck("sessions", "delete", "sum")).returncode == 0
    for args in (("sessions", "show", "sum"), ("sessions", "delete", "sum"), ("chat", "--resume", "sum")):
        gone = await project.run_holodeck(*args)
        assert (gone.returncode, gone.stdout) == (1, "")
        assert "There is no session 'sum'" in gone.stderr
    assert "There are no sessions yet" in (await project.run_holodeck("sessions", "list")).stderr
    both = await project.run_holodeck("chat", "--session", "a", "--resume", "b")
    assert both.returncode == 2
    mistaken = await project.run_holodeck("chat", "--resume", "agent.yaml")
    assert "holodeck chat agent.yaml --resume" in mistaken.stderr


@async_test(60)
async def test_a_damaged_store_is_one_line_and_no_traceback(project: AgentProject) -> None:
    async with serve_scripted(say("One.")) as model:
        project.write(model)
        await project.run_holodeck("chat", "--session", "a", stdin="First?\n")
    file = project.path.parent / ".local" / "state" / "holodeck" / "sessions.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE items SET data = x'00'")
    done = await project.run_holodeck("chat", "--resume", "a", stdin="Second?\n")
    assert done.returncode == 1
    assert "is damaged, and was not used" in done.stderr
    assert "Traceback" not in done.stderr


@async_test(60)
async def test_a_chat_that_cannot_be_stored_asks_nothing_and_says_what_is_stored_only_when_it_is(
    project: AgentProject,
) -> None:
    (project.path / "state").write_text("a file where a folder must be")
    async with serve_scripted(say("One."), say("Two.")) as model:
        project.write(model)
        project.env["HOLODECK_STATE"] = str(project.path / "state" / "below")
        refused = await project.run_holodeck("chat", "--session", "trip", stdin="Hello\n")
        assert (refused.returncode, refused.stdout, model.received) == (1, "", [])
        assert "Sessions cannot be stored in " in refused.stderr
        assert "is stored" not in refused.stderr
        project.env["HOLODECK_STATE"] = str(project.path / "writable")
        first = await project.run_holodeck("chat", "--session", "trip", stdin="Hello\n")
        assert "The conversation will be stored as the session 'trip' in " in first.stderr
        again = await project.run_holodeck("chat", "--resume", "trip", stdin="Again\n")
        assert "The conversation is stored as the session 'trip' in " in again.stderr
