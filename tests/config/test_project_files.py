"""What an agent file refers to: instructions, schemas, functions, and the settings that agents share."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agent_folder import AgentFolder
from forbidden_listener import run_canary

from holodeck.lib.json.schema import MAX_SCHEMA_BYTES, MAX_SCHEMA_NODES
from holodeck.models.provider import Provider
from holodeck.models.tool import MCPTool


def test_instructions_are_text_inline_or_a_file(folder: AgentFolder) -> None:
    folder.write("say.md", "from the file\n")
    assert folder.load("name: demo\ninstructions: plain\n").agent.instructions == "plain"
    assert folder.load("name: demo\ninstructions: {inline: here}\n").agent.instructions == "here"
    assert folder.load("name: demo\ninstructions: {file: say.md}\n").agent.instructions == "from the file\n"


@pytest.mark.parametrize("value", ["{}", "{inline: a, file: say.md}", "{fiel: say.md}", "[a]", "{file: gone.md}", '""'])
def test_instructions_of_any_other_form_are_an_error(folder: AgentFolder, value: str) -> None:
    folder.write("say.md", "x")
    assert all(
        problem.key.startswith("instructions") for problem in folder.load_errors(f"name: demo\ninstructions: {value}\n")
    )


def test_a_response_format_is_a_schema_here_or_in_a_file(folder: AgentFolder) -> None:
    folder.write("answer.json", '{"type": "object"}')
    folder.write("answer.yaml", "type: object\n")
    for value in ("{type: object}", "answer.json", "answer.yaml"):
        assert folder.load(f"name: demo\nresponse_format: {value}\n").agent.response_format == {"type": "object"}


@pytest.mark.parametrize("value", ["{type: 5}", "bad.json", "list.json", "gone.json", "3"])
def test_a_response_format_that_is_no_schema_is_an_error(folder: AgentFolder, value: str) -> None:
    folder.write("bad.json", "{")
    folder.write("list.json", "[1]")
    (problem,) = folder.load_errors(f"name: demo\nresponse_format: {value}\n")
    assert problem.key == "response_format"


def test_a_function_tool_is_looked_up_without_being_run(folder: AgentFolder) -> None:
    folder.write("tools.py", "raise SystemExit('ran')\nasync def greet(name: str) -> str: ...\n")
    text = "name: demo\ntools: [{type: function, name: g, file: tools.py, function: %s}]\n"
    assert folder.load(text % "greet").agent.tools[0].name == "g"
    (problem,) = folder.load_errors(text % "great")
    assert problem.key == "tools[0].function"
    assert "greet" in problem.fix


@pytest.mark.parametrize("file", ["../outside.py", "/etc/hostname", "gone.py", "broken.py"])
def test_a_function_outside_the_project_or_unreadable_is_an_error(folder: AgentFolder, file: str) -> None:
    folder.write("broken.py", "def (\n")
    folder.write("../outside.py", "def f(): ...\n")
    (problem,) = folder.load_errors(f"name: demo\ntools: [{{type: function, name: g, file: '{file}', function: f}}]\n")
    assert problem.key == "tools[0].file"


def test_without_a_model_the_rehearsal_model_is_used(folder: AgentFolder) -> None:
    assert folder.load("name: demo\n").agent.model.provider is Provider.REHEARSAL


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ("{provider: openai}", "model.name"),
        ("{provider: azure_openai, name: x}", "model.endpoint"),
        ("{provider: openai_compatible, name: x, endpoint: localhost:8000}", "model.endpoint"),
        ("{provider: openai, name: x, temperature: 3}", "model.temperature"),
        ("{provider: openai, name: x, top_p: -1}", "model.top_p"),
        ("{provider: openai, name: x, max_tokens: 0}", "model.max_tokens"),
        ("{provider: ollama, name: x, api_version: v1}", "model.api_version"),
        ("{provider: ollama, name: x, timeout: 0}", "model.timeout"),
        ("{provider: rehearsal, timeout: 5}", "model.timeout"),
        ("{provider: gemni, name: x}", "model.provider"),
        ("openai", "model.name"),
        ("[openai]", "model"),
    ],
)
def test_a_model_that_cannot_be_used_is_an_error(folder: AgentFolder, model: str, key: str) -> None:
    assert [problem.key for problem in folder.load_errors(f"name: demo\nmodel: {model}\n")] == [key]


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_model_without_its_key_warns_until_the_variable_is_set(folder: AgentFolder, provider: str) -> None:
    text = f"name: demo\nmodel: {{provider: {provider}, name: x}}\n"
    variable = f"{provider.upper()}_API_KEY"
    assert any(variable in warning.message for warning in folder.load(text).warnings)
    assert folder.load(text, {variable: "k"}).warnings == ()


@pytest.mark.proves("000:SC-005")
def test_a_secret_written_into_the_file_warns_without_repeating_it(folder: AgentFolder) -> None:
    text = """name: demo
