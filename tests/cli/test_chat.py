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
from agent_project import AgentProject, messages_of_turn, serve_scripted, server_at
from async_tests import async_test
from pty_terminal import CTRL_C, CTRL_D, TypingTerminal
from terminal_screen import TerminalScreen

from holodeck.testing import FaultyMCPServer
from holodeck.testing.model.script import Wait, call, say, spend, status, wait

ENTER = "\r"


@pytest.fixture
def project(tmp_path: Path) -> AgentProject:
    return AgentProject(tmp_path)


@asynccontextmanager
async def chatting(project: AgentProject) -> AsyncIterator[TypingTerminal]:
    async with TypingTerminal("chat", cwd=project.path, env=project.env) as terminal:
        await terminal.wait_for("/help lists the commands.")
        await terminal.wait_for("you>")
        yield terminal


@pytest.mark.proves("000:US1-1", "004:SC-001")
@async_test(60)
async def test_each_question_is_sent_with_the_whole_conversation(project: AgentProject) -> None:
    async with serve_scripted([say("Adding."), call("add", a=1, b=2)], say("It is 3."), say("I said 3.")) as model:
        project.write(model, project.npx_server("calc"))
        async with chatting(project) as terminal:
            terminal.type_text("What is 1 + 2?" + ENTER)
            await terminal.wait_for("> calc.add  a=1, b=2")
            await terminal.wait_for("It is 3.")
            await terminal.wait_for("you>")
            terminal.type_text("What did you say?" + ENTER)
            await terminal.wait_for("I said 3.")
            await terminal.wait_for("you>")
            terminal.type_text(CTRL_D)
            assert await terminal.wait_exit() == 0
        sent = messages_of_turn(model, 2)
        assert [message["role"] for message in sent] == ["user", "assistant", "tool", "assistant", "user"]
        assert sent[1]["tool_calls"][0]["function"]["name"] == "add"
        assert sent[2]["content"] == "3"
        assert sent[-1]["content"] == "What did you say?"
    await project.wait_servers_gone()


@async_test(60)
async def test_each_answer_and_the_chat_end_with_tokens_cached_share_and_cost(project: AgentProject) -> None:
    turn, stalled = [say("Hi."), spend(1_000, 100, cached=750)], [say("Wait"), wait(asyncio.Event())]
    async with serve_scripted(turn, turn, stalled) as model:
        price = "{input: 4, cached: 0.4, output: 20}"
        llm = f'{{provider: openai_compatible, name: m, endpoint: "{model.url}", price: {price}}}'
        project.write(None, more=f"model: {llm}")
        async with chatting(project) as terminal:
            for _ in range(2):
                terminal.type_text("Hello" + ENTER)
                await terminal.wait_for("(1,000 in, 75% of them cached, 100 out), cost 0.0033")
                await terminal.wait_for("you>")
            terminal.type_text("Hello" + ENTER)
            await terminal.wait_for("Wait")
            terminal.type_text(CTRL_C)
            await terminal.wait_for("Stopped.")
            await terminal.wait_for("you>")
            terminal.type_text(CTRL_D)
            await terminal.wait_for(
                "In all 2 answers, 2,200 tokens (2,000 in, 75% of them cached, 200 out), cost 0.0066"
            )
            await terminal.wait_for("without 1 answer that you stopped")
            assert await terminal.wait_exit() == 0


@async_test(60)
async def test_markdown_is_rendered_and_cannot_draw_on_the_terminal(project: AgentProject) -> None:
    text = "# Title\n\nSome **bold** words.\n\n```python\nx = 1\n\ny = 2\n```\n\n- one\n- two \x1b[2J\u202e\n"
    async with serve_scripted(say(text), chunk=3) as model:
        project.write(model)
        async with chatting(project) as terminal:
            terminal.type_text("Go" + ENTER)
            await terminal.wait_for("Title")
            await terminal.wait_for("Some bold words.")
            await terminal.wait_for("y = 2")
            await terminal.wait_for("two <U+001B>[2J<U+202E>")
            await terminal.wait_for("completed: 1 turn")
            assert "\u202e" not in terminal.raw
            assert "**" not in terminal.text


