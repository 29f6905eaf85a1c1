"""An `mcp.json` that a person already has means here what it means to the program that wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp_json_file import NPX, load_file, load_single_server, warnings_text

from holodeck.lib.errors import ConfigError
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.launch.plan import plan_launch


@pytest.mark.parametrize(
    "content",
    [
        {"servers": {"s": NPX}},
        {"mcpServers": {"s": NPX}, "globalShortcut": "x"},
        {"mcp": {"servers": {"s": NPX}}, "editor.fontSize": 12},
        {"customizations": {"vscode": {"mcp": {"servers": {"s": NPX}}}}},
        {"extensions": {"s": {"type": "stdio", "cmd": "npx", "args": ["-y", "some-server"]}}},
        {"name": "s", **NPX},
        {"mcpServers": {"s": {"command": ["npx", "-y", "some-server"]}}},
        {"mcpServers": {"s": {"command": "npx -y some-server"}}},
        {"mcpServers": {"s": {"command": "cmd", "args": ["/c", "npx", "-y", "some-server"]}}},
        {"mcpServers": {"s": {"command": "C:\\nodejs\\npx.cmd", "args": ["-y", "some-server"]}}},
    ],
)
def test_each_program_lists_its_servers_in_its_own_way(tmp_path: Path, content: object) -> None:
    loaded = load_file(tmp_path, content)
    tool = loaded.tools[0].tool
    assert isinstance(tool, MCPTool)
    assert (tool.name, str(tool.command), tool.args, tool.cwd) == ("s", "npx", ["-y", "some-server"], str(tmp_path))


def test_a_goose_file_is_distinguished_from_an_agent_file(tmp_path: Path) -> None:
    text = """
GOOSE_PROVIDER: openai
extensions:
  developer: {type: builtin, enabled: true, bundled: true, timeout: 300}
  fetch: {type: stdio, cmd: uvx, args: [mcp-server-fetch], enabled: true, timeout: 300, envs: {A: 1}, env_keys: [TOKEN]}
  remote: {type: streamable_http, uri: "https://x.example/mcp", enabled: false, available_tools: []}
