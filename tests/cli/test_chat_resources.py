"""Resources in `holodeck chat`: attached by a mention, suggested while one is typed, and completed by the server."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from agent_project import AgentProject, messages_of_turn, serve_scripted, server_at
from async_tests import async_test
from pty_terminal import TypingTerminal

from holodeck.cli.attached_files import MAX_ATTACHED_CHARS
from holodeck.testing import Era, FaultyMCPServer
from holodeck.testing.mcp.tools import PNG
from holodeck.testing.model.script import say

ENTER, TAB, DOWN = "\r", "\t", "\x1b[B"
LOAD = ", load_resources: true"


@pytest.fixture
def project(tmp_path: Path) -> AgentProject:
    return AgentProject(tmp_path)


@asynccontextmanager
async def chatting(project: AgentProject) -> AsyncIterator[TypingTerminal]:
    async with TypingTerminal("chat", cwd=project.path, env=project.env) as terminal:
        await terminal.wait_for("/help lists the commands.")
        await terminal.wait_for("you>")
        yield terminal


@pytest.mark.parametrize("era", ["legacy", "modern"])
@async_test(60)
async def test_a_mentioned_resource_is_attached_to_the_message_and_the_user_is_told(
    project: AgentProject, era: Era
) -> None:
    async with serve_scripted(say("They are notes.")) as model, FaultyMCPServer(era=era) as server:
        project.write(model, server_at("files", server.url, more=LOAD))
        asked = "What is in @files:test://notes.txt? And ask @alice:hello or a@files:x"
        done = await project.run_holodeck("chat", stdin=asked + "\n")
        assert (done.returncode, done.stdout) == (0, "They are notes.\n"), done.stderr
        assert "Attached test://notes.txt of files: 5 characters." in done.stderr
        (message,) = messages_of_turn(model, 0)
        assert message["content"] == f"{asked}\n\nResource test://notes.txt of server files:\nnotes\n"


@async_test(60)
async def test_a_uri_with_spaces_is_quoted_and_one_of_a_template_is_filled_in(project: AgentProject) -> None:
    async with serve_scripted(say("Both.")) as model, FaultyMCPServer() as server:
        await server.put_resource("test://my plan", text="the plan")
        await server.put_resource("test://data", text="the data")
        project.write(model, server_at("files", server.url, more=LOAD))
        asked = 'Compare @files:"test://my plan" and (@files:test://pages/plans/2), "@files:test://data".'
        done = await project.run_holodeck("chat", stdin=asked + "\n")
        assert done.returncode == 0, done.stderr
        sent = messages_of_turn(model, 0)[0]["content"]
        assert "Resource test://my plan of server files:\nthe plan\n" in sent
        assert "Resource test://pages/plans/2 of server files:\nplans, page 2\n" in sent
        assert "Resource test://data of server files:\nthe data\n" in sent


@async_test(60)
async def test_the_same_uri_of_two_servers_is_two_resources(project: AgentProject) -> None:
    async with serve_scripted(say("Both.")) as model, FaultyMCPServer() as one, FaultyMCPServer() as two:
        await two.put_resource("test://notes.txt", text="notes of two")
        project.write(model, server_at("one", one.url, more=LOAD), server_at("two", two.url, more=LOAD))
        done = await project.run_holodeck("chat", stdin="@one:test://notes.txt @two:test://notes.txt\n")
        assert done.returncode == 0, done.stderr
        sent = messages_of_turn(model, 0)[0]["content"]
        assert "of server one:\nnotes\n" in sent
        assert "of server two:\nnotes of two\n" in sent


@async_test(60)
async def test_an_image_is_attached_as_one_by_its_bytes_and_other_data_is_refused(project: AgentProject) -> None:
    async with serve_scripted(say("A pixel."), say("Nothing.")) as model, FaultyMCPServer() as server:
        await server.put_resource("test://pixel", blob=PNG, mime_type="text/plain")
        await server.put_resource("test://fake", blob=base64.b64encode(b"no image").decode(), mime_type="image/png")
        project.write(model, server_at("files", server.url, more=LOAD))
        done = await project.run_holodeck("chat", stdin="Look: @files:test://pixel\nand @files:test://fake\nBye\n")
        assert done.returncode == 1, "one question was not sent"
        assert "Attached test://pixel of files: image/png, 70 bytes." in done.stderr
        assert "test://fake of files cannot be attached: [resource: test://fake (image/png, 8 bytes)]." in done.stderr
        (image,) = [part for part in messages_of_turn(model, 0)[0]["content"] if part["type"] == "image_url"]
        assert image["image_url"]["url"] == f"data:image/png;base64,{PNG}"
        assert [message["content"] for message in messages_of_turn(model, 1)][-1] == "Bye"


@async_test(60)
async def test_a_long_resource_is_cut_and_one_that_is_not_there_is_not_sent(project: AgentProject) -> None:
    async with serve_scripted(say("Long.")) as model, FaultyMCPServer() as server:
        await server.put_resource("test://long", text="x" * 10_000_000)
        project.write(model, server_at("files", server.url, more=LOAD))
        done = await project.run_holodeck("chat", stdin="@files:test://nope\n@files:test://long\n")
        assert (done.returncode, done.stdout) == (1, "Long.\n")
        assert "Unknown resource: test://nope" in done.stderr
        assert "Attached test://long of files: the first 100000 of 10000000 characters." in done.stderr
        (message,) = messages_of_turn(model, 0)
        assert MAX_ATTACHED_CHARS < len(message["content"]) < MAX_ATTACHED_CHARS + 200


@async_test(60)
async def test_without_load_resources_a_mention_says_what_is_missing_and_is_not_sent(project: AgentProject) -> None:
    async with serve_scripted() as model, FaultyMCPServer() as server:
        project.write(model, server_at("files", server.url))
        done = await project.run_holodeck("chat", stdin="What is @files:test://notes.txt?\n/resources\n")
        assert (done.returncode, model.received) == (1, [])
        assert "cannot be attached: write 'load_resources: true' in the entry of 'files'" in done.stderr
        assert "There are no resources of servers with 'load_resources: true'." in done.stderr


@pytest.mark.parametrize("era", ["legacy", "modern"])
@async_test(60)
async def test_resources_are_suggested_while_a_mention_is_typed(project: AgentProject, era: Era) -> None:
    async with serve_scripted(say("They are notes.")) as model, FaultyMCPServer(era=era) as server:
        await server.put_resource("test://sly", text="s", name="\x1b[31msly\u202e")
        project.write(model, server_at("files", server.url, more=LOAD))
        async with chatting(project) as terminal:
            terminal.type_text("/resources" + ENTER)
            await terminal.wait_for("@files:test://notes.txt")
            await terminal.wait_for("you>")
            terminal.type_text("Read @")
            await terminal.wait_for("files:test://data.bin")
            terminal.type_text("ntstxt")
            await terminal.wait_for("files:test://notes.txt")
            terminal.type_text(TAB)
            await terminal.wait_for("files:test://notes.txt")
            terminal.type_text(" please" + ENTER)
            await terminal.wait_for("Attached test://notes.txt of files: 5 characters.")
            await terminal.wait_for("They are notes.")
            assert "\x1b[31msly" not in terminal.raw
        assert messages_of_turn(model, 0)[0]["content"].startswith("Read @files:test://notes.txt please\n")


@async_test(60)
async def test_enter_takes_the_suggestion_that_is_selected_and_the_next_one_sends_the_line(
    project: AgentProject,
) -> None:
    async with serve_scripted(say("Fine.")) as model, FaultyMCPServer() as server:
        project.write(model, server_at("files", server.url, more=LOAD))
        async with chatting(project) as terminal:
            terminal.type_text("@")
            await terminal.wait_for("files:test://pages/")
            terminal.type_text(DOWN)
            await terminal.wait_for("files:test://notes.txt")
            terminal.type_text(ENTER + " is it good?" + ENTER)
            await terminal.wait_for("Fine.")
        assert messages_of_turn(model, 0)[0]["content"].startswith("@files:test://notes.txt is it good?\n")


@pytest.mark.parametrize("era", ["legacy", "modern"])
@async_test(60)
async def test_arguments_of_prompts_and_variables_of_templates_are_completed_by_the_server(
    project: AgentProject, era: Era
) -> None:
    async with serve_scripted(say("Reviewed."), say("Read.")) as model, FaultyMCPServer(era=era) as server:
        project.write(model, server_at("files", server.url, more=LOAD))
        async with chatting(project) as terminal:
            terminal.type_text("/review code=fi" + TAB)
            (asked,) = await server.received("completion/complete")
            assert asked.params["argument"] == {"name": "code", "value": "fi"}
            await terminal.wait_for("fib()")
            terminal.type_text(ENTER)
            await terminal.wait_for("Reviewed.")
            await terminal.wait_for("you>")
            terminal.type_text("@files:test://pages/pe")
            await terminal.wait_for("files:test://pages/people/")
            terminal.type_text(TAB)
            await terminal.wait_for("files:test://pages/people/")
            terminal.type_text("2" + ENTER)
            await terminal.wait_for("Attached test://pages/people/2 of files")
            await terminal.wait_for("Read.")
        assert "fib()" in str(messages_of_turn(model, 0)[-1]["content"])


@async_test(60)
async def test_a_server_that_does_not_answer_keeps_nobody_from_typing(project: AgentProject) -> None:
    async with serve_scripted(say("Hello.")) as model, FaultyMCPServer("hangs", on="resources/list") as server:
        project.write(model, server_at("files", server.url, more=LOAD))
        async with chatting(project) as terminal:
            terminal.type_text("Hi @")
            await server.received("resources/list")
            terminal.type_text(" all" + ENTER)
            await terminal.wait_for("Hello.")
        assert messages_of_turn(model, 0)[0]["content"] == "Hi @ all"
