"""Variables, environments, permissions and logins of other programs' files become ours, or are spoken of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp_json_file import NPX, load_file, load_single_server, warnings_text

from holodeck.lib.errors import ConfigError
from holodeck.models.tool import MCPTool
from holodeck.runtime import read_servers


def test_variables_of_editors_are_replaced(tmp_path: Path) -> None:
    words = [
        "${env:A}",
        "${A}",
        "${B:-b}",
        "${workspaceFolder}",
        "${workspaceFolderBasename}",
        "a${/}b${pathSeparator}c",
    ]
    tool = load_single_server(
        tmp_path, {"command": "uvx", "args": ["x", *words]}, name="proj/.vscode/mcp.json", env={"A": "1"}
    )
    project = tmp_path / "proj"
    assert tool.args == ["x", "1", "1", "b", str(project), "proj", "a/b/c"]
    assert tool.cwd == str(project), "the folder of the project, not that of the editor's settings"


def test_an_input_is_answered_by_the_environment_or_by_its_default(tmp_path: Path) -> None:
    content = {
        "inputs": [
            {"id": "api-key", "type": "promptString", "description": "Key of the service", "password": True},
            {"id": "region", "type": "pickString", "options": ["eu", "us"], "default": "eu"},
        ],
        "servers": {"s": {**NPX, "env": {"KEY": "${input:api-key}", "REGION": "${input:region}"}}},
    }
    tool = load_file(tmp_path, content, env={"INPUT_API_KEY": "k3y"}).tools[0].tool
    assert isinstance(tool, MCPTool)
    assert {name: value.reveal() for name, value in tool.env.items()} == {"KEY": "k3y", "REGION": "eu"}
    problem = load_file(tmp_path, content).refused["s"][0]
    assert (problem.key, problem.message) == (
        "servers.s.env.KEY",
        "the input 'api-key' has no answer (Key of the service)",
    )
    assert problem.fix == "Set it: export INPUT_API_KEY=..."


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("${command:pick}", "runs a command of the editor"),
        ("${config:python.path}", "reads a setting of the editor"),
        ("${file}", "speaks of what is open in the editor"),
        ("${selectedText}", "speaks of what is open in the editor"),
        ("${workspaceFolder:other}", "names one of several folders"),
        ("${MISSING}", "Environment variable 'MISSING' not found"),
        ("${what ever}", "is not a reference that HoloDeck knows"),
    ],
)
def test_what_only_an_editor_knows_is_refused_for_that_server(tmp_path: Path, text: str, words: str) -> None:
    loaded = load_file(tmp_path, {"servers": {"s": {"command": "uvx", "args": ["x", text]}, "other": NPX}})
    assert words in loaded.refused["s"][0].message
    assert loaded.refused["s"][0].key == "servers.s.args[1]"
    assert [item.tool.name for item in loaded.tools] == ["other"]


@pytest.mark.proves("000:US2-3")
def test_variables_of_the_process_may_be_numbers_null_or_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "x.env").write_text("FROM_FILE=f\nA=file\n")
    entry = {**NPX, "env": {"A": 1.10, "B": True, "C": None, "D": "d"}, "envFile": "x.env"}
    tool = load_single_server(tmp_path, entry, name="conf/mcp.json")
    values = {name: value.reveal() for name, value in tool.env.items()}
    assert values == {"FROM_FILE": "f", "A": "1.1", "B": "true", "D": "d"}


def test_a_broken_file_of_variables_is_an_error_of_the_server_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "bad.env").write_text("A=1\n=what\n")
    loaded = load_file(
        tmp_path, {"servers": {"s": {**NPX, "envFile": "bad.env"}, "other": NPX, "t": {**NPX, "envFile": "no"}}}
    )
    assert loaded.refused["s"][0].line == 2
    assert "there is no such file" in loaded.refused["t"][0].message
    assert [item.tool.name for item in loaded.tools] == ["other"]


@pytest.mark.parametrize(
    ("entry", "ours"),
    [
        ({"disabled": True}, {"enabled": False}),
        ({"disabled": False}, {"enabled": True}),
        ({"autoApprove": []}, {"approval": "always"}),
        ({"autoApprove": ["*"]}, {"approval": "never"}),
        ({"alwaysAllow": ["a"]}, {"approval": {"always": ["*"], "never": ["a"]}}),
        ({"trust": True}, {"approval": "never"}),
        ({"trust": False}, {"approval": "always"}),
        ({"tools": ["*"]}, {"allowed_tools": None}),
        ({"tools": ["a", "b"]}, {"allowed_tools": ["a", "b"]}),
        ({"includeTools": ["a"], "excludeTools": ["b"]}, {"allowed_tools": ["a"], "denied_tools": ["b"]}),
        ({"disabledTools": ["b"]}, {"denied_tools": ["b"]}),
        ({"toolPermissions": {"a": "always_deny"}}, {"denied_tools": ["a"]}),
        (
            {
                "tools": [
                    {"name": "a", "permission_policy": "always_allow"},
                    {"name": "b", "permission_policy": "always_ask"},
                    {"name": "c", "permission_policy": "always_deny"},
                ]
            },
            {"approval": {"always": ["b"], "never": ["a"]}, "denied_tools": ["c"]},
        ),
    ],
)
def test_permissions_become_ours(tmp_path: Path, entry: dict[str, Any], ours: dict[str, Any]) -> None:
    dumped = load_single_server(tmp_path, {**NPX, **entry}).model_dump()
    assert {key: dumped[key] for key in ours} == ours


@pytest.mark.parametrize(
    ("entry", "ours"),
    [
        (
            {"oauth": {"clientId": "c", "scopes": "a b", "callbackPort": 8123}},
            {"client_id": "c", "scopes": ["a", "b"], "redirect_port": 8123},
        ),
        (
            {"oauth": {"authServerMetadataUrl": "https://as.example/.well-known/oauth-authorization-server/t"}},
            {"issuer": "https://as.example/t"},
        ),
        ({"auth": {"CLIENT_ID": "c", "scopes": ["a"]}}, {"client_id": "c", "scopes": ["a"]}),
        ({"auth": "oauth"}, {"type": "oauth_authorization_code"}),
        ({"auth": "t0ken"}, {"type": "bearer"}),
        ({"auth": {"type": "bearer", "token": "${T}"}}, {"type": "bearer"}),
    ],
)
def test_logins_become_ours(tmp_path: Path, entry: dict[str, Any], ours: dict[str, Any]) -> None:
    tool = load_single_server(tmp_path, {"url": "https://x.example/mcp", **entry}, env={"T": "t"})
    assert tool.auth is not None
    dumped = tool.auth.model_dump()
    assert {key: dumped[key] for key in ours} == ours


@pytest.mark.proves("D-5")
def test_every_key_without_a_meaning_here_is_spoken_of(tmp_path: Path) -> None:
    entry = {
        **NPX,
        "headersHelper": "get-headers.sh",
        "dev": {"watch": "*"},
        "sandboxEnabled": True,
        "gallery": True,
        "version": "1.0",
        "alwaysLoad": True,
        "colour": "blue",
        "headers": {"A": "b"},
    }
    loaded = load_file(tmp_path, {"servers": {"s": entry}, "sandbox": {}, "extra": 1})
    assert not loaded.refused
    reported_keys = {problem.key for problem in loaded.problems}
    assert reported_keys == {
        "sandbox",
        "extra",
        *(f"servers.s.{key}" for key in entry if key not in {"command", "args"}),
    }
    assert "it is a shell command, and none is run" in warnings_text(loaded)


def test_a_server_that_is_switched_off_may_be_incomplete(tmp_path: Path) -> None:
    entries = {"off": {"command": "node", "args": ["${MISSING}"], "disabled": True}, "on": NPX}
    loaded = load_file(tmp_path, {"mcpServers": entries})
    assert not loaded.refused
    assert [getattr(item.tool, "enabled", None) for item in loaded.tools] == [False, True]
    assert "'node' could not be started" in warnings_text(loaded)


def test_a_secret_in_the_file_is_advised_against_and_never_shown(tmp_path: Path) -> None:
    loaded = load_file(tmp_path, {"mcpServers": {"s": {**NPX, "env": {"API_KEY": "sk-l1teral"}}}})
    assert "this looks like a secret" in warnings_text(loaded)
    assert "l1teral" not in warnings_text(loaded) + repr(loaded.tools[0].tool)


@pytest.mark.parametrize(
    ("target", "name", "transport"),
    [
        ("https://mcp.acme.com/mcp", "acme", "http"),
        ("http://localhost:3000/sse", "localhost", "sse"),
        ("wss://tools.example.org/", "tools_example_org", "websocket"),
        ("npx -y @modelcontextprotocol/server-everything", "everything", "stdio"),
        ("uvx mcp-server-time --local-timezone 'Europe/Berlin'", "time", "stdio"),
        ("docker run -i --rm -e TOKEN mcp/fetch", "fetch", "stdio"),
    ],
)
def test_a_url_or_a_command_line_is_a_server(tmp_path: Path, target: str, name: str, transport: str) -> None:
    tool = read_servers(target, environ={}, cwd=tmp_path).tools[0].tool
    assert isinstance(tool, MCPTool)
    assert (tool.name, tool.transport) == (name, transport)


@pytest.mark.parametrize(
    ("target", "kind", "words"),
    [
        ("http://example.com/mcp", "url", "must use https://"),
        ("https://user:pass@example.com", "url", "must not contain a user name"),
        ("npx 'open", "command", "cannot be read"),
        ("", "command", "empty"),
    ],
)
def test_what_may_not_be_dialled_or_started_is_refused(tmp_path: Path, target: str, kind: Any, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_servers(target, kind=kind, cwd=tmp_path)
    assert words in str(caught.value)
