"""`holodeck mcp list`, `tools` and `prompts`: what a person sees of servers that are up, down, off or wrong."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
from pathlib import Path

import pytest
from async_tests import async_test
from cli.mcp_project import DOCKER, NPX, TIMEOUT, UVX, MCPProject, interrupt
from holodeck_command import run_holodeck
from pty_terminal import TypingTerminal

HOSTILE = r"""
import json, sys
EVIL = "red \x1b[31m bidi \u202e csi \x9b2J zero\u200bwidth\nsecond line"
LISTS = {
    "tools/list": {"tools": [{"name": "t", "description": EVIL, "inputSchema": {"type": "object", "title": EVIL}}]},
    "prompts/list": {"prompts": [{"name": "p", "description": EVIL, "arguments": [{"name": "a" + EVIL}]}]},
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "prompts": {}},
                   "serverInfo": {"name": EVIL, "version": EVIL}},
    "tools/call": {"content": [{"type": "text", "text": EVIL}]},
    "ping": {},
}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] in LISTS:
        answer["result"] = LISTS[message["method"]]
    else:
        answer["error"] = {"code": -32601, "message": EVIL}
    print(json.dumps(answer), flush=True)
"""
BAD = ("\x1b", "\x9b", "\u202e", "\u200b")


def test_every_server_is_shown_with_its_state_and_the_bad_ones_with_the_reason(project: MCPProject) -> None:
    project.set_uvx_server("dies-at-start")
    project.write_servers(
        good=NPX,
        dead=UVX,
        missing=DOCKER,
        off={**NPX, "disabled": True},
        wrong={"url": "http://x.example/mcp"},
        gone={"url": "http://localhost:9/mcp"},
    )
    done = project.run_mcp("list")
    rows = {line.split()[0]: line for line in done.stdout.splitlines()[1:]}
    assert rows["good"].split()[1:4] == ["up", "22", "2"]
    assert "faulty 1.0" in rows["good"]
    assert rows["good"].index("up") == done.stdout.index("STATE"), "columns stand below their heads"
    for name, state, why in (
        ("dead", "down", "FATAL: API_KEY is not set"),
        ("missing", "down", "'docker' is not on PATH"),
        ("off", "disabled", ""),
        ("wrong", "invalid", "must use https://"),
        ("gone", "down", "cannot be reached"),
    ):
        assert rows[name].split()[1] == state
        assert why in rows[name]
    assert (done.returncode, project.running_servers()) == (1, [])
    assert "1 error; 'holodeck mcp doctor' shows them" in done.stderr


@async_test
async def test_the_last_line_of_an_error_has_the_width_of_the_terminal(project: MCPProject) -> None:
    project.set_uvx_program(f"raise SystemExit('first\\nthe point: {'x' * 200}')\n")
    project.write_servers(dead=UVX)
    async with TypingTerminal("mcp", "list", "-f", "mcp.json", cwd=project.path, env=project.env) as terminal:
        shown = await terminal.wait_for("…")
        await terminal.wait_exit()
    row = shown.splitlines()[-1]
    assert row.startswith("dead    down      the point: xxx")
    assert len(row) + 1 == 200, "the columns of the terminal"


@pytest.mark.parametrize(
    ("script", "reason"),
    [("throw new TypeError('no key was given');", "TypeError: no key was given"), (None, "Error: Cannot find module")],
    ids=["throws", "missing"],
)
def test_a_program_of_node_is_down_with_the_message_of_its_error(
    project: MCPProject, script: str | None, reason: str
) -> None:
    if script is not None:
        (project.path / "server.mjs").write_text(script)
    project.write_servers(own={"command": shutil.which("node"), "args": ["server.mjs"]})
    done = project.run_mcp("list")
    assert done.stdout.splitlines()[1].startswith(f"own     down      {reason}")


@pytest.mark.parametrize("command", [r"C:\Program Files\nodejs\node.exe", "/opt/of/another/machine"])
def test_a_program_of_another_machine_is_not_to_be_installed(project: MCPProject, command: str) -> None:
    project.write_servers(other={"command": command, "args": ["x.js"]})
    done = project.run_mcp("list")
    assert f"there is no program '{command}' on this machine. Write its path here" in done.stdout
    assert "Install" not in done.stdout


def test_the_protocol_is_shown_with_v(project: MCPProject) -> None:
    project.write_servers(good=NPX)
    done = project.run_mcp("list", "-v")
    assert done.stdout.splitlines()[1].split()[1:6] == ["up", "legacy", "2025-11-25", "22", "2"]


@pytest.mark.proves("D-3")
def test_the_modern_era_is_seen_too(project: MCPProject) -> None:
    project.set_npx_server("normal", era="modern")
    project.write_servers(s=NPX)
    done = project.run_mcp("list", "--json")
    server = json.loads(done.stdout)["servers"][0]
    assert (server["state"], server["era"], server["version"], server["tools"]) == ("up", "modern", "2026-07-28", 23)
    assert done.returncode == 0


@pytest.mark.proves("D-14")
def test_of_ten_servers_one_hangs_and_one_is_missing_and_eight_are_shown_meanwhile(project: MCPProject) -> None:
    project.set_uvx_server("hangs-at-start")
    project.write_servers(
        hangs={**UVX, "startup_timeout": 600}, missing=DOCKER, **{f"s{number}": NPX for number in range(8)}
    )
    with project.start_mcp("list") as process:
        assert process.stdout is not None
        rows = [process.stdout.readline().decode().split()[:2] for _ in range(10)]
        assert sorted(rows[1:]) == [["missing", "down"], *([f"s{number}", "up"] for number in range(8))]
        project.wait_uvx_started()
        assert interrupt(process) == 130
        assert b"Traceback" not in (process.stderr.read() if process.stderr else b"")
    assert project.running_servers() == []


def test_a_server_that_hangs_costs_its_own_time_only(project: MCPProject) -> None:
    project.set_uvx_server("hangs-at-start")
    project.write_servers(good=NPX, hangs={**UVX, "startup_timeout": 1})
    done = project.run_mcp("list", "--json")
    states = {server["name"]: server for server in json.loads(done.stdout)["servers"]}
    assert states["good"]["state"] == "up"
    assert "did not answer within 1 s" in states["hangs"]["error"]["message"]
    assert (done.returncode, project.running_servers()) == (1, [])


@pytest.mark.proves("D-17")
@pytest.mark.parametrize("mode", ["hangs-at-start", "ignores-term", "wrapper"])
def test_ctrl_c_leaves_no_process_behind(project: MCPProject, mode: str) -> None:
    project.set_uvx_server(mode)
    project.write_servers(s={**UVX, "startup_timeout": 600}, other=NPX)
    with project.start_mcp("call", "s", "slow", "seconds=600") as process:
        project.wait_uvx_started()
        assert interrupt(process) == 130
        assert process.stderr is not None
        assert process.stderr.read().decode().strip() == "Stopped."
    assert project.running_servers() == []


def test_a_terminal_shows_what_takes_long_and_for_how_long(project: MCPProject) -> None:
    project.set_uvx_server("hangs-at-start")
    project.write_servers(slow={**UVX, "startup_timeout": 600})
    ours, theirs = pty.openpty()
    with project.start_mcp("tools", stderr=theirs) as process:
        seen = b""
        while not re.search(rb"asking slow [1-9]\d* s", seen):
            seen += os.read(ours, 1024)
        assert interrupt(process) == 130
    os.close(theirs)
    os.close(ours)


def test_what_servers_say_cannot_draw_on_the_terminal(project: MCPProject) -> None:
    project.set_uvx_program(HOSTILE)
    project.write_servers(s=UVX)
    for args in (
        ["list"],
        ["tools"],
        ["tools", "-v"],
        ["prompts", "-v"],
        ["doctor"],
        ["call", "s", "t"],
        ["call", "s", "missing"],
        ["list", "--json"],
        ["tools", "--json"],
        ["prompts", "--json"],
        ["call", "s", "t", "--json"],
    ):
        done = project.run_mcp(*args)
        shown = done.stdout + done.stderr
        assert not [char for char in BAD if char in shown], args
        assert "red" in shown or args[-1] == "missing"
    assert json.loads(project.run_mcp("call", "s", "t", "--json").stdout)["content"][0]["text"].startswith(
        "red \x1b[31m"
    )
    assert "\x1b[31m" in project.run_mcp("call", "s", "t", "--raw").stdout, "only for those who ask"


def test_last_words_of_a_server_cannot_draw_on_the_terminal_either(project: MCPProject) -> None:
    project.set_uvx_program("import sys; sys.stderr.write('red \\x1b[31m \\u202e'); sys.exit(4)")
    project.write_servers(s=UVX)
    for args in (["list"], ["tools"], ["doctor"], ["call", "s", "t"], ["call", "s", "t", "a=1"], ["list", "-v"]):
        done = project.run_mcp(*args)
        assert done.returncode == 1
        shown = done.stdout + done.stderr
        assert "red <U+001B>[31m" in shown, args
        assert not [char for char in BAD if char in shown], args


def test_a_reader_that_goes_early_is_no_error_to_speak_of(project: MCPProject) -> None:
    project.write_servers(**{f"s{number}": NPX for number in range(3)})
    with project.start_mcp("tools") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(TIMEOUT) == 1
    assert project.running_servers() == []


def test_tools_are_listed_with_their_schemas_on_request(project: MCPProject) -> None:
    project.write_servers(s=NPX)
    short = project.run_mcp("tools", "s")
    assert "add              Adds two numbers." in short.stdout
    assert "inputSchema" not in short.stdout
    full = project.run_mcp("tools", "s", "-v")
    assert '"a": {' in full.stdout
    assert "for models: weird-name-x-y" in full.stdout
    assert [line.strip() for line in full.stdout.splitlines() if "task: " in line] == [
        "task: required",
        "task: optional",
    ]
    tools = json.loads(project.run_mcp("tools", "--json").stdout)["servers"][0]["tools"]
    assert tools[0]["input_schema"]["required"] == ["a", "b"]
    assert {tool["name"]: tool["task_support"] for tool in tools}["task"] == "required"


def test_prompts_are_listed_with_their_arguments(project: MCPProject) -> None:
    project.write_servers(s=NPX)
    assert "review CODE  Asks for a review of some code." in project.run_mcp("prompts").stdout
    prompts = json.loads(project.run_mcp("prompts", "s", "--json").stdout)["servers"][0]["prompts"]
    assert [prompt["name"] for prompt in prompts] == ["review", "greet"]


def test_the_tools_of_the_others_are_shown_when_one_is_down(project: MCPProject) -> None:
    project.set_uvx_server("dies-at-start")
    project.write_servers(good=NPX, dead=UVX)
    done = project.run_mcp("tools")
    assert "Adds two numbers." in done.stdout
    assert "ended with exit code 1" in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize("name", ["agent.yaml", "gateway.yaml", "mcp.json", ".mcp.json", ".vscode/mcp.json"])
def test_the_usual_files_are_found(project: MCPProject, name: str) -> None:
    file = project.path / name
    file.parent.mkdir(exist_ok=True)
    entry = {"type": "mcp", "name": "s", "description": "d", **NPX}
    # JSON is YAML; the key of the model is not set, and no command here needs it.
    agent = {"name": "a", "model": {"provider": "openai", "name": "m", "api_key": "${NO_SUCH_KEY}"}, "tools": [entry]}
    forms = {"agent.yaml": agent, "gateway.yaml": {"mcp_servers": [entry]}}
    file.write_text(json.dumps(forms.get(name, {"mcpServers": {"s": NPX}})))
    assert project.run_mcp("prompts", "s").returncode == 0


def test_a_gateway_file_has_its_own_servers_and_those_of_its_agents(project: MCPProject) -> None:
    project.set_uvx_server("dies-at-start")
    project.write_gateway({"own": NPX}, first={"files": UVX, "own": UVX}, second={"files": NPX, "single": NPX})
    done = project.run_mcp("list", "-f", "gateway.yaml", "--json")
    listed = json.loads(done.stdout)
    assert {server["name"]: server["state"] for server in listed["servers"]} == {
        "own": "up",
        "first/files": "down",
        "first/own": "down",
        "second/files": "up",
        "single": "up",
    }
    assert listed["problems"] == []
    assert project.run_mcp("call", "second/files", "add", "a=2", "b=3").stdout.strip() == "5"


def test_servers_that_two_agents_of_a_gateway_share_are_listed_once(project: MCPProject) -> None:
    project.write_gateway({}, first={}, second={})
    shared = {"mcp_servers": [{"name": "shared", "description": "d", **NPX}]}
    (project.path / "config.yaml").write_text(json.dumps(shared))
    done = project.run_mcp("list", "--json")
    assert [server["name"] for server in json.loads(done.stdout)["servers"]] == ["shared"]


def test_a_wrong_tool_of_an_agent_file_is_refused_alone(project: MCPProject) -> None:
    text = "name: a\ntools:\n  - {type: mcp, name: s, command: npx, args: [x]}\n  - {type: mcp, name: t, comand: npx}\n"
    (project.path / "agent.yaml").write_text(text)
    assert project.run_mcp("prompts", "s").returncode == 0
    done = project.run_mcp("prompts", "t")
    assert done.returncode == 2
    assert "Did you mean 'command'?" in done.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["list", "-f", "no.json"], "there is no such file"),
        (["list", "-f", "broken.json"], "not valid JSON"),
        (["tools", "nobody"], "there is no server 'nobody'"),
        (["list", "--url", "ftp://x"], "must use https://"),
        (["list", "--url", "https://x", "--command", "npx x"], "exclude each other"),
        (["list", "--command", "python 'x"], "the command line cannot be read"),
        (["call", "s", "add", "{bad"], "is not JSON"),
        (["call", "s", "add", "word"], "is not key=value"),
        (["call", "s", "add", "a=x"], "'a' must be a number"),
        (["login", "s"], "only a server with a 'url'"),
    ],
)
def test_what_is_wrong_with_the_question_is_a_sentence_or_json_with_code_2(
    project: MCPProject, args: list[str], words: str
) -> None:
    (project.path / "broken.json").write_text("{")
    project.write_servers(s=NPX)
    done = project.run_mcp(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    listed = project.run_mcp(*args, "--json")
    data = json.loads(listed.stdout)
    assert listed.returncode == 2
    assert words in json.dumps(data["problems"])


def test_without_any_file_the_error_lists_the_ways_to_name_a_server(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = run_holodeck("mcp", "list", cwd=tmp_path / "empty")
    assert done.returncode == 2
    assert "Name a file with -f, or a server with --url or --command." in done.stderr


def test_help_is_instant_and_a_misspelled_command_is_guessed(tmp_path: Path) -> None:
    done = run_holodeck("mcp", "--help", cwd=tmp_path)
    assert "doctor" in done.stdout
    assert "Did you mean 'list'?" in run_holodeck("mcp", "lst", cwd=tmp_path).stderr
