"""`holodeck mcp call`: arguments in, text and files out, and an exit code that tells how it went."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from async_tests import async_test
from cli.mcp_project import NPX, MCPProject
from pty_terminal import CTRL_C, TypingTerminal

from holodeck.testing import Journal

MEBIBYTE = 1024 * 1024
BUSY = 60  # seconds, on a machine that others use as well


@pytest.fixture(autouse=True)
def _one_server(project: MCPProject) -> None:
    project.write_servers(s=NPX)


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
def test_arguments_come_as_json_as_pairs_or_on_the_input(project: MCPProject, args: list[str]) -> None:
    done = project.run_mcp("call", *args, stdin='{"a": 2, "b": 3}')
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "5", "")


@pytest.mark.parametrize("text", ["7", "true", "null", "[1]", "a=b", "", '"quoted"', "Ünï 👩‍👧"])
def test_a_text_argument_stays_as_it_was_typed(project: MCPProject, text: str) -> None:
    done = project.run_mcp("call", "s", "echo", f"text={text}", "--json")
    assert json.loads(done.stdout)["content"] == [{"type": "text", "text": text}]


def test_a_tool_may_be_called_by_the_name_that_models_know(project: MCPProject) -> None:
    assert project.run_mcp("call", "s", "weird-name-x-y", "text=hi").returncode == 0


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_tool_that_runs_as_a_task_is_called_like_any_other(project: MCPProject, era: str) -> None:
    project.set_npx_server("normal", era=era)
    done = project.run_mcp("call", "s", "task", "text=found", "polls=2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "found\n", "")


@pytest.mark.proves("D-19")
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_images_sounds_and_bytes_are_saved_and_nothing_is_overwritten(project: MCPProject, era: str) -> None:
    project.set_npx_server("normal", era=era)
    out = project.path / "made" / "here"
    first = project.run_mcp("call", "s", "many_blocks", "--out", out)
    second = project.run_mcp("call", "s", "many_blocks", "--out", out, "--json")
    assert first.returncode == second.returncode == 0
    assert f"[image/png, 70 bytes, saved to {out}/s-many_blocks-1.png]" in first.stdout
    assert "[link: test://far.pdf (application/pdf)]" in first.stdout
    files = [block["file"] for block in json.loads(second.stdout)["content"] if "file" in block]
    assert [Path(file).name for file in files] == ["s-many_blocks-2.png", "s-many_blocks-2.wav", "s-many_blocks-2.bin"]
    assert (out / "s-many_blocks-1.png").read_bytes().startswith(b"\x89PNG")
    assert len(list(out.iterdir())) == 6


def test_a_folder_that_cannot_be_written_is_an_error(project: MCPProject) -> None:
    (project.path / "file").write_text("")
    done = project.run_mcp("call", "s", "image", "--out", "file/below")
    assert done.returncode == 1
    assert "Choose another with --out." in done.stderr


def test_structured_content_is_shown_where_the_text_does_not_say_it(project: MCPProject) -> None:
    assert project.run_mcp("call", "s", "structured").stdout.strip() == '{"total":3}'
    assert json.loads(project.run_mcp("call", "s", "structured", "--json").stdout)["structured"] == {"total": 3}


def test_a_tool_that_reports_an_error_gives_its_text_and_code_1(project: MCPProject) -> None:
    done = project.run_mcp("call", "s", "fail", "message=the disk is full")
    assert (done.returncode, done.stdout, done.stderr.strip()) == (1, "", "the disk is full")
    data = json.loads(project.run_mcp("call", "s", "fail", "message=x", "--json").stdout)
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
def test_a_server_that_fails_is_named_with_the_reason_and_code_1(project: MCPProject, mode: str, words: str) -> None:
    project.set_npx_server(mode)
    done = project.run_mcp("call", "s", "add", '{"a": 1, "b": 1}', "--timeout", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert "Traceback (most" not in done.stderr
    data = json.loads(project.run_mcp("call", "s", "add", '{"a": 1, "b": 1}', "--timeout", "1", "--json").stdout)
    assert data["success"] is False
    assert words in data["error"]["message"]
    assert project.running_servers() == []


@pytest.mark.parametrize("mode", ["empty-content", "missing-content", "null-content", "unknown-content"])
def test_an_answer_without_known_content_says_so(project: MCPProject, mode: str) -> None:
    project.set_npx_server(mode)
    done = project.run_mcp("call", "s", "echo", "text=x")
    assert done.returncode == 0
    assert "(the tool gave an empty answer)" in done.stdout or "unknown kind" in done.stdout
    assert "warning: " in done.stderr


def test_a_tool_that_is_not_there_is_guessed(project: MCPProject) -> None:
    done = project.run_mcp("call", "s", "ecko", "text=x")
    assert done.returncode == 1
    assert "Did you mean 'echo'?" in done.stderr
    assert json.loads(project.run_mcp("call", "s", "ecko", "--json").stdout)["error"]["phase"] == "call"


def test_a_misspelled_argument_is_named_and_not_sent(project: MCPProject) -> None:
    done = project.run_mcp("call", "s", "echo", "txt=x")
    assert done.returncode == 2
    assert done.stderr.endswith("Error: there is no argument 'txt'. Did you mean 'text'?\n")


def test_a_server_that_is_not_there_is_guessed_also_where_it_may_be_left_out(project: MCPProject) -> None:
    done = project.run_mcp("call", "S", "echo", "text=x")
    assert done.returncode == 2
    assert "there is no server 'S'" in done.stderr
    assert "Did you mean 's'?" in done.stderr


def test_ten_megabytes_are_printed_whole(project: MCPProject) -> None:
    size = 10 * MEBIBYTE
    done = project.run_mcp("call", "s", "big", f"bytes={size}")
    assert (done.returncode, len(done.stdout.rstrip("\n"))) == (0, size)


def test_a_command_line_is_a_server_without_any_file(project: MCPProject) -> None:
    (project.path / "mcp.json").unlink()
    done = project.run_mcp("call", "--command", "npx -y @scope/server-sums", "add", "a=2", "b=3")
    assert (done.returncode, done.stdout.strip()) == (0, "5")
    done = project.run_mcp("call", "--command", "npx -y @scope/server-sums", "sums", "add", "a=2", "b=3")
    assert done.stdout.strip() == "5", "its derived name may be given as well"


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_server_that_asks_is_answered_by_the_person_at_the_terminal(project: MCPProject, era: str) -> None:
    project.set_npx_server("normal", era=era)

    @async_test(BUSY)
    async def call() -> None:
        async with TypingTerminal("mcp", "call", "s", "ask_elicitation", cwd=project.path, env=project.env) as terminal:
            await terminal.wait_for("Server 's' asks: What is your name?")
            terminal.type_text("y\r")
            await terminal.wait_for("name: ")
            terminal.type_text("Ada\r")
            await terminal.wait_for('"name"')
            await terminal.wait_for("Ada")
            assert await terminal.wait_exit() == 0

    call()


def test_ctrl_c_at_the_terminal_stops_a_call_and_its_server(project: MCPProject) -> None:
    project.set_npx_server("hangs")

    @async_test(BUSY)
    async def call() -> None:
        async with TypingTerminal(
            "mcp", "call", "s", "add", "a=1", "b=2", cwd=project.path, env=project.env
        ) as terminal:
            await terminal.wait_for("calling add of s ")
            terminal.type_text(CTRL_C)
            await terminal.wait_for("Stopped.")
            assert await terminal.wait_exit() == 130

    call()
    assert project.running_servers() == []


@pytest.mark.proves("D-38")
def test_a_call_that_is_typed_passes_the_rules_of_every_call(project: MCPProject, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    project.set_npx_server("normal", journal=journal)
    rules: dict[str, dict[str, object]] = {
        "others": {"allowed_tools": ["echo"]},
        "denied": {"denied_tools": ["add"]},
        "asks": {"approval": "always"},
        "free": {},
    }
    tools = [{"name": name, "type": "mcp", "description": "d"} | NPX | rule for name, rule in rules.items()]
    (project.path / "agent.yaml").write_text(json.dumps({"name": "a", "tools": tools}))
    arguments = {"fits": '{"a": 1, "b": 2}', "does not fit": '{"a": "x"}'}
    calls = {
        ("others", "fits"): (1, "is not allowed"),
        ("denied", "fits"): (1, "is not allowed"),
        ("free", "does not fit"): (2, "The arguments do not fit the tool"),
        # The person who types a call has approved it.
        ("asks", "fits"): (0, "3"),
    }
    for (server, form), (code, said) in calls.items():
        done = project.run_mcp("call", "-f", "agent.yaml", server, "add", arguments[form])
        assert (done.returncode, said in done.stdout + done.stderr) == (code, True), (server, form, done)
    made = [one.params["arguments"] for one in Journal(journal).requests if one.method == "tools/call"]
    assert made == [{"a": 1, "b": 2}]
