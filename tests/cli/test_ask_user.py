"""The question whether a tool may run: the last thing on the screen until it has an answer that it knows."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from agent_project import AgentProject, messages_of_turn, serve_scripted
from async_tests import async_test
from pty_terminal import TypingTerminal

from holodeck.cli.output.progress import PROGRESS_STEP
from holodeck.lib.limits import PROGRESS_DELAY
from holodeck.testing import call, say

ENTER = "\r"
PROMPT = "[y/N] (? for help) "
BUSY = f"""
import time

def busy() -> str:
    \"\"\"Prints, and works long enough for a line of progress.\"\"\"
    print("busy prints this")
    time.sleep({PROGRESS_DELAY + 3 * PROGRESS_STEP})
    open("done", "w").write("x")
    return "busy is over"
"""
FUNCTION = "  - {type: function, name: busy, description: d, file: busy.py, function: busy}"


@pytest.fixture
def project(tmp_path: Path) -> AgentProject:
    return AgentProject(tmp_path)


@pytest.mark.parametrize("command", [["run", "Go"], ["chat"]])
@async_test(60)
async def test_nothing_is_written_below_a_question_until_it_is_answered(
    project: AgentProject, command: list[str]
) -> None:
    os.mkfifo(project.path / "done")
    (project.path / "busy.py").write_text(BUSY)
    async with serve_scripted([call("add", a=1, b=2), call("busy")], say("Well.")) as model:
        project.write(model, project.npx_server("calc", more=", approval: always"), FUNCTION)
        async with TypingTerminal(*command, cwd=project.path, env=project.env) as terminal:
            if command == ["chat"]:
                await terminal.wait_for("you>")
                terminal.type_text("Go" + ENTER)
            await terminal.wait_for(PROMPT)
            await asyncio.to_thread((project.path / "done").read_text)
            terminal.type_text("?" + ENTER)
            assert await terminal.wait_for("  y: run this call once") == "?\n"
            assert "busy" not in await terminal.wait_for(PROMPT)
            terminal.type_text("y" + ENTER)
            await terminal.wait_for("busy prints this")
            await terminal.wait_for("Well.")
        assert [expected["content"] for expected in messages_of_turn(model, 1)[-2:]] == ["3", "busy is over"]


@pytest.mark.parametrize(
    ("answer", "expected"), [("Y", "3"), ("yes", "3"), ("n", "did not approve"), ("NO", "did not")]
)
@async_test(60)
async def test_an_answer_that_is_neither_yes_nor_no_repeats_the_question(
    project: AgentProject, answer: str, expected: str
) -> None:
    async with serve_scripted(call("add", a=1, b=2), say("Well.")) as model:
        project.write(model, project.npx_server("calc", more=", approval: always"))
        async with TypingTerminal("run", "Go", cwd=project.path, env=project.env) as terminal:
            await terminal.wait_for(PROMPT)
            for unknown in ("maybe", "yn", "yes please"):
                terminal.type_text(unknown + ENTER)
                await terminal.wait_for("Please answer y or n.")
                await terminal.wait_for(PROMPT)
            terminal.type_text(answer + ENTER)
            await terminal.wait_for("Well.")
        assert expected in messages_of_turn(model, 1)[-1]["content"]


@async_test(60)
async def test_two_questions_are_shown_one_after_the_other(project: AgentProject) -> None:
    async with serve_scripted([call("add", a=1, b=2), call("add", a=30, b=4)], say("Well.")) as model:
        project.write(model, project.npx_server("calc", more=", approval: always"))
        async with TypingTerminal("run", "Go", cwd=project.path, env=project.env) as terminal:
            await terminal.wait_for('"a": 1,')
            assert '"a": 30,' not in await terminal.wait_for(PROMPT)
            terminal.type_text("y" + ENTER)
            await terminal.wait_for('"a": 30,')
            await terminal.wait_for(PROMPT)
            terminal.type_text("n" + ENTER)
            await terminal.wait_for("Well.")
        first, second = messages_of_turn(model, 1)[-2:]
        assert first["content"] == "3"
        assert "did not approve" in second["content"]


@async_test(60)
async def test_a_server_that_asks_explains_what_the_answers_do(project: AgentProject) -> None:
    async with serve_scripted(call("ask_elicitation"), say("Thanks.")) as model:
        project.write(model, project.npx_server("calc"))
        async with TypingTerminal("run", "Go", cwd=project.path, env=project.env) as terminal:
            await terminal.wait_for(f"Answer it? {PROMPT}")
            terminal.type_text("?" + ENTER)
            await terminal.wait_for("the server is told that you declined")
            await terminal.wait_for(f"Answer it? {PROMPT}")
            terminal.type_text("n" + ENTER)
            await terminal.wait_for("Thanks.")