@async_test(60)
async def test_ctrl_c_stops_the_answer_and_the_chat_goes_on(project: AgentProject) -> None:
    async with serve_scripted([say("It was a dark"), wait(asyncio.Event())], say("Fine.")) as model:
        project.write(model)
        async with chatting(project) as terminal:
            terminal.type_text("Tell a story" + ENTER)
            await terminal.wait_for("It was a dark")
            terminal.type_text(CTRL_C)
            await terminal.wait_for("Stopped.")
            await asyncio.wait_for(model.left.wait(), 20)
            await terminal.wait_for("you>")
            terminal.type_text("Never mind" + ENTER)
            await terminal.wait_for("Fine.")
        assert messages_of_turn(model, 1) == [
            {"role": "user", "content": "Tell a story"},
            {"role": "assistant", "content": "It was a dark [stopped by the user]"},
            {"role": "user", "content": "Never mind"},
        ]


@async_test(60)
async def test_what_is_typed_during_an_answer_waits_for_the_prompt_and_a_stopped_answer_is_there_once(
    project: AgentProject,
) -> None:
    async with serve_scripted([say("Once.\n\nIt was a dark"), wait(asyncio.Event())], say("Fine.")) as model:
        project.write(model)
        async with chatting(project) as terminal:
            terminal.type_text("Tell a story" + ENTER)
            await terminal.wait_for("It was a dark")
            terminal.type_text("Never mind")
            terminal.type_text(CTRL_C)
            await terminal.wait_for("Stopped.")
            await terminal.wait_for("you>")
            await terminal.wait_for("Never mind")
            terminal.type_text(ENTER)
            await terminal.wait_for("Fine.")
            await terminal.wait_for("you>")
            terminal.type_text(CTRL_C)
            await terminal.wait_for("Press Ctrl-C again")
            terminal.type_text(CTRL_C)
            assert await terminal.wait_exit() == 0
        shown = TerminalScreen(terminal.raw).lines
        at = shown.index("you> Tell a story")
        assert shown[at : at + 7] == [
            "you> Tell a story", "Once.", "", "It was a dark", "Stopped.", "you> Never mind", "Fine."
        ]  # fmt: skip


@async_test(60)
async def test_servers_start_while_a_person_types(project: AgentProject) -> None:
    async with serve_scripted(say("Here.")) as model:
        project.write(model, project.npx_server("calc", "late", on="handshake"))
        async with chatting(project) as terminal:
            terminal.type_text("Half a ques")
            await terminal.wait_for("starting calc")
            await terminal.wait_for("calc is ready")
            terminal.type_text("tion" + ENTER)
            await terminal.wait_for("Here.")
            await terminal.wait_for("you>")
        shown = TerminalScreen(terminal.raw).lines
        assert [line for line in shown if "calc" in line or "ques" in line] == [
            next(line for line in shown if line.startswith("calc is ready (")),
            "you> Half a question",
        ]
        assert messages_of_turn(model, 0)[-1]["content"] == "Half a question"


@async_test(60)
async def test_keys_that_are_no_utf_8_and_a_resized_terminal_break_nothing(project: AgentProject) -> None:
    rest = asyncio.Event()
    async with serve_scripted([say("One block.\n\nAnother in prog"), wait(rest), say("ress.")]) as model:
        project.write(model)
        async with chatting(project) as terminal:
            terminal.type_text(b"caf\xe9?\r")
            await terminal.wait_for("Another in prog")
            terminal.resize(columns=60)
            rest.set()
            await terminal.wait_for("completed: 1 turn")
            await terminal.wait_for("you>")
            assert "Traceback" not in terminal.text
        assert messages_of_turn(model, 0) == [{"role": "user", "content": "caf??"}]


@async_test(60)
async def test_code_urls_and_tables_are_shown_as_they_can_be_copied(project: AgentProject) -> None:
    url = "https://example.com/" + "path/" * 30
    code = "x = '" + "word " * 40 + "'"
    table = f"| name | url |\n|---|---|\n| one | {url} |\n"
    fitting = "https://example.com/" + "x" * 40
    second = f"| name | where | notes |\n|---|---|---|\n| two | {fitting} | {'these words need two lines ' * 3}|\n"
    answer = f"See {url} now.\n\n- Do:\n\n  ```python\n  {code}\n  ```\n\n{table}\n{second}"
    async with serve_scripted(say(answer)) as model:
        project.write(model)
        async with chatting(project) as terminal:
            terminal.type_text("Go" + ENTER)
            await terminal.wait_for("completed:")
        for words in (f"See {url} now.", code, f"url: {url}", f" two   {fitting} "):
            assert words in terminal.text


