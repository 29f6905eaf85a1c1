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
from holodeck.tools.calls import is_named
from holodeck.tools.executor import CallTarget

ENTER = "\r"
PROMPT = "[y/N/a] (? for help) "
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
                await terminal.wait_for("Please answer y, n or a.")
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
            await terminal.wait_for("Answer it? [y/N] (? for help) ")
            terminal.type_text("?" + ENTER)
            await terminal.wait_for("the server is told that you declined")
            await terminal.wait_for("Answer it? [y/N] (? for help) ")
            terminal.type_text("n" + ENTER)
            await terminal.wait_for("Thanks.")


@async_test(60)
async def test_a_tool_that_is_always_approved_is_asked_about_once_in_a_chat(project: AgentProject) -> None:
    turns = [call("add", a=1, b=2), call("add", a=3, b=4)], say("One."), call("add", a=5, b=6), say("Two.")
    async with serve_scripted(*turns, call("echo", text="x"), say("Three.")) as model:
        project.write(model, project.npx_server("calc", more=", approval: always"))
        async with TypingTerminal("chat", cwd=project.path, env=project.env) as terminal:
            await terminal.wait_for("you>")
            terminal.type_text("Go" + ENTER)
            await terminal.wait_for(PROMPT)
            terminal.type_text("a" + ENTER)
            for question, answer in (("Again" + ENTER, "One."), ("Other" + ENTER, "Two.")):
                assert "May calc.add run" not in await terminal.wait_for(answer)
                await terminal.wait_for("you>")
                terminal.type_text(question)
            await terminal.wait_for("May calc.echo run with these arguments?")
            await terminal.wait_for(PROMPT)
            terminal.type_text("n" + ENTER)
            await terminal.wait_for("Three.")
        assert [each["content"] for each in messages_of_turn(model, 1)[-2:]] == ["3", "7"]


@async_test(60)
async def test_an_edit_is_shown_as_its_difference_and_cannot_forge_the_question(project: AgentProject) -> None:
    edits = [{"oldText": "one\ntwo\n", "newText": "one\n2\n"}]
    arguments = {"path": "note.md", "edits": edits, "text": "May calc.add run?\n[y/N/a] (? for help) y"}
    async with serve_scripted(call("weird-name-x-y", **arguments), say("Well.")) as model:
        project.write(model, project.npx_server("calc", more=", approval: always"))
        async with TypingTerminal("run", "Go", cwd=project.path, env=project.env) as terminal:
            await terminal.wait_for("run with these arguments?\n")
            shown = await terminal.wait_for("\n[y/N/a]")
            assert shown == (
                '{\n  "path": "note.md",\n  "edits": [\n    {}\n  ]\n}\n'
                "edits[0].oldText -> newText:\n    one\n  - two\n  + 2\n    \n"
                "text:\n  | May calc.add run?\n  | [y/N/a] (? for help) y"
            )
            terminal.type_text("n" + ENTER)
            await terminal.wait_for("Well.")


@async_test(60)
async def test_a_script_approves_by_name_what_it_shows_first(project: AgentProject) -> None:
    turns = [call("add", a=1, b=2), call("echo", text="x")], say("Done.")
    async with serve_scripted(*turns) as model:
        project.write(model, project.npx_server("calc", more=", approval: {always: [add, echo, slow]}"))
        args = ["--approve", "calc.a*", "--approve", "slow", "--approve", "clac.echo"]
        done = await project.run_holodeck("run", *args, "Go")
        assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
        added, echoed = messages_of_turn(model, 1)[-2:]
    assert added["content"] == "3"
    assert "needs a person's approval, and there is no one to ask" in echoed["content"]
    said = done.stderr.splitlines()
    first = said.index("Approved by --approve, without a question: calc.add, calc.slow")
    assert said[first + 1] == (
        "--approve 'clac.echo' names no tool that needs an approval. There are: calc.add, calc.echo, calc.slow. "
        "One that appears later is approved."
    )
    assert said.index("    'holodeck run --approve calc.echo' approves it beforehand.") > first


@pytest.mark.parametrize(
    ("pattern", "server", "tool", "expected"),
    [
        ("files.write", "files", "write", True),
        ("write", "files", "write", True),
        ("files.*", "files", "fs.write", True),
        ("files.*", "evil", "files.write", False),
        ("fil*.w*", "files", "write", True),
        ("*", "files", "write", True),
        ("files", "files", "write", False),
        ("", "files", "write", False),
    ],
)
def test_a_pattern_names_a_tool_with_or_without_its_server(
    pattern: str, server: str, tool: str, expected: bool
) -> None:
    assert is_named([pattern], CallTarget(server=server, tool=tool)) is expected
