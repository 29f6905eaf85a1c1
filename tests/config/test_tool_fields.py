"""Each field of an MCP tool by itself: what it takes, and what it refuses."""

from __future__ import annotations

import pytest
from agent_folder import AgentFolder, agent_with_tool

STDIO = ("command: npx", "server: some-server")
HTTP = ("transport: http", "url: https://h.example/")
SSE = ("transport: sse", "url: https://h.example/")
SOCKET = ("transport: websocket", "url: wss://h.example/")

ACCEPTED = [
    (STDIO, "args: [a, '--b', '']"),
    (STDIO, "args: []"),
    (STDIO, "encoding: latin-1"),
    (STDIO, "env: {A: b, C: '1'}"),
    (STDIO, "cwd: sub"),
    (STDIO, "config: {any: {thing: [1, two, null]}}"),
    (STDIO, "load_tools: false"),
    (STDIO, "load_resources: true"),
    (STDIO, "startup_timeout: 0.5"),
    (HTTP, "timeout: 0.5"),
    (HTTP, "sse_read_timeout: 1.5"),
    (HTTP, "terminate_on_close: false"),
    (SSE, "timeout: 2.25"),
    (SOCKET, "timeout: 3"),
    (SOCKET, "headers: {X: y}"),
    (HTTP, "auth: {type: bearer, token: '${T}'}"),
    (
        HTTP,
        "auth: {type: oauth_client_credentials, client_id: a, client_secret: '${T}', token_url: https://as.example/t}",
    ),
    (SOCKET, "caller_authorization: true"),
    (HTTP, "auth: {type: oauth_authorization_code, scopes: [a, b]}"),
    (STDIO, "allowed_tools: [read_*, list]"),
    (STDIO, "denied_tools: ['delete_*']"),
    (STDIO, "approval: always"),
    (STDIO, "approval: {always: [write_*], never: [read_*]}"),
    (STDIO, "sampling: allow"),
    (STDIO, "idempotent_tools: [get_*]"),
    (STDIO, "roots: [data, 'file:///srv']"),
    (STDIO, "max_result_bytes: 2048"),
    (STDIO, "max_concurrent_calls: 1"),
    (STDIO, "enabled: false"),
    (STDIO, "allow_unsafe_args: true"),
]
REFUSED = [
    (STDIO, "args: just-text", "args"),
    (STDIO, "args: [1]", "args[0]"),
    (STDIO, "encoding: utf-99", "encoding"),
    (STDIO, "encoding: utf-16", "encoding"),
    (STDIO, "encoding: base64", "encoding"),
    (STDIO, "env: [A]", "env"),
    (STDIO, "env: {A: null}", "env.A"),
    (STDIO, "env: {A: [b]}", "env.A"),
    (STDIO, "config: text", "config"),
    (STDIO, "load_tools: 'no'", "load_tools"),
    (STDIO, "load_prompts: 1", "load_prompts"),
    (STDIO, "load_resources: all", "load_resources"),
    (STDIO, "transport: carrier-pigeon", "transport"),
    (STDIO, "transport: STDIO", "transport"),
    (STDIO, "startup_timeout: 0", "startup_timeout"),
    (STDIO, "max_concurrent_calls: 0", "max_concurrent_calls"),
    (STDIO, "max_concurrent_calls: many", "max_concurrent_calls"),
    (HTTP, "timeout: -1", "timeout"),
    (HTTP, "timeout: fast", "timeout"),
    (HTTP, "sse_read_timeout: .nan", "sse_read_timeout"),
    (HTTP, "terminate_on_close: maybe", "terminate_on_close"),
    (HTTP, "headers: {X: [y]}", "headers.X"),
    (HTTP, "auth: {type: kerberos}", "auth"),
    (HTTP, "auth: {token: x}", "auth"),
    (HTTP, "auth: {type: bearer}", "auth.token"),
    (HTTP, "auth: {type: bearer, token: '${T}', client_id: x}", "auth.client_id"),
    (STDIO, "approval: sometimes", "approval"),
    (STDIO, "approval: {sometimes: [x]}", "approval.sometimes"),
    (STDIO, "sampling: maybe", "sampling"),
    (STDIO, "max_result_bytes: 1", "max_result_bytes"),
    (STDIO, "allowed_tools: read", "allowed_tools"),
    (STDIO, "description: ''", "description"),
]