@async_test(60)
async def test_ctrl_c_during_a_tool_call_leaves_a_conversation_that_models_accept(project: AgentProject) -> None:
    async with serve_scripted([call("add", a=1, b=1), call("slow", seconds=600)], say("Fine.")) as model:
        project.write(model, project.npx_server("calc"))
        async with chatting(project) as terminal:
            terminal.type_text("Go" + ENTER)
            await terminal.wait_for("= calc.add")
            terminal.type_text(CTRL_C)
            await terminal.wait_for("Stopped.")
            await terminal.wait_for("you>")
            terminal.type_text("And now?" + ENTER)
            await terminal.wait_for("Fine.")
        calls, *outputs = messages_of_turn(model, 1)[1:4]
        assert [each["id"] for each in calls["tool_calls"]] == [each["tool_call_id"] for each in outputs]
        assert outputs[0]["content"] == "2"
        assert "may or may not have taken effect" in outputs[1]["content"]


@async_test(60)
async def test_ctrl_c_while_a_server_starts_does_not_cost_the_next_question_its_tools(project: AgentProject) -> None:
    async with serve_scripted(say("Here.")) as model:
        project.write(model, project.npx_server("calc", "late", on="handshake"))
        async with chatting(project) as terminal:
            terminal.type_text("Go" + ENTER)
            await terminal.wait_for("starting calc 1 s")
            terminal.type_text(CTRL_C)
            await terminal.wait_for("Stopped.")
            await terminal.wait_for("you>")
            terminal.type_text("Again" + ENTER)
            await terminal.wait_for("Here.")
        assert "add" in [tool["function"]["name"] for tool in model.received[0].json["tools"]]


@pytest.mark.proves("000:US5-2", "000:FR-023", "000:SC-006")
@async_test(60)
async def test_a_server_that_is_killed_is_reported_comes_back_and_the_chat_goes_on(project: AgentProject) -> None:
    async with serve_scripted(
        call("echo", text="one"), say("First."), call("echo", text="two"), say("Second.")
    ) as model:
        project.write(model, project.npx_server("calc"))
        async with chatting(project) as terminal:
            terminal.type_text("Go" + ENTER)
            await terminal.wait_for("calc is ready")
            await terminal.wait_for("First.")
            await terminal.wait_for("you>")
            os.kill(project.pids()[-1], signal.SIGKILL)
            await terminal.wait_for("calc is gone: ")
            terminal.type_text("/servers" + ENTER)
            await terminal.wait_for("error")
            await terminal.wait_for("you>")
            terminal.type_text("Again" + ENTER)
            await terminal.wait_for("calc is back")
            await terminal.wait_for("Second.")
        assert messages_of_turn(model, 3)[-1]["content"] == "two"
        assert len(set(project.pids())) == 2


@async_test(60)
async def test_tools_prompts_and_servers_are_shown(project: AgentProject) -> None:
    async with serve_scripted() as model, FaultyMCPServer(era="modern") as remote:
        project.write(
            model,
            project.npx_server("calc"),
            server_at("remote", remote.url),
            server_at("down", "http://127.0.0.1:9/mcp"),
        )
        async with chatting(project) as terminal:
            await terminal.wait_for("down is not available")
            terminal.type_text("/tools" + ENTER)
            await terminal.wait_for("add")
            await terminal.wait_for("Adds two numbers.")
            await terminal.wait_for("remote__add")
            await terminal.wait_for("you>")
            terminal.type_text("/prompts" + ENTER)
            await terminal.wait_for("/calc.review")
            await terminal.wait_for("/remote.review")
            await terminal.wait_for("you>")
            terminal.type_text("/servers" + ENTER)
            row = await terminal.wait_for("down ")
            assert "legacy 2025-11-25" in row
            assert "modern 2026-07-28" in row
            assert await terminal.wait_for("you>")


@pytest.mark.proves("000:US4-2", "000:FR-014")
@async_test(60)
async def test_a_prompt_of_a_server_is_sent_with_its_arguments(project: AgentProject) -> None:
    async with serve_scripted(say("Good code."), say("Better code."), say("Hello.")) as model:
        project.write(model, project.npx_server("calc"))
        async with chatting(project) as terminal:
            terminal.type_text("/review x = 1  # it's fine" + ENTER)
            await terminal.wait_for("Good code.")
            await terminal.wait_for("you>")
            terminal.type_text("/review" + ENTER)
            await terminal.wait_for("What to review. (code):")
            terminal.type_text("y = 2" + ENTER)
            await terminal.wait_for("Better code.")
            await terminal.wait_for("you>")
            terminal.type_text("/calc.greet" + ENTER)
            await terminal.wait_for("Hello.")
        assert messages_of_turn(model, 0)[-1]["content"] == "Review this code:\nx = 1  # it's fine"
        assert messages_of_turn(model, 1)[-1]["content"] == "Review this code:\ny = 2"
        assert messages_of_turn(model, 2)[-1]["content"] == "Say hello to the user."


