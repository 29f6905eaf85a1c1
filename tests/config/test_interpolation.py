"""`${VAR}`: where it is replaced, where it comes from, and what happens when it is not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from agent_folder import AgentFolder, agent_with_tool

from holodeck.config.env_loader import get_env_var, load_env_file, substitute_env_vars
from holodeck.lib.errors import ConfigError
from holodeck.models.tool import MCPTool


def _env(folder: AgentFolder, text: str, env: dict[str, str]) -> dict[str, str]:
    (server,) = folder.load(text, env).agent.tools
    assert isinstance(server, MCPTool)
    return {name: secret.reveal() for name, secret in server.env.items()}


def stdio(*lines: str) -> str:
    return agent_with_tool("command: npx", "server: some-server", *lines)


@pytest.mark.proves("000:FR-010", "003:ENV-1", "D-6")
@pytest.mark.parametrize(
    ("written", "env", "value"),
    [
        ("${A}", {"A": "one"}, "one"),
        ("${A}-${A}", {"A": "x"}, "x-x"),
        ("${A}${B}", {"A": "1", "B": "2"}, "12"),
        ("${env:A}", {"A": "one"}, "one"),
        ("${A:-fallback}", {}, "fallback"),
        ("${A:-fallback}", {"A": ""}, "fallback"),
        ("${A:-}", {}, ""),
        ("${A:-a:-b}", {}, "a:-b"),
        ("$${A}", {"A": "no"}, "${A}"),
        ("$A and $(A)", {"A": "no"}, "$A and $(A)"),
        ("${A}", {"A": "${B}"}, "${B}"),
        ("${A}", {"A": "quote\" ' \\ : {}\nline\ttab # no comment"}, "quote\" ' \\ : {}\nline\ttab # no comment"),
    ],
)
def test_a_reference_is_replaced_after_parsing(
    folder: AgentFolder, written: str, env: dict[str, str], value: str
) -> None:
    assert _env(folder, stdio(f"env: {{X: '{written}'}}"), env) == {"X": value}


@pytest.mark.proves("000:FR-010", "000:EDGE-5", "003:ENV-2", "003:RULE-10", "002:RULE-7", "D-6")
def test_every_missing_name_is_reported_with_its_place(folder: AgentFolder) -> None:
    problems = folder.load_errors(stdio("env:", "  A: ${ONE}", "  B: x${TWO}y${THREE}", "  C: ${ONE}"))
    found = [(problem.key, problem.message) for problem in problems]
    assert found == [
        ("tools[0].env.A", "Environment variable 'ONE' not found"),
        ("tools[0].env.B", "Environment variable 'TWO' not found"),
        ("tools[0].env.B", "Environment variable 'THREE' not found"),
        ("tools[0].env.C", "Environment variable 'ONE' not found"),
    ]


@pytest.mark.proves("D-6")
def test_a_reference_in_a_comment_or_a_key_is_left_alone(folder: AgentFolder) -> None:
    text = stdio("# ${COMMENTED}", 'env: {"${KEY}": v}  # ${ALSO}')
    assert _env(folder, text, {}) == {"${KEY}": "v"}


@pytest.mark.parametrize("written", ["${}", "${1A}", "${A B}", "${input:token}", "${command:x}", "${A"])
def test_what_only_looks_like_a_reference_is_an_error_that_shows_the_way_out(folder: AgentFolder, written: str) -> None:
    (problem,) = folder.load_errors(stdio(f"env: {{X: '{written}'}}"), {"A": "v"})
    assert "$${" in problem.fix


def test_a_variable_that_is_set_but_empty_is_used_with_a_warning(folder: AgentFolder) -> None:
    loaded = folder.load(stdio("env: {X: '${A}'}"), {"A": ""})
    assert any("'A' is set, but empty" in warning.message for warning in loaded.warnings)


@pytest.mark.proves("D-6", "003:ENV-3")
def test_the_process_wins_over_the_tools_file_which_wins_over_the_file_beside_the_agent(folder: AgentFolder) -> None:
    folder.write(".env", "A=beside\nB=beside\nC=beside\n")
    folder.write("tool.env", "A=tool\nB=tool\n")
    text = stdio("envFile: tool.env", "env: {X: '${A}', Y: '${B}', Z: '${C}'}")
    env = _env(folder, text, {"A": "process"})
    assert (env["X"], env["Y"], env["Z"]) == ("process", "tool", "beside")


@pytest.mark.proves("000:FR-009", "003:RULE-9")
@pytest.mark.parametrize("key", ["envFile", "env_file"])
def test_a_tools_file_reaches_its_server_and_env_wins_over_it(folder: AgentFolder, key: str) -> None:
    folder.write("conf/tool.env", "A=file\nB=file\n")
    assert _env(folder, stdio(f"{key}: conf/tool.env", "env: {B: own}"), {}) == {"A": "file", "B": "own"}


@pytest.mark.proves("D-6")
def test_both_spellings_of_env_file_at_once_are_an_error(folder: AgentFolder) -> None:
    folder.write("a.env", "A=1\n")
    (problem,) = folder.load_errors(stdio("envFile: a.env", "env_file: a.env"))
    assert "are the same key" in problem.message


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"A=plain\n", "plain"),
        (b"export A=exported\n", "exported"),
        (b'A="double # kept"\n', "double # kept"),
        (b"A='single'\n", "single"),
        (b"A=value # comment\n", "value"),
        (b"# comment\nA=crlf\r\n", "crlf"),
        (b"\xef\xbb\xbfA=bom\n", "bom"),
        (b"A=${NOT_EXPANDED}\n", "${NOT_EXPANDED}"),
        (b"A=\n", ""),
        (b"A=no newline at the end", "no newline at the end"),
        ('A="ünï"\n'.encode(), "ünï"),
    ],
)
def test_an_env_file_is_read_as_people_write_it(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "x.env").write_bytes(content)
    assert load_env_file(tmp_path / "x.env")["A"] == expected


@pytest.mark.parametrize(("content", "line"), [(b"A=1\nthis is not a line\n", 2), (b"A=1\nB=\xff\n", 2)])
def test_a_bad_line_of_an_env_file_is_named_without_its_text(folder: AgentFolder, content: bytes, line: int) -> None:
    folder.write("x.env", content)
    (problem,) = folder.load_errors(stdio("envFile: x.env"))
    assert problem.file.endswith("x.env")
    assert problem.line == line
    assert "this is not a line" not in str(problem)


@pytest.mark.parametrize(("name", "reason"), [("gone.env", "no such file"), ("folder", "a folder")])
def test_an_env_file_that_cannot_be_read_is_an_error_at_its_key(folder: AgentFolder, name: str, reason: str) -> None:
    (folder.path / "folder").mkdir()
    (problem,) = folder.load_errors(stdio(f"envFile: {name}"))
    assert problem.key == "tools[0].envFile"
    assert reason in problem.message


def test_a_number_may_come_from_a_variable_but_not_from_quotes(folder: AgentFolder) -> None:
    (server,) = folder.load(stdio("request_timeout: ${T}", "load_prompts: ${P}"), {"T": "7", "P": "false"}).agent.tools
    assert isinstance(server, MCPTool)
    assert (server.request_timeout, server.load_prompts) == (7, False)
    (problem,) = folder.load_errors(stdio("request_timeout: ${T}"), {"T": "s3cret"})
    assert "does not hold a number" in problem.message
    assert "s3cret" not in str(problem)


def test_unquoted_numbers_in_env_keep_the_way_they_are_written(folder: AgentFolder) -> None:
    assert _env(folder, stdio("env: {VERSION: 1.10, PORT: 0x10, DEBUG: true}"), {}) == {
        "VERSION": "1.10",
        "PORT": "0x10",
        "DEBUG": "true",
    }


@pytest.mark.proves("003:EX-1")
def test_the_folders_have_names(folder: AgentFolder) -> None:
    (server,) = folder.load(stdio("config: {a: '${workspaceFolder}/data', b: '${userHome}/x'}")).agent.tools
    assert isinstance(server, MCPTool)
    assert server.config == {"a": f"{folder.path}/data", "b": f"{Path.home()}/x"}


@pytest.mark.proves("001:DEC-4", "001:REUSE-1")
def test_the_public_functions_read_the_process_environment() -> None:
    name = "HOLODECK_TEST_ONLY"
    os.environ[name] = "here"
    try:
        assert substitute_env_vars(f"a ${{{name}}} b") == "a here b"
        assert get_env_var(name) == "here"
    finally:
        del os.environ[name]
    assert get_env_var(name, "default") == "default"
    with pytest.raises(ConfigError, match=f"Environment variable '{name}' not found"):
        substitute_env_vars(f"${{{name}}}")
