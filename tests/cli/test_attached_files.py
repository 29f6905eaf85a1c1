"""Files of a person that are attached to a question: `@file` in a chat, and a word of its own in `holodeck run`."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from agent_project import AgentProject, messages_of_turn, serve_scripted
from async_tests import async_test
from pty_terminal import TypingTerminal

from holodeck.cli.attached_files import MAX_ATTACHED_CHARS, MAX_IMAGE_BYTES
from holodeck.testing.mcp.tools import PNG
from holodeck.testing.model.script import say


@pytest.fixture
def project(tmp_path: Path) -> AgentProject:
    made = AgentProject(tmp_path)
    (made.path / "notes.md").write_text("The notes.")
    (made.path / "my plan.txt").write_text("The plan.")
    (made.path / "pixel").write_bytes(base64.b64decode(PNG))
    return made


@async_test(60)
async def test_files_that_a_line_mentions_are_attached_and_other_words_stay(project: AgentProject) -> None:
    asked = 'Compare (@notes.md, @./pixel and @"my plan.txt"): ask @alice, a@notes.md or @scope/package'
    async with serve_scripted(say("Both.")) as model:
        project.write(model)
        done = await project.run_holodeck("chat", stdin=asked + "\n")
        assert (done.returncode, done.stdout) == (0, "Both.\n"), done.stderr
        parts = messages_of_turn(model, 0)[0]["content"]
    texts = "".join(part["text"] for part in parts if part["type"] == "text")
    assert texts.startswith(f"{asked}\n\nFile notes.md:\nThe notes.\n")
    assert "File my plan.txt:\nThe plan.\n" in texts
    assert [part["image_url"]["url"] for part in parts if part["type"] == "image_url"] == [
        f"data:image/png;base64,{PNG}"
    ]
    assert "Attached ./pixel: image/png, 70 bytes." in done.stderr


@async_test(60)
async def test_what_cannot_be_attached_says_why_and_the_question_is_not_sent(project: AgentProject) -> None:
    (project.path / "long.txt").write_text("x" * (MAX_ATTACHED_CHARS + 1))
    (project.path / "data.bin").write_bytes(b"\0\1\2")
    with (project.path / "huge.png").open("wb") as file:
        file.truncate(MAX_IMAGE_BYTES + 1)
    expected = {
        "@notse.md": "There is no file 'notse.md' in ",
        "@./gone": f" in {project.path}. To send the words as they are, write a space after '@'.",
        "@long.txt": "long.txt cannot be attached: it has 100,001 characters, and at most 100,000 can be.",
        "@data.bin": "it is neither a text in UTF-8 nor a PNG, JPEG, GIF or WebP image.",
        "@huge.png": "huge.png cannot be attached: it has more than 20 MiB.",
        "@../project": "../project cannot be attached: this is a folder, not a file.",
    }
    async with serve_scripted() as model:
        project.write(model)
        done = await project.run_holodeck("chat", stdin="".join(f"What is {each}?\n" for each in expected))
        assert (done.returncode, model.received) == (1, [])
    for text in (*expected.values(), "Did you mean 'notes.md'?"):
        assert text in done.stderr


@async_test(60)
async def test_run_attaches_words_of_their_own_and_no_path_in_the_question(project: AgentProject) -> None:
    async with serve_scripted(say("Seen.")) as model:
        project.write(model)
        done = await project.run_holodeck("run", "What is in @notes.md?", "@my plan.txt", "@pixel")
        assert (done.returncode, done.stdout) == (0, "Seen.\n"), done.stderr
        parts = messages_of_turn(model, 0)[0]["content"]
        wrong = await project.run_holodeck("run", "Go", "@gone.txt")
    sent = str(parts)
    assert "The plan." in sent
    assert PNG in sent
    assert "The notes." not in sent
    assert "notes.md is not attached. Name it as a word of its own: @notes.md" in done.stderr
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "There is no file 'gone.txt'" in wrong.stderr


@async_test(60)
async def test_paths_are_completed_while_they_are_typed(project: AgentProject) -> None:
    (project.path / "data").mkdir()
    (project.path / "data" / "some report.txt").write_text("The report.")
    async with serve_scripted(say("Fine.")) as model:
        project.write(model)
        async with TypingTerminal("chat", cwd=project.path, env=project.env) as terminal:
            await terminal.wait_for("you>")
            terminal.type_text("See @da")
            await terminal.wait_for("folder")
            terminal.type_text("\t")
            await terminal.wait_for("data/")
            terminal.type_text("rep")
            await terminal.wait_for("some report.txt")
            terminal.type_text("\t\r")
            await terminal.wait_for("Attached data/some report.txt: 11 characters.")
            await terminal.wait_for("Fine.")


@async_test(60)
async def test_a_mention_that_is_sent_before_its_suggestions_are_there_prints_nothing_else(
    project: AgentProject,
) -> None:
    async with serve_scripted(say("First."), say("Second."), say("Third.")) as model:
        project.write(model)
        async with TypingTerminal("chat", cwd=project.path, env=project.env) as terminal:
            await terminal.wait_for("you>")
            for answer in ("First.", "Second.", "Third."):
                terminal.type_text("See @notes.md and @pixel\r")
                await terminal.wait_for(answer)
                await terminal.wait_for("you>")
            assert "Warning" not in terminal.text
