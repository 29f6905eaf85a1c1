"""Servers of ours, written for each program and read again: they are the same, or the difference was named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holodeck.config.edit.formats import FORMATS
from holodeck.config.mcp_json.entry_writer import WrittenEntry, write_entry
from holodeck.config.mcp_json.loader import read_own_entries
from holodeck.config.mcp_json.programs import (
    CLAUDE_CODE,
    CLAUDE_DESKTOP,
    CLINE,
    CODEX,
    CURSOR,
    GEMINI,
    GOOSE,
    VSCODE,
    WINDSURF,
    WRITABLE,
    ZED,
    Program,
)

FILES = {
    "claude": "claude_desktop_config.json",
    "claude-code": ".mcp.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".vscode/mcp.json",
    "codex": "config.toml",
    "gemini": ".gemini/settings.json",
    "goose": "config.yaml",
    "zed": ".zed/settings.json",
    "windsurf": "windsurf/mcp_config.json",
    "cline": "cline_mcp_settings.json",
}
NAMES = st.lists(st.sampled_from(["read_file", "write_file", "list_*"]), min_size=1, max_size=2, unique=True)
COMMON = {
    "description": st.just("Reads files"),
    "request_timeout": st.integers(1, 3000),
    "startup_timeout": st.integers(1, 300),
    "enabled": st.just(False),
    "allowed_tools": NAMES,
    "denied_tools": NAMES,
    "approval": st.sampled_from(["always", {"always": ["*"], "never": ["read_file"]}, {"always": ["delete_*"]}]),
    "required": st.just(True),
    "max_result_bytes": st.just(4096),
}
TEXTS = st.sampled_from(["plain", "${TOKEN}", "${HOST:-localhost}", "pre-${A}-${B}", "ünï \"quoted\" \\ 'text'"])
PROCESSES = st.fixed_dictionaries(
    {
        "name": st.just("files"),
        "command": st.just("npx"),
        "args": st.lists(TEXTS, max_size=3).map(lambda a: ["-y", "p", *a]),
    },
    optional={
        "env": st.dictionaries(st.sampled_from(["TOKEN", "HOST", "PLAIN_NAME"]), TEXTS, min_size=1),
        "cwd": st.just("/srv/data"),
        "env_file": st.just("/srv/vars.env"),
        "roots": st.just(["/srv"]),
        **COMMON,
    },
)
URLS = {
    "http": "https://mcp.example.com/mcp",
    "sse": "https://mcp.example.com/events",
    "websocket": "wss://mcp.example.com",
}
REMOTES = st.fixed_dictionaries(
    {
        "name": st.just("tickets"),
        "transport": st.sampled_from(["http", "http", "sse", "websocket"]),
    },
    optional={
        "headers": st.dictionaries(st.sampled_from(["X-Team", "X-Region"]), TEXTS.filter(str.isascii), min_size=1),
        "auth": st.sampled_from(
            [
                {"type": "bearer", "token": "${TICKETS_TOKEN}"},
                {"type": "oauth_authorization_code", "client_id": "me", "scopes": ["read"]},
                {"type": "oauth_client_credentials", "client_id": "me", "token_url": "https://auth.example.com/token"},
            ]
        ),
        "sse_read_timeout": st.just(30),
        **COMMON,
    },
).map(lambda server: {**server, "url": URLS[str(server["transport"])]})


def with_bearer_header(entry: dict[str, Any]) -> dict[str, Any]:
    """A bearer token is the same as its header."""
    auth = entry.get("auth")
    if not isinstance(auth, dict) or auth.get("type") != "bearer":
        return entry
    headers = {**entry.get("headers", {}), "Authorization": f"Bearer {auth['token']}"}
    return {**{key: value for key, value in entry.items() if key != "auth"}, "headers": headers}


def read_again(entry: WrittenEntry, program: Program, folder: Path) -> dict[str, Any]:
    """The entry, after it was written to a file of the program and read from there."""
    assert entry.value is not None
    file = folder / FILES[program.name]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(FORMATS[program.format].format_entries(program.list_path, {entry.name: entry.value}))
    found = read_own_entries(file, folder, environ={})
    assert not found.refused, found.refused
    return found.entries[entry.name]


def is_named(key: str, entry: WrittenEntry) -> bool:
    return any(loss.key == key or loss.key.startswith((f"{key}.", f"{key}[")) for loss in entry.lost)


@pytest.mark.parametrize("name", WRITABLE)
@settings(max_examples=80, deadline=None)
@given(server=PROCESSES | REMOTES)
def test_a_server_comes_back_as_it_was_except_for_what_is_named(
    name: str, server: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    program, folder = WRITABLE[name], tmp_path_factory.mktemp("folder")
    if "env_file" in server:
        server = {**server, "env_file": str(folder / "vars.env")}
        (folder / "vars.env").write_text("X=1\n")
    entry = write_entry(server, program, folder)
    if entry.value is None:
        assert is_named("transport", entry)
        return
    back = with_bearer_header(read_again(entry, program, folder))
    for key, value in with_bearer_header(server).items():
        if back.get(key) != value:
            assert is_named(key, entry), (key, value, back.get(key), entry)
    known = {*server, "type", "headers", "timeout", "description", "request_timeout", "transport"}
    assert not set(back) - known


def test_no_value_of_a_variable_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TOKEN", "S3CR3T-vALue")
    server = {"name": "x", "command": "npx", "args": ["p", "${TOKEN}"], "env": {"TOKEN": "${TOKEN}", "K": "x${TOKEN}"}}
    for program in WRITABLE.values():
        assert "S3CR3T" not in json.dumps(write_entry(server, program, tmp_path).value)


def test_a_literal_secret_becomes_a_variable_and_is_named(tmp_path: Path) -> None:
    server = {
        "name": "x",
        "command": "npx",
        "args": ["p", "--api-key", "abcdefgh"],
        "env": {"GITHUB_TOKEN": "ghp_1234567"},
    }
    entry = write_entry(server, CLAUDE_CODE, tmp_path)
    assert entry.value == {
        "type": "stdio",
        "command": "npx",
        "args": ["p", "--api-key", "${X_API_KEY}"],
        "env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}"},
    }
    assert [loss.key for loss in entry.lost] == ["env.GITHUB_TOKEN", "args[2]"]
    assert set(entry.variables) == {"GITHUB_TOKEN", "X_API_KEY"}


@pytest.mark.parametrize(
    ("program", "meant"),
    [
        (CLAUDE_CODE, {"type": "http", "url": "U", "headers": {"Authorization": "Bearer ${KEY}"}}),
        (CURSOR, {"url": "U", "headers": {"Authorization": "Bearer ${env:KEY}"}}),
        (VSCODE, {"type": "http", "url": "U", "headers": {"Authorization": "Bearer ${env:KEY}"}}),
        (CODEX, {"url": "U", "bearer_token_env_var": "KEY"}),
        (GEMINI, {"httpUrl": "U", "headers": {"Authorization": "Bearer ${KEY}"}}),
        (WINDSURF, {"serverUrl": "U", "headers": {"Authorization": "Bearer ${env:KEY}"}}),
        (ZED, {"url": "U", "headers": {"Authorization": "Bearer ${KEY}"}}),
        (CLINE, {"type": "streamableHttp", "url": "U", "headers": {"Authorization": "Bearer ${KEY}"}}),
        (CLAUDE_DESKTOP, None),
    ],
)
def test_a_remote_server_in_the_words_of_each_program(
    program: Program, meant: dict[str, Any] | None, tmp_path: Path
) -> None:
    server = {"name": "x", "transport": "http", "url": "U", "headers": {"Authorization": "Bearer ${KEY}"}}
    assert write_entry(server, program, tmp_path).value == meant


def test_docker_gets_the_names_of_its_variables_which_holodeck_adds_by_itself(tmp_path: Path) -> None:
    server = {"name": "x", "command": "docker", "server": "some/image", "env": {"KEY": "${KEY}"}}
    entry = write_entry(server, GOOSE, tmp_path)
    assert entry.value is not None
    assert entry.value["args"] == ["run", "-e", "KEY", "--rm", "-i", "some/image"]
    assert entry.value["env_keys"] == ["KEY"]


def test_folders_of_ours_become_paths(tmp_path: Path) -> None:
    server = {"name": "x", "command": "npx", "args": ["p", "${workspaceFolder}/data", "${userHome}"]}
    entry = write_entry(server, CURSOR, tmp_path)
    assert entry.value is not None
    assert entry.value["args"] == ["p", f"{tmp_path}/data", str(Path.home())]