@pytest.mark.proves(
    "003:RULE-8", "003:RULE-11", "003:RULE-14", "003:RULE-17", "003:RULE-18", "003:RULE-19", "003:RULE-20"
)
@pytest.mark.proves("002:RULE-9", "002:RULE-10", "002:RULE-11", "002:RULE-12")
@pytest.mark.parametrize(("base", "line"), ACCEPTED)
def test_a_field_takes_what_it_is_for(folder: AgentFolder, base: tuple[str, ...], line: str) -> None:
    assert folder.load(agent_with_tool(*base, line), {"T": "t"})


@pytest.mark.proves("003:RULE-5", "003:RULE-8", "003:RULE-17", "003:RULE-18", "003:RULE-20", "002:RULE-4", "D-12")
@pytest.mark.parametrize(("base", "line", "key"), REFUSED)
def test_a_field_refuses_everything_else_in_its_place(
    folder: AgentFolder, base: tuple[str, ...], line: str, key: str
) -> None:
    text = agent_with_tool(*(part for part in base if part.split(":")[0] != line.split(":", maxsplit=1)[0]), line)
    text = text.replace("    description: d\n", "") if line.startswith("description") else text
    assert [problem.key for problem in folder.load_errors(text, {"T": "t"})] == [f"tools[0].{key}"]


@pytest.mark.proves("002:RULE-1", "003:RULE-1", "003:RULE-3")
@pytest.mark.parametrize(("written", "fix"), [("'3'", "Write the number without quotes."), ("three", "")])
def test_quotes_are_blamed_only_where_they_are_the_fault(folder: AgentFolder, written: str, fix: str) -> None:
    (problem,) = folder.load_errors(f"name: demo\nmax_turns: {written}\n")
    assert (problem.message, problem.fix) == ("'max_turns' must be a whole number", fix)


@pytest.mark.parametrize("name", ["1st", "café", "a" * 129])
def test_the_name_of_an_agent_is_checked_by_the_rule_in_the_error(folder: AgentFolder, name: str) -> None:
    (problem,) = folder.load_errors(f"name: {name}\n")
    assert "letters (a to z), digits, spaces, '_', '.' and '-' (at most 128)" in problem.message
    assert folder.load(f"name: {'A 1_.-'.ljust(128, 'z')}\n")


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ("{type: mcp, command: npx, server: x}", "tools[0].name"),
        ('{type: mcp, name: "", command: npx, server: x}', "tools[0].name"),
        ('{type: mcp, name: "a b", command: npx, server: x}', "tools[0].name"),
        ("{type: mcp, name: 5, command: npx, server: x}", "tools[0].name"),
        ("{name: a, command: npx, server: x}", "tools[0]"),
        ("a-string", "tools[0]"),
    ],
)
def test_a_tool_has_a_name_and_a_type(folder: AgentFolder, entry: str, key: str) -> None:
    assert [problem.key for problem in folder.load_errors(f"name: demo\ntools: [{entry}]\n")] == [key]


@pytest.mark.proves("003:RULE-7", "002:RULE-13", "001:DEC-11")
@pytest.mark.parametrize("command", ["NPX", "/usr/bin/npx", "npx -y x", "sh", "python", "node", "npx;id", "$(id)"])
def test_no_other_command_is_ever_accepted(folder: AgentFolder, command: str) -> None:
    (problem,) = folder.load_errors(agent_with_tool(f"command: '{command}'", "server: x"))
    assert problem.message == f"Invalid command '{command}'. Supported commands: npx, uvx, docker"
    assert problem.fix


@pytest.mark.parametrize("value", ["[write_file]", "true"])
def test_an_approval_in_a_wrong_form_says_how_to_name_tools(folder: AgentFolder, value: str) -> None:
    (problem,) = folder.load_errors(agent_with_tool(*STDIO, f"approval: {value}"))
    assert "approval: {always: [write_file]}" in problem.fix