"""
    loaded = load_file(tmp_path, text, name="config.yaml", env={"TOKEN": "t0ken"})
    fetch, remote = (item.tool for item in loaded.tools)
    assert isinstance(fetch, MCPTool)
    assert isinstance(remote, MCPTool)
    assert {name: secret.reveal() for name, secret in fetch.env.items()} == {"A": "1", "TOKEN": "t0ken"}
    assert (fetch.request_timeout, remote.transport, remote.enabled) == (300, "http", False)
    assert "'builtin' is a part of goose" in warnings_text(loaded)


def test_comments_trailing_commas_and_a_byte_order_mark_are_fine(tmp_path: Path) -> None:
    text = (
        '\ufeff// servers\n{\n\t"servers": { /* one */\n\t\t"s": {"url": "https://x.example//mcp",}, // "t"\n\t},\n}\n'
    )
    tool = load_file(tmp_path, text).tools[0].tool
    assert isinstance(tool, MCPTool)
    assert tool.url == "https://x.example//mcp"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('{\n "servers": {\n  "a": {}\n  "b": {}\n }\n}', 4, "',' or '}' is expected"),
        ('{\n "servers": {\n  a: {}\n }\n}', 3, "a key in double quotes"),
        ('{\n "servers": /* open', 2, "the comment is not closed"),
        ('{\n "servers": {"a": nul}}', 2, "a value is expected"),
        ('{\n "servers": {"a": "b\n', 2, "control character"),
        ("{}\n{}", 2, "there is more"),
        ('{"a": ' + "[" * 100, 1, "nests deeper"),
        ("", None, "empty"),
        ('{"a": "\\ud800"}', 1, "surrogate"),
        ("[]", 1, "must hold a JSON object"),
        ('{"editor": 1}', 1, "lists no MCP servers"),
    ],
)
def test_a_file_that_is_not_json_is_refused_with_its_line(
    tmp_path: Path, text: str, line: int | None, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_file(tmp_path, text)
    problem = caught.value.problems[0]
    assert (problem.line, problem.file) == (line, str(tmp_path / "mcp.json"))
    assert words in problem.message


@pytest.mark.parametrize(
    ("entry", "transport"),
    [
        ({"url": "https://x.example/mcp"}, "http"),
        ({"url": "https://x.example/sse"}, "sse"),
        ({"url": "https://x.example/sse?a=b"}, "sse"),
        ({"url": "wss://x.example/mcp"}, "websocket"),
        ({"httpUrl": "https://x.example/sse"}, "http"),
        ({"serverUrl": "https://x.example/mcp"}, "http"),
        ({"url": "https://x.example/events", "trust": True}, "sse"),
        ({"type": "sse", "url": "https://x.example/mcp"}, "sse"),
        ({"type": "http", "url": "https://x.example/sse"}, "http"),
        ({"type": "streamable-http", "url": "https://x.example/"}, "http"),
        ({"type": "streamableHttp", "url": "https://x.example/"}, "http"),
        ({"transport": "streamable_http", "url": "https://x.example/"}, "http"),
        ({"type": "ws", "url": "wss://x.example/"}, "websocket"),
        ({"type": "local", **NPX}, "stdio"),
    ],
)
def test_the_transport_is_what_the_entry_means(tmp_path: Path, entry: dict[str, Any], transport: str) -> None:
    assert load_single_server(tmp_path, entry).transport == transport


@pytest.mark.parametrize(
    ("name", "entry", "seconds"),
    [
        (".mcp.json", {"timeout": 30_000}, 30),
        (".mcp.json", {"timeout": 300}, 1),
        (".gemini/settings.json", {"timeout": 90_000}, 90),
        ("cline_mcp_settings.json", {"timeout": 1800}, 1800),
        ("mcp.json", {"timeout": 45_000}, 45),
        ("mcp.json", {"timeout": 45}, 45),
        ("mcp.json", {"timeout": 45, "keep_alive": True}, 1),
        ("mcp.json", {"request_timeout": 7}, 7),
    ],
)
def test_a_timeout_is_in_the_unit_of_its_program(
    tmp_path: Path, name: str, entry: dict[str, Any], seconds: int
) -> None:
    assert load_single_server(tmp_path, {**NPX, **entry}, name=name).request_timeout == seconds


def test_the_arithmetic_of_a_timeout_is_said(tmp_path: Path) -> None:
    loaded = load_file(tmp_path, {"mcpServers": {"s": {**NPX, "timeout": 30_000}}}, name=".mcp.json")
    assert "'timeout: 30000' is milliseconds to Claude Code: calls may take 30 s here" in warnings_text(loaded)


def test_a_bad_server_is_refused_with_the_fix_and_the_others_stay_usable(tmp_path: Path) -> None:
    entries = {
        "good": NPX,
        "plain": {"url": "http://x.example/mcp"},
        "socket": {"url": "unix:///tmp/x.sock"},
        "kind": {"type": "carrier-pigeon", "url": "https://x.example"},
        "nothing": {},
    }
    loaded = load_file(tmp_path, {"mcpServers": entries})
    assert [item.tool.name for item in loaded.tools] == ["good"]
    assert list(loaded.refused) == [name for name in entries if name != "good"]
    plain = loaded.refused["plain"][0]
    assert (plain.key, plain.line, plain.label) == ("mcpServers.plain.url", 11, "MCPConfigError")
    assert "must use https://" in plain.message


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "node", "args": ["build/index.js"]},
        {"command": "uv", "args": ["run", "server.py"], "env": {"PYTHONPATH": "src"}},
        {"command": "npx", "args": ["-c", "node ."]},
        {"command": "/opt/tools/server"},
    ],
)
def test_any_program_is_a_server_as_in_the_program_that_wrote_the_file(tmp_path: Path, entry: dict[str, Any]) -> None:
    tool = load_single_server(tmp_path, entry)
    assert plan_launch(tool).argv == (entry["command"], *entry.get("args", ()))


def test_names_that_ours_cannot_have_are_changed_and_stay_apart(tmp_path: Path) -> None:
    names = ["GitHub MCP", "GitHub/MCP", "io.github.x/y", "1st", "né"]
    loaded = load_file(tmp_path, {"mcpServers": dict.fromkeys(names, NPX)})
    assert [item.tool.name for item in loaded.tools] == [
        "GitHub-MCP",
        "GitHub-MCP-2",
        "io-github-x-y",
        "server-1st",
        "n",
    ]
    assert "'io.github.x/y' is called 'io-github-x-y' here" in warnings_text(loaded)


def test_the_servers_of_the_folder_one_is_in_come_first_in_a_file_of_projects(tmp_path: Path) -> None:
    inside, other = str(tmp_path / "work"), str(tmp_path / "other")
    content = {
        "mcpServers": {"user": NPX, "both": NPX},
        "projects": {
            inside: {"mcpServers": {"both": {"command": "uvx", "args": ["x", "${workspaceFolder}"]}}, "history": []},
            other: {"mcpServers": {"x": NPX}},
        },
    }
    loaded = load_file(tmp_path, content, name=".claude.json", cwd=tmp_path / "work" / "deep")
    tools = {item.tool.name: item.tool for item in loaded.tools}
    both = tools["both"]
    assert isinstance(both, MCPTool)
    assert (set(tools), both.args, both.cwd) == ({"user", "both"}, ["x", inside], inside)
    assert "1 servers for another folder are not used here" in warnings_text(loaded)