model: {provider: openai, name: x, api_key: sk-literal}
tools:
  - {type: mcp, name: a, description: d, command: npx, server: s, env: {API_KEY: literal-1, PATHS: fine}}
  - {type: mcp, name: b, description: d, transport: http, url: https://h/, headers: {Authorization: literal-2}}
  - {type: mcp, name: c, description: d, transport: http, url: https://h/, headers: {Authorization: "Bearer ${T}"}}
"""
    warnings = folder.load(text, {"T": "t"}).warnings
    assert [warning.key for warning in warnings] == [
        "model.api_key",
        "tools[0].env.API_KEY",
        "tools[1].headers.Authorization",
    ]
    assert "literal" not in "".join(map(str, warnings)).replace("literal '${'", "")


def test_agents_share_servers_and_the_nearest_definition_wins(folder: AgentFolder) -> None:
    def entry(name: str, server: str) -> str:
        return f"  - {{name: {name}, description: d, command: npx, server: {server}}}\n"

    folder.write("../home/.holodeck/config.yaml", "mcp_servers:\n" + entry("a", "home") + entry("h", "home"))
    folder.write("config.yaml", "mcp_servers:\n" + entry("a", "beside") + entry("b", "beside"))
    text = "name: demo\ntools: [{type: mcp, name: b, description: d, command: npx, server: agent}]\n"
    servers = {tool.name: tool.server for tool in folder.load(text).agent.tools if isinstance(tool, MCPTool)}
    assert servers == {"b": "agent", "a": "beside", "h": "home"}


def test_a_problem_in_shared_settings_names_their_file(folder: AgentFolder) -> None:
    folder.write("config.yaml", "mcp_servers:\n  - {name: a, comand: npx}\n")
    problems = folder.load_errors("name: demo\n")
    assert {problem.file for problem in problems} == {str(folder.path / "config.yaml")}
    assert "Did you mean 'command'?" in problems[0].fix


def test_a_config_file_of_another_program_is_left_alone(folder: AgentFolder) -> None:
    folder.write("config.yaml", "theme: dark\n")
    (warning,) = folder.load("name: demo\n").warnings
    assert "is not HoloDeck's" in warning.message


ELSEWHERE = (
    '{"$schema": "URL"}',
    '{"$ref": "URL"}',
    '{"properties": {"a": {"$ref": "URL#/$defs/a"}}}',
    '{"properties": {"a": {"$schema": "URL"}}}',
    '{"$defs": {"a": {"$id": "urn:a", "$schema": "URL"}}}',
)


@pytest.mark.parametrize("schema", ELSEWHERE)
def test_a_schema_that_is_elsewhere_is_an_error_with_its_name_and_not_fetched(folder: AgentFolder, schema: str) -> None:
    with run_canary() as bird:
        schema = schema.replace("URL", bird.url)
        folder.write("answer.json", schema)
        folder.write("mine.py", "def f(): pass\n")
        function = f"{{type: function, name: f, file: mine.py, function: f, parameters: {schema}}}"
        for text, key, line in (
            (f"response_format: {schema}", "response_format", 2),
            ("response_format: answer.json", "response_format", 2),
            (f"tools:\n  - {function}", "tools[0].parameters", 3),
        ):
            (problem,) = folder.load_errors(f"name: demo\n{text}\n")
            assert (problem.key, problem.line) == (key, line)
            assert bird.url in problem.message
        assert bird.connections == 0


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"description": "x" * MAX_SCHEMA_BYTES}, "larger than 256 KiB"),
        ({"enum": [0] * MAX_SCHEMA_NODES}, "more than 10,000 values"),
    ],
)
def test_a_schema_that_is_too_large_is_an_error(folder: AgentFolder, schema: dict[str, Any], says: str) -> None:
    folder.write("answer.json", json.dumps(schema))
    (problem,) = folder.load_errors("name: demo\nresponse_format: answer.json\n")
    assert problem.key == "response_format"
    assert says in problem.message


def test_an_error_about_a_schema_does_not_show_the_value_of_a_variable(folder: AgentFolder) -> None:
    text = 'name: demo\nresponse_format: {$schema: "https://example.com/${TOKEN}"}\n'
    (problem,) = folder.load_errors(text, {"TOKEN": "s3cret"})
    assert problem.key == "response_format"
    assert "s3cret" not in f"{problem.message} {problem.fix}"
