"""`holodeck mcp call`: arguments in, text and files out, and an exit code that tells how it went."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aio import aio
from cli.mcp_project import NPX, Project
from typing_terminal import CTRL_C, TypingTerminal

MEBIBYTE = 1024 * 1024
BUSY = 60  # seconds, on a machine that others use as well


@pytest.fixture(autouse=True)
def _one_server(project: Project) -> None:
    project.servers(s=NPX)


@pytest.mark.parametrize(
    "args",
    [
        ["s", "add", '{"a": 2, "b": 3}'],
        ["s", "add", "a=2", "b=3"],
        ["s", "add", '{"a": 9, "b": 3}', "a=2"],
        ["add", "a=2", "b=3"],
        ["s", "add", "-"],
    ],
)
def test_arguments_come_as_json_as_pairs_or_on_the_input(project: Project, args: list[str]) -> None:
    done = project.run("call", *args, stdin='{"a": 2, "b": 3}')
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "5", "")


@pytest.mark.parametrize("text", ["7", "true", "null", "[1]", "a=b", "", '"quoted"', "Ünï 👩‍👧"])
def test_a_text_argument_stays_as_it_was_typed(project: Project, text: str) -> None:
    done = project.run("call", "s", "echo", f"text={text}", "--json")
    assert json.loads(done.stdout)["content"] == [{"type": "text", "text": text}]


def test_a_tool_may_be_called_by_the_name_that_models_know(project: Project) -> None:
    assert project.run("call", "s", "weird-name-x-y", "text=hi").returncode == 0


@pytest.mark.proves("D-19")
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_images_sounds_and_bytes_are_saved_and_nothing_is_overwritten(project: Project, era: str) -> None:
    project.well("normal", era=era)
    out = project.path / "made" / "here"
    first = project.run("call", "s", "many_blocks", "--out", out)
    second = project.run("call", "s", "many_blocks", "--out", out, "--json")
    assert first.returncode == second.returncode == 0
    assert f"[image/png, 70 bytes, saved to {out}/s-many_blocks-1.png]" in first.stdout
    assert "[link: test://far.pdf (application/pdf)]" in first.stdout
    files = [block["file"] for block in json.loads(second.stdout)["content"] if "file" in block]
    assert [Path(file).name for file in files] == ["s-many_blocks-2.png", "s-many_blocks-2.wav", "s-many_blocks-2.bin"]
    assert (out / "s-many_blocks-1.png").read_bytes().startswith(b"\x89PNG")
    assert len(list(out.iterdir())) == 6


def test_a_folder_that_cannot_be_written_is_an_error(project: Project) -> None:
    (project.path / "file").write_text("")
    done = project.run("call", "s", "image", "--out", "file/below")
    assert done.returncode == 1
    assert "Choose another with --out." in done.stderr


def test_structured_content_is_shown_where_the_text_does_not_say_it(project: Project) -> None:
    assert project.run("call", "s", "structured").stdout.strip() == '{"total":3}'
    assert json.loads(project.run("call", "s", "structured", "--json").stdout)["structured"] == {"total": 3}


def test_a_tool_that_reports_an_error_gives_its_text_and_code_1(project: Project) -> None:
    done = project.run("call", "s", "fail", "message=the disk is full")
    assert (done.returncode, done.stdout, done.stderr.strip()) == (1, "", "the disk is full")
    data = json.loads(project.run("call", "s", "fail", "message=x", "--json").stdout)
    assert (data["success"], data["is_error"], data["content"][0]["text"]) == (False, True, "x")


@pytest.mark.proves("D-15")
@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("dies-mid-call", "ended with"),
        ("dies-at-start", "FATAL: API_KEY is not set"),
        ("protocol-error", "Server 's' (call)"),
        ("hangs", "Server 's' (call)"),
        ("invalid-utf8", "Server 's' (call)"),
        ("not-a-result", "Server 's' (call)"),
    ],
)
def test_a_server_that_fails_is_named_with_the_reason_and_code_1(project: Project, mode: str, words: str) -> None:
    project.well(mode)
    done = project.run("call", "s", "add", '{"a": 1, "b": 1}', "--timeout", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert "Traceback (most" not in done.stderr
    data = json.loads(project.run("call", "s", "add", '{"a": 1, "b": 1}', "--timeout", "1", "--json").stdout)
    assert data["success"] is False
    assert words in data["error"]["message"]
    assert project.processes() == []


@pytest.mark.parametrize("mode", ["empty-content", "missing-content", "null-content", "unknown-content"])
def test_an_answer_without_known_content_says_so(project: Project, mode: str) -> None:
    project.well(mode)
    done = project.run("call", "s", "echo", "text=x")
    assert done.returncode == 0
    assert "(the tool gave an empty answer)" in done.stdout or "unknown kind" in done.stdout
    assert "warning: " in done.stderr


def test_a_tool_that_is_not_there_is_guessed(project: Project) -> None:
    done = project.run("call", "s", "ecko", "text=x")
    assert done.returncode == 1
    assert "Did you mean 'echo'?" in done.stderr
    assert json.loads(project.run("call", "s", "ecko", "--json").stdout)["error"]["phase"] == "call"


def test_a_server_that_is_not_there_is_guessed_also_where_it_may_be_left_out(project: Project) -> None:
    done = project.run("call", "S", "echo", "text=x")
    assert done.returncode == 2
    assert "there is no server 'S'" in done.stderr
    assert "Did you mean 's'?" in done.stderr


def test_ten_megabytes_are_printed_whole(project: Project) -> None:
    size = 10 * MEBIBYTE
    done = project.run("call", "s", "big", f"bytes={size}")
    assert (done.returncode, len(done.stdout.rstrip("\n"))) == (0, size)


def test_a_command_line_is_a_server_without_any_file(project: Project) -> None:
    (project.path / "mcp.json").unlink()
    done = project.run("call", "--command", "npx -y @scope/server-sums", "add", "a=2", "b=3")
    assert (done.returncode, done.stdout.strip()) == (0, "5")
    done = project.run("call", "--command", "npx -y @scope/server-sums", "sums", "add", "a=2", "b=3")
    assert done.stdout.strip() == "5", "its derived name may be given as well"


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_server_that_asks_is_answered_by_the_person_at_the_terminal(project: Project, era: str) -> None:
    project.well("normal", era=era)

    @aio(BUSY)
    async def call() -> None:
        async with TypingTerminal("mcp", "call", "s", "ask_elicitation", cwd=project.path, env=project.env) as terminal:
            await terminal.sees("Server 's' asks: What is your name?")
            terminal.types("y\r")
            await terminal.sees("name: ")
            terminal.types("Ada\r")
            await terminal.sees('"name"')
            await terminal.sees("Ada")
            assert await terminal.ends() == 0

    call()


def test_ctrl_c_at_the_terminal_stops_a_call_and_its_server(project: Project) -> None:
    project.well("hangs")

    @aio(BUSY)
    async def call() -> None:
        async with TypingTerminal(
            "mcp", "call", "s", "add", "a=1", "b=2", cwd=project.path, env=project.env
        ) as terminal:
            await terminal.sees("calling add of s ")
            terminal.types(CTRL_C)
            await terminal.sees("Stopped.")
            assert await terminal.ends() == 130

    call()
    assert project.processes() == []
