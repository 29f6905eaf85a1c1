"""`holodeck chat`: a person at a real terminal, and scripts that talk to it through a pipe."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from agents import Project, at, messages, scripted
from aio import aio
from typing_terminal import CTRL_C, CTRL_D, TypingTerminal

from holodeck.testing import FaultyMCPServer
from holodeck.testing.script import Wait, call, say, status, wait

ENTER = "\r"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@asynccontextmanager
async def chatting(project: Project) -> AsyncIterator[TypingTerminal]:
    async with TypingTerminal("chat", cwd=project.path, env=project.env) as terminal:
        await terminal.sees("/help lists the commands.")
        await terminal.sees("you>")
        yield terminal


@pytest.mark.proves("000:US1-1", "004:SC-001")
@aio(60)
async def test_each_question_is_asked_with_all_that_was_said_before(project: Project) -> None:
    async with scripted([say("Adding."), call("add", a=1, b=2)], say("It is 3."), say("I said 3.")) as model:
        project.write(model, project.npx("calc"))
        async with chatting(project) as terminal:
            terminal.types("What is 1 + 2?" + ENTER)
            await terminal.sees("> calc.add  a=1, b=2")
            await terminal.sees("It is 3.")
            await terminal.sees("you>")
            terminal.types("What did you say?" + ENTER)
            await terminal.sees("I said 3.")
            await terminal.sees("you>")
            terminal.types(CTRL_D)
            assert await terminal.ends() == 0
        told = messages(model, 2)
        assert [message["role"] for message in told] == ["user", "assistant", "tool", "assistant", "user"]
        assert told[1]["tool_calls"][0]["function"]["name"] == "add"
        assert told[2]["content"] == "3"
        assert told[-1]["content"] == "What did you say?"
    await project.servers_gone()


@aio(60)
async def test_markdown_is_rendered_and_cannot_draw_on_the_terminal(project: Project) -> None:
    text = "# Title\n\nSome **bold** words.\n\n```python\nx = 1\n\ny = 2\n```\n\n- one\n- two \x1b[2J\u202e\n"
    async with scripted(say(text), chunk=3) as model:
        project.write(model)
        async with chatting(project) as terminal:
            terminal.types("Go" + ENTER)
            await terminal.sees("Title")
            await terminal.sees("Some bold words.")
            await terminal.sees("y = 2")
            await terminal.sees("two <U+001B>[2J<U+202E>")
            await terminal.sees("completed: 1 turn")
            assert "\u202e" not in terminal.raw
            assert "**" not in terminal.text


@aio(60)
async def test_ctrl_c_stops_the_answer_and_the_chat_goes_on(project: Project) -> None:
    async with scripted([say("It was a dark"), wait(asyncio.Event())], say("Fine.")) as model:
        project.write(model)
        async with chatting(project) as terminal:
            terminal.types("Tell a story" + ENTER)
            await terminal.sees("It was a dark")
            terminal.types(CTRL_C)
            await terminal.sees("Stopped.")
            await asyncio.wait_for(model.left.wait(), 20)
            await terminal.sees("you>")
            terminal.types("Never mind" + ENTER)
            await terminal.sees("Fine.")
        assert messages(model, 1) == [
            {"role": "user", "content": "Tell a story"},
            {"role": "assistant", "content": "It was a dark [stopped by the user]"},
            {"role": "user", "content": "Never mind"},
        ]


@aio(60)
async def test_ctrl_c_during_a_tool_call_leaves_a_conversation_that_models_accept(project: Project) -> None:
    async with scripted([call("add", a=1, b=1), call("slow", seconds=600)], say("Fine.")) as model:
        project.write(model, project.npx("calc"))
        async with chatting(project) as terminal:
            terminal.types("Go" + ENTER)
            await terminal.sees("= calc.add")
            terminal.types(CTRL_C)
            await terminal.sees("Stopped.")
            await terminal.sees("you>")
            terminal.types("And now?" + ENTER)
            await terminal.sees("Fine.")
        calls, *outputs = messages(model, 1)[1:4]
        assert [each["id"] for each in calls["tool_calls"]] == [each["tool_call_id"] for each in outputs]
        assert outputs[0]["content"] == "2"
        assert "may or may not have taken effect" in outputs[1]["content"]


@aio(60)
async def test_ctrl_c_while_a_server_starts_does_not_cost_the_next_question_its_tools(project: Project) -> None:
    async with scripted(say("Here.")) as model:
        project.write(model, project.npx("calc", "late", on="handshake"))
        async with chatting(project) as terminal:
            terminal.types("Go" + ENTER)
            await terminal.sees("starting calc 1 s")
            terminal.types(CTRL_C)
            await terminal.sees("Stopped.")
            await terminal.sees("you>")
            terminal.types("Again" + ENTER)
            await terminal.sees("Here.")
        assert "add" in [tool["function"]["name"] for tool in model.received[0].json["tools"]]


@pytest.mark.proves("000:US5-2", "000:FR-023", "000:SC-006")
@aio(60)
async def test_a_server_that_is_killed_is_reported_comes_back_and_the_chat_goes_on(project: Project) -> None:
    async with scripted(call("echo", text="one"), say("First."), call("echo", text="two"), say("Second.")) as model:
        project.write(model, project.npx("calc"))
        async with chatting(project) as terminal:
            terminal.types("Go" + ENTER)
            await terminal.sees("calc is ready")
            await terminal.sees("First.")
            await terminal.sees("you>")
            os.kill(project.pids()[-1], signal.SIGKILL)
            await terminal.sees("calc is gone: ")
            terminal.types("/servers" + ENTER)
            await terminal.sees("error")
            await terminal.sees("you>")
            terminal.types("Again" + ENTER)
            await terminal.sees("calc is back")
            await terminal.sees("Second.")
        assert messages(model, 3)[-1]["content"] == "two"
        assert len(set(project.pids())) == 2


@aio(60)
async def test_tools_prompts_and_servers_are_shown(project: Project) -> None:
    async with scripted() as model, FaultyMCPServer(era="modern") as remote:
        project.write(model, project.npx("calc"), at("remote", remote.url), at("down", "http://127.0.0.1:9/mcp"))
        async with chatting(project) as terminal:
            terminal.types("/servers" + ENTER)
            await terminal.sees("not started")
            await terminal.sees("you>")
            terminal.types("/tools" + ENTER)
            await terminal.sees("down is not available")
            await terminal.sees("add")
            await terminal.sees("Adds two numbers.")
            await terminal.sees("remote__add")
            await terminal.sees("you>")
            terminal.types("/prompts" + ENTER)
            await terminal.sees("/calc.review")
            await terminal.sees("/remote.review")
            await terminal.sees("you>")
            terminal.types("/servers" + ENTER)
            row = await terminal.sees("down ")
            assert "legacy 2025-11-25" in row
            assert "modern 2026-07-28" in row
            assert await terminal.sees("you>")


@pytest.mark.proves("000:US4-2", "000:FR-014")
@aio(60)
async def test_a_prompt_of_a_server_is_asked_with_its_arguments(project: Project) -> None:
    async with scripted(say("Good code."), say("Better code."), say("Hello.")) as model:
        project.write(model, project.npx("calc"))
        async with chatting(project) as terminal:
            terminal.types("/review x = 1  # it's fine" + ENTER)
            await terminal.sees("Good code.")
            await terminal.sees("you>")
            terminal.types("/review" + ENTER)
            await terminal.sees("What to review. (code):")
            terminal.types("y = 2" + ENTER)
            await terminal.sees("Better code.")
            await terminal.sees("you>")
            terminal.types("/calc.greet" + ENTER)
            await terminal.sees("Hello.")
        assert messages(model, 0)[-1]["content"] == "Review this code:\nx = 1  # it's fine"
        assert messages(model, 1)[-1]["content"] == "Review this code:\ny = 2"
        assert messages(model, 2)[-1]["content"] == "Say hello to the user."


@aio(60)
async def test_reset_forgets_and_save_writes_a_new_file(project: Project) -> None:
    async with scripted([say("Adding."), call("add", a=1, b=2)], say("It is 3."), say("Who are you?")) as model:
        project.write(model, project.npx("calc"))
        async with chatting(project) as terminal:
            terminal.types("What is 1 + 2?" + ENTER)
            await terminal.sees("It is 3.")
            await terminal.sees("you>")
            terminal.types("/save talk.md" + ENTER)
            await terminal.sees("Saved talk.md")
            await terminal.sees("you>")
            terminal.types("/save talk.md" + ENTER)
            await terminal.sees("nothing is overwritten")
            await terminal.sees("you>")
            terminal.types("/reset" + ENTER)
            await terminal.sees("The conversation is forgotten.")
            await terminal.sees("you>")
            terminal.types("Hello" + ENTER)
            await terminal.sees("Who are you?")
        assert messages(model, 2) == [{"role": "user", "content": "Hello"}]
    saved = (project.path / "talk.md").read_text()
    for words in ("# demo, ", "## You\n\nWhat is 1 + 2?", "**Call** `add`", '```\n{"a":1,"b":2}\n```', "It is 3."):
        assert words in saved


@aio(60)
async def test_an_unknown_command_has_a_hint_and_tab_completes_the_known(project: Project) -> None:
    async with scripted(say("A file.")) as model:
        project.write(model)
        async with chatting(project) as terminal:
            terminal.types("/toolz" + ENTER)
            await terminal.sees("There is no command /toolz. Did you mean /tools?")
            await terminal.sees("you>")
            terminal.types("/serv\t" + ENTER)
            await terminal.sees("There are no servers.")
            await terminal.sees("you>")
            terminal.types("/etc/hosts is what?" + ENTER)
            await terminal.sees("A file.")
            await terminal.sees("you>")
            terminal.types("/quit" + ENTER)
            assert await terminal.ends() == 0


@aio(60)
async def test_ctrl_c_twice_at_an_empty_line_leaves_and_once_only_clears_it(project: Project) -> None:
    async with scripted() as model:
        project.write(model)
        async with chatting(project) as terminal:
            terminal.types("half a question" + CTRL_C + CTRL_C)
            await terminal.sees("Press Ctrl-C again, or Ctrl-D, to leave.")
            await terminal.sees("you>")
            terminal.types(CTRL_C)
            assert await terminal.ends() == 0
        assert model.received == []


@aio(60)
async def test_the_history_is_kept_for_its_owner_alone(project: Project) -> None:
    async with scripted(say("Yes."), say("Yes again.")) as model:
        project.write(model)
        project.env["XDG_STATE_HOME"] = str(project.path / "state")
        for answer, keys in (("Yes.", "Is it?"), ("Yes again.", "\x1b[A")):
            async with chatting(project) as terminal:
                terminal.types(keys + ENTER)
                await terminal.sees(answer)
                await terminal.sees("you>")
                terminal.types(CTRL_D)
                assert await terminal.ends() == 0
        assert messages(model, 1)[-1]["content"] == "Is it?", "the arrow brings back what was asked in the last chat"
    file = project.path / "state" / "holodeck" / "chat_history"
    assert file.stat().st_mode & 0o777 == 0o600


@aio(60)
async def test_a_person_approves_a_call_in_the_middle_of_an_answer(project: Project) -> None:
    async with scripted([say("I will add."), call("add", a=1, b=2)], say("Done.")) as model:
        project.write(model, project.npx("calc", more=", approval: always"))
        async with chatting(project) as terminal:
            terminal.types("Add" + ENTER)
            await terminal.sees("[y/N]")
            terminal.types("y" + ENTER)
            await terminal.sees("Done.")
        assert messages(model, 1)[-1]["content"] == "3"


@aio(60)
async def test_an_answer_is_shown_while_it_is_written(project: Project) -> None:
    step: Wait = wait(asyncio.Event())
    async with scripted([say("A finished block.\n\nAnd one in prog"), step, say("ress.")]) as model:
        project.write(model)
        async with chatting(project) as terminal:
            terminal.types("Go" + ENTER)
            await terminal.sees("A finished block.")
            await terminal.sees("And one in prog")
            step.until.set()
            await terminal.sees("And one in progress.")
            await terminal.sees("completed: 1 turn")


@aio(60)
async def test_a_model_that_fails_is_told_and_the_question_can_be_asked_again(project: Project) -> None:
    async with scripted(status(401), say("Better.")) as model:
        project.write(model)
        async with chatting(project) as terminal:
            terminal.types("One" + ENTER)
            await terminal.sees("Error: Model 'scripted'")
            await terminal.sees("you>")
            terminal.types("Two" + ENTER)
            await terminal.sees("Better.")
        assert messages(model, 1) == [{"role": "user", "content": "Two"}]


@aio(60)
async def test_lines_of_a_pipe_are_questions_of_one_conversation(project: Project) -> None:
    async with scripted(say("One."), [say("Hm."), call("add", a=1, b=1)], say("Two.")) as model:
        project.write(model, project.npx("calc"))
        done = await project.holodeck("chat", stdin="first\n\n/review\nsecond\n/nothing\n")
        assert (done.stdout, done.returncode) == ("One.\nTwo.\n", 0)
        assert "/review needs 'code'." in done.stderr
        assert "There is no command /nothing." in done.stderr
        assert "\x1b" not in done.stdout + done.stderr
        assert [message["content"] for message in messages(model, 1)] == ["first", "One.", "second"]
    await project.servers_gone()


@aio(60)
async def test_a_pipe_with_a_failed_question_exits_with_1_and_a_wrong_file_with_2(project: Project) -> None:
    async with scripted(status(401), say("Fine.")) as model:
        project.write(model)
        done = await project.holodeck("chat", stdin="one\ntwo\n")
        assert (done.stdout, done.returncode) == ("Fine.\n", 1)
    assert (await project.holodeck("chat", "nowhere.yaml")).returncode == 2


@pytest.mark.parametrize("redirection", ["< /dev/null", "<&-", "< empty.txt"])
@aio(60)
async def test_a_chat_with_nobody_there_ends_at_once(project: Project, redirection: str) -> None:
    project.write(None)
    (project.path / "empty.txt").write_text("")
    command = f"{sys.executable} -m holodeck chat {redirection}"
    process = await asyncio.create_subprocess_shell(command, cwd=project.path, stderr=asyncio.subprocess.PIPE)
    _, told = await asyncio.wait_for(process.communicate(), 20)
    assert (process.returncode, told) == (0, b"")


@aio(60)
async def test_a_function_of_the_project_goes_before_a_tool_of_the_same_name(project: Project) -> None:
    (project.path / "tools.py").write_text("def add(a: int, b: int) -> str:\n    return 'from the function'\n")
    function = "  - {type: function, name: add, description: d, file: tools.py, function: add}"
    async with scripted(call("add", a=1, b=2), say("Done.")) as model:
        project.write(model, project.npx("calc"), function)
        done = await project.holodeck("chat", stdin="Go\n")
        assert "> add  a=1, b=2" in done.stderr
        assert messages(model, 1)[-1]["content"] == "from the function"