@async_test(60)
async def test_model_asks_another_one_from_now_on(project: AgentProject) -> None:
    async with serve_scripted(say("One.")) as first, serve_scripted(say("Two."), say("Three.")) as second:
        other = f'{{provider: openai_compatible, name: other, endpoint: "{second.url}"}}'
        project.write(first, more=f"test_settings: {{models: {{other: {other}}}}}\n")
        settings = project.path.parent / ".holodeck" / "config.yaml"
        settings.parent.mkdir()
        settings.write_text(f"models: [{{name: mine, model: {other}}}]\n")
        async with chatting(project) as terminal:
            for typed, shown in (
                ("Hello", "One."),
                ("/model", f"The model is openai_compatible:scripted at {first.url}."),
                ("/model opnai:gpt", "'opnai:gpt' names no model"),
                ("/model other", f"The model is openai_compatible:other at {second.url}."),
                ("And you?", "Two."),
                ("/model mine", "The model is openai_compatible:other"),
                ("Again", "Three."),
            ):
                terminal.type_text(typed + ENTER)
                await terminal.wait_for(shown)
                await terminal.wait_for("you>")
        assert [message["content"] for message in messages_of_turn(second, 0)] == ["Hello", "One.", "And you?"]
        assert second.received[1].json["model"] == "other"


@async_test(60)
async def test_reset_forgets_and_save_writes_a_new_file(project: AgentProject) -> None:
    async with serve_scripted([say("Adding."), call("add", a=1, b=2)], say("It is 3."), say("Who are you?")) as model:
        project.write(model, project.npx_server("calc"))
        async with chatting(project) as terminal:
            terminal.type_text("What is 1 + 2?" + ENTER)
            await terminal.wait_for("It is 3.")
            await terminal.wait_for("you>")
            terminal.type_text("/save talk.md" + ENTER)
            await terminal.wait_for("Saved talk.md")
            await terminal.wait_for("you>")
            terminal.type_text("/save talk.md" + ENTER)
            await terminal.wait_for("nothing is overwritten")
            await terminal.wait_for("you>")
            terminal.type_text("/reset" + ENTER)
            await terminal.wait_for("The conversation is forgotten.")
            await terminal.wait_for("you>")
            terminal.type_text("Hello" + ENTER)
            await terminal.wait_for("Who are you?")
        assert messages_of_turn(model, 2) == [{"role": "user", "content": "Hello"}]
    saved = (project.path / "talk.md").read_text()
    for words in ("# demo, ", "## You\n\nWhat is 1 + 2?", "**Call** `add`", '```\n{"a":1,"b":2}\n```', "It is 3."):
        assert words in saved


@async_test(60)
async def test_an_unknown_command_has_a_hint_and_tab_completes_the_known(project: AgentProject) -> None:
    async with serve_scripted(say("A file.")) as model:
        project.write(model)
        async with chatting(project) as terminal:
            terminal.type_text("/toolz" + ENTER)
            await terminal.wait_for("There is no command /toolz. Did you mean /tools?")
            await terminal.wait_for("you>")
            terminal.type_text("/serv\t" + ENTER)
            await terminal.wait_for("There are no servers.")
            await terminal.wait_for("you>")
            terminal.type_text("/etc/hosts is what?" + ENTER)
            await terminal.wait_for("A file.")
            await terminal.wait_for("you>")
            terminal.type_text("/quit" + ENTER)
            assert await terminal.wait_exit() == 0


@async_test(60)
async def test_ctrl_c_twice_at_an_empty_line_leaves_and_once_only_clears_it(project: AgentProject) -> None:
    async with serve_scripted() as model:
        project.write(model)
        async with chatting(project) as terminal:
            terminal.type_text("half a question" + CTRL_C + CTRL_C)
            await terminal.wait_for("Press Ctrl-C again, or Ctrl-D, to leave.")
            await terminal.wait_for("you>")
            terminal.type_text(CTRL_C)
            assert await terminal.wait_exit() == 0
        assert model.received == []


@async_test(60)
async def test_questions_are_recalled_in_the_next_chat_from_a_private_file(project: AgentProject) -> None:
    async with serve_scripted(say("Yes."), say("Yes again.")) as model:
        project.write(model)
        project.env["XDG_STATE_HOME"] = str(project.path / "state")
        for answer, keys in (("Yes.", "Is it?"), ("Yes again.", "\x1b[A")):
            async with chatting(project) as terminal:
                terminal.type_text(keys + ENTER)
                await terminal.wait_for(answer)
                await terminal.wait_for("you>")
                terminal.type_text(CTRL_D)
                assert await terminal.wait_exit() == 0
        assert messages_of_turn(model, 1)[-1]["content"] == "Is it?", (
            "the arrow brings back what was asked in the last chat"
        )
    file = project.path / "state" / "holodeck" / "chat_history"
    assert file.stat().st_mode & 0o777 == 0o600


