"""`holodeck run`: one question through the real command, a scripted model and real servers."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from agent_project import AgentProject, messages_of_turn, serve_scripted, server_at
from async_tests import async_test
from pty_terminal import CTRL_C, TypingTerminal
from terminal_screen import TerminalScreen

from holodeck.testing import FaultyMCPServer
from holodeck.testing.model.script import call, call_raw, finish, say, spend, status, wait

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)


@pytest.fixture
def project(tmp_path: Path) -> AgentProject:
    return AgentProject(tmp_path)


@pytest.mark.proves("000:US1-1", "000:SC-002", "004:US2-1", "004:SC-001")
@async_test(60)
async def test_only_the_answer_is_on_stdout_and_everything_else_on_stderr(project: AgentProject) -> None:
    async with serve_scripted([say("Let me see."), call("add", a=1, b=2)], [say("It is 3."), spend(90, 10)]) as model:
        project.write(model, project.npx_server("calc"))
        done = await project.run_holodeck("run", "What is 1 + 2?")
        assert (done.stdout, done.returncode) == ("It is 3.\n", 0)
        for words in ("Starting calc", "calc is ready", "Let me see.", "> calc.add  a=1, b=2", "= calc.add", "  3\n"):
            assert words in done.stderr
        assert "completed: 2 turns, 1 tool call, 100 tokens (90 in, 10 out)" in done.stderr
        assert "\x1b" not in done.stderr, "colours are for terminals"
        assert messages_of_turn(model, 0) == [{"role": "user", "content": "What is 1 + 2?"}]
        assert messages_of_turn(model, 1)[-1] == {"role": "tool", "tool_call_id": "call_1", "content": "3"}
    await project.wait_servers_gone()


@async_test(60)
async def test_a_resource_that_a_result_links_to_is_read_when_the_model_asks(project: AgentProject) -> None:
    reading = call("read_resource", uri="test://far.pdf")
    async with serve_scripted(call("resource_link"), reading, say("It is far away.")) as model:
        project.write(model, project.npx_server("calc"))
        done = await project.run_holodeck("run", "What is in it?")
        assert (done.stdout, done.returncode) == ("It is far away.\n", 0), done.stderr
        assert "> read_resource" in done.stderr
        assert "far away\nfar away\n" in messages_of_turn(model, 2)[-1]["content"]


@async_test(60)
async def test_resources_of_a_server_with_load_resources_are_read_when_the_model_asks(project: AgentProject) -> None:
    async with serve_scripted(call("read_resource", uri="test://notes.txt"), say("They are notes.")) as model:
        project.write(model, project.npx_server("calc", more=", load_resources: true, load_tools: false"))
        done = await project.run_holodeck("run", "What is in the notes?")
        assert (done.stdout, done.returncode) == ("They are notes.\n", 0), done.stderr
        assert messages_of_turn(model, 1)[-1]["content"] == "notes"


@async_test(60)
async def test_quiet_says_nothing_but_the_answer(project: AgentProject) -> None:
    async with serve_scripted([say("Hm."), call("add", a=1, b=2)], say("3")) as model:
        project.write(model, project.npx_server("calc"))
        done = await project.run_holodeck("run", "-q", "What is 1 + 2?")
        assert (done.stdout, done.stderr) == ("3\n", "")


@async_test(60)
async def test_a_terminal_shows_the_answer_while_it_is_written(project: AgentProject) -> None:
    rest = asyncio.Event()
    async with serve_scripted([say("The first half"), wait(rest), say(" and the second.")]) as model:
        project.write(model)
        async with TypingTerminal("run", "Tell me", cwd=project.path) as terminal:
            await terminal.wait_for("The first half")
            rest.set()
            await terminal.wait_for(" and the second.")
            await terminal.wait_for("completed: 1 turn, 0 tool calls")
            assert await terminal.wait_exit() == 0


@async_test(60)
async def test_a_terminal_says_what_it_waits_for(project: AgentProject) -> None:
    rest = asyncio.Event()
    async with serve_scripted([wait(rest), say("Done.")]) as model:
        project.write(model)
        async with TypingTerminal("run", "Think", cwd=project.path) as terminal:
            await terminal.wait_for("the model is thinking 1 s")
            rest.set()
            await terminal.wait_for("Done.")
            assert await terminal.wait_exit() == 0
        lines = TerminalScreen(terminal.raw).lines
        assert lines[:2] == ["demo asks scripted", "Done."], "the spinner is wiped before anything else is written"


@async_test(60)
async def test_another_model_is_asked_and_verbose_shows_whole_calls(project: AgentProject) -> None:
    text = "line one\n" + "x" * 500
    async with serve_scripted(call("echo", text=text), say("Done.")) as model:
        project.write(None, project.npx_server("calc"))
        project.env["OPENAI_API_KEY"] = "unused"
        endpoint = f'test_settings: {{models: {{other: {{provider: ollama, name: o, endpoint: "{model.url}"}}}}}}\n'
        with (project.path / "agent.yaml").open("a") as file:
            file.write(endpoint)
        done = await project.run_holodeck("run", "-m", "other", "-v", "Go")
        assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
        assert f"    line one\n    {'x' * 500}\n" in done.stderr
        wrong = await project.run_holodeck("run", "-m", "othr:x", "Go")
    assert wrong.returncode == 2
    assert "'othr:x' names no model: write 'provider:name'" in wrong.stderr
    assert "'test_settings.models' of agent.yaml has: other." in wrong.stderr


@async_test(60)
async def test_run_renders_markdown_on_a_terminal_and_nowhere_else(project: AgentProject) -> None:
    answer = "# Title\n\nSome **bold** words.\n"
    async with serve_scripted(*[say(answer)] * 5) as model:
        project.write(model)
        shown = {}
        ways: dict[str, tuple[list[str], dict[str, str]]] = {
            "rendered": ([], {}),
            "without colours": ([], {"NO_COLOR": "1"}),
            "plain": (["--plain"], {}),
            "dumb": ([], {"TERM": "dumb"}),
        }
        for name, (args, env) in ways.items():
            async with TypingTerminal("run", *args, "Go", cwd=project.path, env=env) as terminal:
                assert await terminal.wait_exit() == 0
                shown[name] = terminal.text
                assert name != "without colours" or not re.search(r"\x1b\[[0-9;]*3[0-7]m", terminal.raw)
        done = await project.run_holodeck("run", "Go")
    assert done.stdout == answer
    for name in ("rendered", "without colours"):
        assert "Some bold words." in shown[name]
    for name in ("plain", "dumb"):
        assert "Some **bold** words." in shown[name]


@async_test(60)
async def test_json_is_the_whole_result(project: AgentProject) -> None:
    async with serve_scripted(call("image"), [say("A \u202e pixel"), spend(3, 4)]) as model:
        project.write(model, project.npx_server("calc"))
        done = await project.run_holodeck("run", "--json", "Show me")
    result = json.loads(done.stdout)
    assert (result["status"], result["text"], result["turns"], result["tool_calls"]) == (
        "completed",
        "A \u202e pixel",
        2,
        1,
    )
    assert result["usage"]["total_tokens"] == 7
    assert [item["type"] for item in result["items"]] == ["function_call", "function_call_output", "message"]
    assert result["items"][1]["content"][0]["mime_type"] == "image/png"
    assert result["error"] is None
    assert "\u202e" not in done.stdout, "a reordering character is an escape"


@async_test(60)
async def test_json_has_an_answer_in_the_format_of_the_file_as_an_object(project: AgentProject) -> None:
    day = "{type: object, properties: {day: {type: string}}, required: [day]}"
    answer = '{"day": "Friday"}'
    async with serve_scripted(say(answer), finish("length"), say(answer)) as model:
        project.write(model, more=f"response_format: {day}\n")
        whole = json.loads((await project.run_holodeck("run", "--json", "When?")).stdout)
        cut = json.loads((await project.run_holodeck("run", "--json", "When?")).stdout)
        project.write(model)
        plain = json.loads((await project.run_holodeck("run", "--json", "When?")).stdout)
    assert (whole["text"], whole["structured"]) == (answer, {"day": "Friday"})
    assert (cut["status"], cut["structured"]) == ("incomplete", None)
    assert (plain["text"], plain["structured"]) == (answer, None)


@async_test(60)
async def test_events_come_as_numbered_lines_while_they_happen(project: AgentProject) -> None:
    rest = asyncio.Event()
    async with serve_scripted([say("Wait"), wait(rest), say(" for it")]) as model:
        project.write(model)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holodeck", "run", "--events", "Go"),
            cwd=project.path,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        first = [json.loads(await process.stdout.readline()) for _ in range(3)]
        assert [event["type"] for event in first] == ["run.started", "turn.started", "text.added"]
        rest.set()
        lines = (await process.stdout.read()).splitlines()
        await process.wait()
    events = [*first, *map(json.loads, lines)]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "run.finished"
    assert events[-1]["result"]["text"] == "Wait for it"


@async_test(60)
async def test_tools_that_appear_during_a_run_are_an_event_of_it_and_a_sentence_on_the_terminal(
    project: AgentProject,
) -> None:
    turns = (call("grow"), call("echo", text="a"), say("Done"))
    async with FaultyMCPServer() as server, serve_scripted(*turns, *turns) as model:
        project.write(model, server_at("sums", server.url))
        as_events = await project.run_holodeck("run", "--events", "Go")
        as_text = await project.run_holodeck("run", "Go")
    (noticed,) = [event for event in map(json.loads, as_events.stdout.splitlines()) if event["type"] == "run.noticed"]
    assert (noticed["code"], noticed["names"]) == ("tools_added", ["grown_1"])
    assert noticed["text"] == "Since this run began, these tools are new: grown_1."
    assert "sums has other tools than at its start: grown_2 is new." in as_text.stderr


@async_test(60)
async def test_exit_codes_tell_failed_from_incomplete(project: AgentProject) -> None:
    async with serve_scripted(status(401), call("add", a=1, b=1), [say("half of"), finish("length")]) as model:
        project.write(model, project.npx_server("calc"))
        failed = await project.run_holodeck("run", "One")
        assert (failed.returncode, failed.stdout) == (1, "")
        assert "Error: Model 'scripted'" in failed.stderr
        limited = await project.run_holodeck("run", "--max-turns", "1", "Two")
        assert limited.returncode == 3
        assert "Incomplete: The limit of 1 turn is reached; 1 more tool call was not run." in limited.stderr
        cut = await project.run_holodeck("run", "-q", "Three")
        assert (cut.returncode, cut.stdout) == (3, "half of\n")
        assert "The answer was cut at the limit of tokens." in cut.stderr


@async_test(60)
async def test_a_wrong_file_and_a_wrong_command_line_exit_with_2(project: AgentProject) -> None:
    project.write(None, more="toolz: []\n")
    for args, words in (
        (["run", "Hello"], "Did you mean 'tools'?"),
        (["run", "nowhere.yaml", "Hello"], "there is no such file"),
        (["run"], "There is no question."),
        (["run", "agent.yaml"], "There is no question."),
        (["run", "What", "is", "it?"], "put the question in quotes"),
        (["run", "--json", "--events", "Hello"], "not both"),
    ):
        done = await project.run_holodeck(*args)
        assert (done.returncode, done.stdout) == (2, ""), args
        assert words in done.stderr
        assert "Traceback" not in done.stderr


@async_test(60)
async def test_a_question_comes_from_standard_input_and_a_file_from_elsewhere(project: AgentProject) -> None:
    async with serve_scripted(say("Read.")) as model:
        project.write(model)
        moved = project.path / "team"
        moved.mkdir()
        (project.path / "agent.yaml").rename(moved / "agent.yaml")
        done = await project.run_holodeck("run", "team", "-", stdin="line 1\nline 2 é\n")
        assert done.stdout == "Read.\n"
        assert messages_of_turn(model, 0)[-1]["content"] == "line 1\nline 2 é\n"


@async_test(60)
async def test_a_question_that_is_not_utf8_reaches_the_model_without_the_wrong_bytes(project: AgentProject) -> None:
    async with serve_scripted(say("Read.")) as model:
        project.write(model)
        done = await project.run_holodeck("run", os.fsdecode(b"caf\xe9?"))
        assert done.stdout == "Read.\n"
        assert messages_of_turn(model, 0)[-1]["content"] == "caf??"


@async_test(60)
async def test_an_image_is_known_by_its_content_and_reaches_the_model(project: AgentProject) -> None:
    async with serve_scripted(say("A pixel.")) as model:
        project.write(model)
        (project.path / "picture.txt").write_bytes(PNG)
        (project.path / "fake.png").write_text("not a picture")
        done = await project.run_holodeck("run", "--image", "picture.txt", "What is it?")
        assert done.stdout == "A pixel.\n"
        text, image = messages_of_turn(model, 0)[-1]["content"]
        assert text["text"] == "What is it?"
        assert image["image_url"]["url"] == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
        wrong = await project.run_holodeck("run", "--image", "fake.png", "What is it?")
        assert wrong.returncode == 2
        assert "not a PNG, JPEG, GIF or WebP" in wrong.stderr
        assert len(model.received) == 1


@async_test(60)
async def test_ctrl_c_stops_the_model_and_the_servers(project: AgentProject) -> None:
    async with serve_scripted(call("slow", seconds=600)) as model:
        project.write(model, project.npx_server("calc"))
        async with TypingTerminal("run", "Go", cwd=project.path, env=project.env) as terminal:
            await terminal.wait_for("> calc.slow")
            terminal.type_text(CTRL_C)
            await terminal.wait_for("Stopped.")
            assert await terminal.wait_exit() == 130
            assert "Traceback" not in terminal.text
    await project.wait_servers_gone()


@async_test(60)
async def test_an_interrupted_run_still_gives_its_json(project: AgentProject) -> None:
    async with serve_scripted([say("So far so"), wait(asyncio.Event())]) as model:
        project.write(model)
        with (project.path / "out.json").open("w") as out:
            async with TypingTerminal("run", "--json", "Go", cwd=project.path, stdout=out.fileno()) as terminal:
                await terminal.wait_for("the model is thinking 1 s")
                terminal.process.send_signal(signal.SIGINT)
                assert await terminal.wait_exit() == 130
        await asyncio.wait_for(model.left.wait(), 20)
    result = json.loads((project.path / "out.json").read_text())
    assert (result["status"], result["text"]) == ("cancelled", "So far so [stopped by the user]")


@async_test(60)
async def test_a_call_that_needs_approval_is_refused_without_a_terminal(project: AgentProject) -> None:
    async with serve_scripted(call("add", a=1, b=2), say("I may not.")) as model:
        project.write(model, project.npx_server("calc", more=", approval: always"))
        done = await project.run_holodeck("run", "Add")
        assert done.stdout == "I may not.\n"
        assert "needs a person's approval" in messages_of_turn(model, 1)[-1]["content"]


@pytest.mark.parametrize(("answer", "expected"), [("y\r", "3"), ("\r", "The person did not approve this call")])
@async_test(60)
async def test_a_person_at_the_terminal_approves_or_refuses(project: AgentProject, answer: str, expected: str) -> None:
    async with serve_scripted(call("add", a=1, b=2), say("Well.")) as model:
        project.write(model, project.npx_server("calc", more=", approval: always"))
        async with TypingTerminal("run", "Add", cwd=project.path, env=project.env) as terminal:
            await terminal.wait_for("May calc.add run with these arguments?")
            assert '"a": 1,\n  "b": 2' in await terminal.wait_for("[y/N/a]")
            terminal.type_text(answer)
            await terminal.wait_for("Well.")
            assert await terminal.wait_exit() == 0
        assert expected in messages_of_turn(model, 1)[-1]["content"]


@async_test(60)
async def test_what_was_typed_before_a_question_is_no_answer_to_it(project: AgentProject) -> None:
    rest = asyncio.Event()
    hidden = "x" * 500 + " rm -rf"
    async with serve_scripted([say("Wait."), wait(rest), call("echo", text=hidden)], say("Well.")) as model:
        project.write(model, project.npx_server("calc", more=", approval: always"))
        async with TypingTerminal("run", "Go", cwd=project.path, env=project.env) as terminal:
            await terminal.wait_for("Wait.")
            terminal.type_text("y\r")
            rest.set()
            assert hidden in await terminal.wait_for("[y/N/a]"), "all of the arguments are shown"
            terminal.type_text("n\r")
            await terminal.wait_for("Well.")
        assert "did not approve" in messages_of_turn(model, 1)[-1]["content"]


@async_test(60)
async def test_a_server_that_asks_is_named_and_gets_the_answer(project: AgentProject) -> None:
    async with serve_scripted(call("ask_elicitation"), say("Thanks.")) as model:
        project.write(model, project.npx_server("calc"))
        async with TypingTerminal("run", "Ask me", cwd=project.path, env=project.env) as terminal:
            await terminal.wait_for("Server 'calc' asks: What is your name?")
            await terminal.wait_for("Answer it? [y/N]")
            terminal.type_text("y\r")
            await terminal.wait_for("name: ")
            terminal.type_text("Ada\r")
            await terminal.wait_for("Thanks.")
            assert await terminal.wait_exit() == 0
        expected = json.loads(messages_of_turn(model, 1)[-1]["content"])
        assert expected == {"action": "accept", "content": {"name": "Ada"}}


@async_test(60)
async def test_words_of_a_model_or_a_server_cannot_draw_on_the_terminal(project: AgentProject) -> None:
    bad = "\x1b[2J\x1b]0;title\x07\u202e"
    async with serve_scripted(call("echo", text=bad), say(f"Here: {bad}!")) as model:
        project.write(model, project.npx_server("calc"))
        async with TypingTerminal("run", "Go", cwd=project.path, env=project.env) as terminal:
            await terminal.wait_for("<U+202E>!")
            assert await terminal.wait_exit() == 0
            for dangerous in ("\x1b[2J", "\x1b]0", "\x07", "\u202e"):
                assert dangerous not in terminal.raw


@pytest.mark.proves("000:US5-1", "000:FR-021", "000:SC-006", "004:US1-3", "004:FR-017")
@async_test(60)
async def test_a_server_that_cannot_start_is_reported_and_the_others_work(project: AgentProject) -> None:
    async with serve_scripted(call("good__echo", text="hi"), say("Hi.")) as model, FaultyMCPServer() as good:
        broken = project.npx_server("broken", "dies-at-start")
        project.write(
            model, broken, f'  - {{type: mcp, name: good, description: d, transport: http, url: "{good.url}"}}'
        )
        done = await project.run_holodeck("run", "Go")
        assert (done.stdout, done.returncode) == ("Hi.\n", 0)
        assert "broken is not available" in done.stderr
        assert "API_KEY is not set" in done.stderr
        assert "Until it is known what tools broken has, those of good are offered as good__add, " in done.stderr
        assert len(good.calls("echo")) == 1


@pytest.mark.proves("000:US5-2", "000:FR-023", "004:US2-3", "004:FR-018")
@async_test(60)
async def test_a_server_that_dies_during_a_call_is_reported_to_the_person_and_the_model(project: AgentProject) -> None:
    async with serve_scripted(call("slow", seconds=600), say("It died.")) as model:
        project.write(model, project.npx_server("calc"))
        async with TypingTerminal("run", "Go", cwd=project.path, env=project.env) as terminal:
            await terminal.wait_for("> calc.slow")
            os.kill(project.pids()[-1], signal.SIGKILL)
            await terminal.wait_for("x calc.slow")
            await terminal.wait_for("It died.")
            assert await terminal.wait_exit() == 0
        assert "calc" in messages_of_turn(model, 1)[-1]["content"]


@async_test(60)
async def test_messages_beside_the_answer_are_sentences(project: AgentProject) -> None:
    async with (
        serve_scripted(status(503), call("fail", message="No such page"), say("Well.")) as model,
        FaultyMCPServer() as first,
        FaultyMCPServer() as second,
    ):
        project.write(model, server_at("first", first.url), server_at("second", second.url))
        done = await project.run_holodeck("run", "Go")
    assert done.stdout == "Well.\n"
    assert re.search(r"Model 'scripted' .* 503.* It is tried again in \d\.\d s\.", done.stderr)
    assert re.search(r"tools with names that second uses, too; .* offered as second__add, ", done.stderr)
    assert re.search(r"x first.fail  \d+ ms  No such page\n", done.stderr)
    assert "model.retry" not in done.stderr
    assert "mcp." not in done.stderr


@async_test(60)
async def test_broken_arguments_are_reported_to_the_model_and_not_sent_to_the_server(project: AgentProject) -> None:
    async with serve_scripted(call_raw("add", '{"a": 1,'), call("add", a="one", b=2), say("Oh.")) as model:
        project.write(model, project.npx_server("calc"))
        done = await project.run_holodeck("run", "Go")
        assert done.stdout == "Oh.\n"
        assert "not valid JSON" in messages_of_turn(model, 1)[-1]["content"]
        assert "do not fit the tool" in messages_of_turn(model, 2)[-1]["content"]
    assert "tools/call" not in project.journal.read_text()


@async_test(60)
async def test_warnings_of_the_file_are_shown_before_the_answer(project: AgentProject) -> None:
    async with serve_scripted(say("Hello."), say("Hello.")) as model:
        # An absent 'command' is deprecated.
        project.write(
            model, project.npx_server("calc").replace("command: npx, args: [-y, some-server]", "server: '@a/b'")
        )
        loud, quiet = await project.run_holodeck("run", "Hi"), await project.run_holodeck("run", "-q", "Hi")
        assert "1 warning" in loud.stderr
        assert quiet.stderr == ""


@pytest.mark.parametrize(
    ("redirection", "code", "expected"),
    [("> /dev/full", 1, "No space left on device"), ("| head -0", 0, ""), (">&-", 0, ""), ("<&- >&- 2>&-", 0, "")],
)
@async_test(60)
async def test_an_answer_that_cannot_be_written_is_no_traceback(
    project: AgentProject, redirection: str, code: int, expected: str
) -> None:
    async with serve_scripted(say("Hello.")) as model:
        project.write(model)
        command = f"{sys.executable} -m holodeck run -q Hi {redirection}"
        process = await asyncio.create_subprocess_shell(command, cwd=project.path, stderr=asyncio.subprocess.PIPE)
        _, errors = await process.communicate()
    assert process.returncode == code
    assert expected in errors.decode()
    assert b"Traceback" not in errors
    assert b"Exception ignored" not in errors


@async_test(60)
async def test_the_last_line_has_the_cached_share_and_the_cost(project: AgentProject) -> None:
    turn = [say("Hi."), spend(1_000, 100, cached=750)]
    async with serve_scripted(turn, turn) as model:
        price = "{input: 4, cached: 0.4, output: 20}"
        llm = f'{{provider: openai_compatible, name: m, endpoint: "{model.url}", price: {price}}}'
        project.write(None, more=f"model: {llm}")
        done = await project.run_holodeck("run", "Hello")
        assert "1,100 tokens (1,000 in, 75% of them cached, 100 out), cost 0.0033" in done.stderr
        shown = json.loads((await project.run_holodeck("run", "--json", "Hello")).stdout)
        assert (shown["usage"]["cached_tokens"], shown["cost"]) == (750, pytest.approx(0.0033))
