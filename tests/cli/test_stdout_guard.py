"""What a project's own functions print: on stderr, while stdout has the answer and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agent_project import AgentProject, serve_scripted
from async_tests import async_test
from pty_terminal import CTRL_D, TypingTerminal

from holodeck.testing.model.script import call, say

CODE = """
import atexit, os, subprocess, sys, threading
print("at import")
atexit.register(print, "at exit")

def loud():
    print("in a function")
    sys.stdout.buffer.write(b"in bytes\\n")
    os.write(1, b"past Python\\n")
    subprocess.run([sys.executable, "-c", "print('in a child')"], check=True)
    subprocess.run([sys.executable, "-c", "print('in another')"], check=True, stdout=sys.stdout)
    thread = threading.Thread(target=print, args=("in a thread",))
    thread.start()
    thread.join()
    return "done"

async def loud_later():
    print("in a coroutine")
    return "done"

def noisy():
    def go_on():
        while True:
            print("noise")
    threading.Thread(target=go_on, daemon=True).start()

def waiting():
    open("bell").read()
    print("after the bell")

def half():
    print("half a line", end="", flush=True)
"""
PRINTED = (
    *("at import", "in a function", "in bytes", "past Python", "in a child", "in another", "in a thread"),
    *("in a coroutine", "at exit"),
)
CALLS = [call("loud"), call("loud_later")]
CASE = "test_cases: [{name: loud, input: Go, expected_tools: [loud, loud_later]}]\n"


def tool(name: str) -> str:
    return f"  - {{type: function, name: {name}, description: d, file: mine.py, function: {name}}}"


@pytest.fixture
def project(tmp_path: Path) -> AgentProject:
    made = AgentProject(tmp_path)
    (made.path / "mine.py").write_text(CODE)
    return made


def is_answer(text: str) -> bool:
    return text == "All done.\n"


def is_result(text: str) -> bool:
    return bool(json.loads(text)["text"] == "All done.")


def are_events(text: str) -> bool:
    lines = [json.loads(line) for line in text.splitlines()]
    return [line["sequence_number"] for line in lines] == list(range(len(lines)))


def is_report(text: str) -> bool:
    return bool(json.loads(text)["passed"] == 1)


def is_summary(text: str) -> bool:
    return text.startswith("PASS  loud") and text.endswith("\n1 passed\n")


@pytest.mark.parametrize(
    ("words", "typed", "is_right"),
    [
        (("run", "Go"), "", is_answer),
        (("run", "-q", "Go"), "", is_answer),
        (("run", "--json", "Go"), "", is_result),
        (("run", "--events", "Go"), "", are_events),
        (("chat",), "Go\n", is_answer),
        (("test", "--json"), "", is_report),
        (("test",), "", is_summary),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
@async_test(60)
async def test_stdout_is_the_answers_alone(
    project: AgentProject, words: tuple[str, ...], typed: str, is_right: Any
) -> None:
    async with serve_scripted(CALLS, say("All done.")) as model:
        project.write(model, tool("loud"), tool("loud_later"), more=CASE)
        done = await project.run_holodeck(*words, stdin=typed)
    assert is_right(done.stdout), done.stdout
    assert [text for text in PRINTED if f"{text}\n" not in done.stderr] == []
    assert done.returncode == 0


@async_test(60)
async def test_a_thread_that_goes_on_printing_harms_neither_the_answer_nor_the_end(project: AgentProject) -> None:
    async with serve_scripted(call("noisy"), say("All done.")) as model:
        project.write(model, tool("noisy"))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holodeck", "run", "--json", "Go"),
            cwd=project.path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        said, _ = await process.communicate()
    assert json.loads(said)["text"] == "All done."
    assert process.returncode == 0


@async_test(60)
async def test_at_a_terminal_no_line_begins_in_the_middle_of_a_printed_one(project: AgentProject) -> None:
    async with serve_scripted([say("Let me see"), call("half")], [call("loud_later")], say("All done.")) as model:
        project.write(model, tool("half"), tool("loud_later"))
        async with TypingTerminal("run", "Go", cwd=project.path) as terminal:
            await terminal.wait_for("All done.")
            assert await terminal.wait_exit() == 0
            lines = terminal.text.splitlines()
    for line in ("at import", "Let me see", "half a line", "in a coroutine", "All done."):
        assert line in lines, lines


@async_test(60)
async def test_in_a_chat_what_is_printed_stands_above_what_is_drawn(project: AgentProject) -> None:
    bell = project.path / "bell"
    os.mkfifo(bell)
    async with serve_scripted(call("waiting"), say("All done.")) as model:
        project.write(model, tool("waiting"))
        async with TypingTerminal("chat", cwd=project.path) as terminal:
            await terminal.wait_for("you>")
            terminal.type_text("Go\r")
            await terminal.wait_for("waiting 0 s")
            await asyncio.to_thread(bell.write_text, "now")
            await terminal.wait_for("after the bell\n")
            await terminal.wait_for("All done.")
            await terminal.wait_for("you>")
            terminal.type_text(CTRL_D)
            assert await terminal.wait_exit() == 0
            assert "\x1b[2Kafter the bell" in terminal.raw, "what was drawn is wiped before"


PROGRAM = """
import asyncio, sys, holodeck
before = sys.stdout
async def main():
    async with holodeck.load_agent("agent.yaml") as agent:
        print((await agent.run("Go")).text)
asyncio.run(main())
assert sys.stdout is before
"""


@async_test(60)
async def test_a_program_that_uses_an_agent_keeps_its_own_output(project: AgentProject) -> None:
    async with serve_scripted(CALLS, say("All done.")) as model:
        project.write(model, tool("loud"), tool("loud_later"))
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", PROGRAM],
            cwd=project.path,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    for text in ("at import", "in a function", "in a coroutine", "All done."):
        assert text in done.stdout
    assert done.stderr == ""