@async_test(60)
async def test_a_person_approves_a_call_in_the_middle_of_an_answer(project: AgentProject) -> None:
    async with serve_scripted([say("I will add."), call("add", a=1, b=2)], say("Done.")) as model:
        project.write(model, project.npx_server("calc", more=", approval: always"))
        async with chatting(project) as terminal:
            terminal.type_text("Add" + ENTER)
            await terminal.wait_for("[y/N/a]")
            terminal.type_text("y" + ENTER)
            await terminal.wait_for("Done.")
        assert messages_of_turn(model, 1)[-1]["content"] == "3"


@async_test(60)
async def test_an_answer_is_shown_while_it_is_written(project: AgentProject) -> None:
    step: Wait = wait(asyncio.Event())
    async with serve_scripted([say("A finished block.\n\nAnd one in prog"), step, say("ress.")]) as model:
        project.write(model)
        async with chatting(project) as terminal:
            terminal.type_text("Go" + ENTER)
            await terminal.wait_for("A finished block.")
            await terminal.wait_for("And one in prog")
            step.until.set()
            await terminal.wait_for("And one in progress.")
            await terminal.wait_for("completed: 1 turn")


@async_test(60)
async def test_a_failure_of_the_model_is_shown_and_the_question_can_be_sent_again(project: AgentProject) -> None:
    async with serve_scripted(status(401), say("Better.")) as model:
        project.write(model)
        async with chatting(project) as terminal:
            terminal.type_text("One" + ENTER)
            await terminal.wait_for("Error: Model 'scripted'")
            await terminal.wait_for("you>")
            terminal.type_text("Two" + ENTER)
            await terminal.wait_for("Better.")
        assert messages_of_turn(model, 1) == [{"role": "user", "content": "Two"}]


@async_test(60)
async def test_lines_of_a_pipe_are_questions_of_one_conversation(project: AgentProject) -> None:
    async with serve_scripted(say("One."), [say("Hm."), call("add", a=1, b=1)], say("Two.")) as model:
        project.write(model, project.npx_server("calc"))
        done = await project.run_holodeck("chat", stdin="first\n\n/review\nsecond\n/nothing\n")
        assert (done.stdout, done.returncode) == ("One.\nTwo.\n", 0)
        assert "/review needs 'code'." in done.stderr
        assert "There is no command /nothing." in done.stderr
        assert "\x1b" not in done.stdout + done.stderr
        assert [message["content"] for message in messages_of_turn(model, 1)] == ["first", "One.", "second"]
    await project.wait_servers_gone()


@async_test(60)
async def test_a_pipe_with_a_failed_question_exits_with_1_and_a_wrong_file_with_2(project: AgentProject) -> None:
    async with serve_scripted(status(401), say("Fine.")) as model:
        project.write(model)
        done = await project.run_holodeck("chat", stdin="one\ntwo\n")
        assert (done.stdout, done.returncode) == ("Fine.\n", 1)
    assert (await project.run_holodeck("chat", "nowhere.yaml")).returncode == 2


@pytest.mark.parametrize("redirection", ["< /dev/null", "<&-", "< empty.txt"])
@async_test(60)
async def test_a_chat_with_empty_standard_input_ends_at_once(project: AgentProject, redirection: str) -> None:
    project.write(None)
    (project.path / "empty.txt").write_text("")
    command = f"{sys.executable} -m holodeck chat {redirection}"
    process = await asyncio.create_subprocess_shell(command, cwd=project.path, stderr=asyncio.subprocess.PIPE)
    _, stderr = await asyncio.wait_for(process.communicate(), 20)
    assert (process.returncode, stderr) == (0, b"")


@async_test(60)
async def test_a_function_of_the_project_goes_before_a_tool_of_the_same_name(project: AgentProject) -> None:
    (project.path / "tools.py").write_text("def add(a: int, b: int) -> str:\n    return 'from the function'\n")
    function = "  - {type: function, name: add, description: d, file: tools.py, function: add}"
    async with serve_scripted(call("add", a=1, b=2), say("Done.")) as model:
        project.write(model, project.npx_server("calc"), function)
        done = await project.run_holodeck("chat", stdin="Go\n")
        assert "> add  a=1, b=2" in done.stderr
        assert messages_of_turn(model, 1)[-1]["content"] == "from the function"
