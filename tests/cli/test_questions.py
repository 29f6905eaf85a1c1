"""The question whether a tool may run: the last thing on the screen until it has an answer that it knows."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from agents import Project, messages, scripted
from aio import aio
from typing_terminal import TypingTerminal

from holodeck.lib.limits import PROGRESS_DELAY, PROGRESS_STEP
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
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.parametrize("command", [["run", "Go"], ["chat"]])
@aio(60)
async def test_nothing_is_written_below_a_question_until_it_is_answered(project: Project, command: list[str]) -> None:
    os.mkfifo(project.path / "done")
    (project.path / "busy.py").write_text(BUSY)
    async with scripted([call("add", a=1, b=2), call("busy")], say("Well.")) as model:
        project.write(model, project.npx("calc", more=", approval: always"), FUNCTION)
        async with TypingTerminal(*command, cwd=project.path, env=project.env) as terminal:
            if command == ["chat"]:
                await terminal.sees("you>")
                terminal.types("Go" + ENTER)
            await terminal.sees(PROMPT)
            await asyncio.to_thread((project.path / "done").read_text)
            terminal.types("?" + ENTER)
            assert await terminal.sees("  y: run this call once") == "?\n"
            assert "busy" not in await terminal.sees(PROMPT)
            terminal.types("y" + ENTER)
            await terminal.sees("busy prints this")
            await terminal.sees("Well.")
        assert [told["content"] for told in messages(model, 1)[-2:]] == ["3", "busy is over"]


@pytest.mark.parametrize(("answer", "told"), [("Y", "3"), ("yes", "3"), ("n", "did not approve"), ("NO", "did not")])
@aio(60)
async def test_an_answer_that_is_neither_yes_nor_no_is_asked_for_again(
    project: Project, answer: str, told: str
) -> None:
    async with scripted(call("add", a=1, b=2), say("Well.")) as model:
        project.write(model, project.npx("calc", more=", approval: always"))
        async with TypingTerminal("run", "Go", cwd=project.path, env=project.env) as terminal:
            await terminal.sees(PROMPT)
            for unknown in ("maybe", "yn", "yes please"):
                terminal.types(unknown + ENTER)
                await terminal.sees("Please answer y or n.")
                await terminal.sees(PROMPT)
            terminal.types(answer + ENTER)
            await terminal.sees("Well.")
        assert told in messages(model, 1)[-1]["content"]


@aio(60)
async def test_two_questions_are_asked_one_after_the_other(project: Project) -> None:
    async with scripted([call("add", a=1, b=2), call("add", a=30, b=4)], say("Well.")) as model:
        project.write(model, project.npx("calc", more=", approval: always"))
        async with TypingTerminal("run", "Go", cwd=project.path, env=project.env) as terminal:
            await terminal.sees('"a": 1,')
            assert '"a": 30,' not in await terminal.sees(PROMPT)
            terminal.types("y" + ENTER)
            await terminal.sees('"a": 30,')
            await terminal.sees(PROMPT)
            terminal.types("n" + ENTER)
            await terminal.sees("Well.")
        first, second = messages(model, 1)[-2:]
        assert first["content"] == "3"
        assert "did not approve" in second["content"]


@aio(60)
async def test_a_server_that_asks_explains_what_the_answers_do(project: Project) -> None:
    async with scripted(call("ask_elicitation"), say("Thanks.")) as model:
        project.write(model, project.npx("calc"))
        async with TypingTerminal("run", "Go", cwd=project.path, env=project.env) as terminal:
            await terminal.sees(f"Answer it? {PROMPT}")
            terminal.types("?" + ENTER)
            await terminal.sees("the server is told that you declined")
            await terminal.sees(f"Answer it? {PROMPT}")
            terminal.types("n" + ENTER)
            await terminal.sees("Thanks.")
