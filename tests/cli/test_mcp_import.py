"""`holodeck mcp import`: servers of another program's file become entries of ours."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from async_tests import async_test
from holodeck_command import run_holodeck
from pty_terminal import TypingTerminal

AGENT = "name: demo  # mine\nmodel: {provider: rehearsal}\n"
SECRET = "ghp_0123456789abcdef"
VSCODE = {
    "servers": {
        "files": {"type": "stdio", "command": "npx", "args": ["-y", "files", "${workspaceFolder}/data"]},
        "own": {"command": "python", "args": ["server.py"], "dev": {"watch": "*.py"}},
        "tickets": {
            "type": "http",
            "url": "https://mcp.example.com/mcp",
            "headers": {"Authorization": "Bearer ${input:tickets-token}", "X-Api-Key": SECRET},
        },
        "editor": {"command": "npx", "args": ["-y", "editor", "${selectedText}"]},
    },
    "inputs": [{"id": "tickets-token", "type": "promptString", "password": True}],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with an agent file and a file of VS Code. Its parent is the home."""
    project = tmp_path / "project"
    (project / ".vscode").mkdir(parents=True)
    (project / "agent.yaml").write_text(AGENT)
    (project / ".vscode" / "mcp.json").write_text(json.dumps(VSCODE))
    return project


def import_servers(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return run_holodeck("mcp", "import", *args, cwd=folder)


def read_entries(folder: Path, file: str = "agent.yaml", key: str = "tools") -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in yaml.safe_load((folder / file).read_text())[key]}


def test_servers_are_copied_and_what_cannot_be_said_is_named(folder: Path) -> None:
    before = (folder / ".vscode" / "mcp.json").read_bytes()
    done = import_servers(folder, ".vscode/mcp.json")
    assert done.returncode == 1, done.stderr
    entries = read_entries(folder)
    assert list(entries) == ["files", "own", "tickets"]
    assert entries["files"] == {
        "type": "mcp",
        "name": "files",
        "command": "npx",
        "args": ["-y", "files", "${workspaceFolder}/data"],
    }
    assert entries["tickets"]["headers"] == {
        "Authorization": "Bearer ${INPUT_TICKETS_TOKEN}",
        "X-Api-Key": "${TICKETS_X_API_KEY}",
    }
    assert "servers.own.dev" in done.stderr
    assert "servers.editor.args[2]" in done.stderr
    assert "'allowed_commands: [python]' in ~/.holodeck/config.yaml" in done.stderr
    assert SECRET not in done.stdout + done.stderr + (folder / "agent.yaml").read_text()
    assert (folder / ".vscode" / "mcp.json").read_bytes() == before
    assert (folder / "agent.yaml").read_text().startswith(AGENT)


def test_the_imported_file_is_valid_once_its_program_is_allowed_and_its_variables_are_set(folder: Path) -> None:
    import_servers(folder, ".vscode/mcp.json")
    env = {"INPUT_TICKETS_TOKEN": "x", "TICKETS_X_API_KEY": "y"}
    assert "Invalid command 'python'" in run_holodeck("validate", cwd=folder, env=env).stderr
    (folder.parent / ".holodeck").mkdir(exist_ok=True)
    (folder.parent / ".holodeck" / "config.yaml").write_text("allowed_commands: [python]\n")
    checked = run_holodeck("validate", cwd=folder, env=env)
    assert checked.returncode == 0, checked.stderr


@async_test
async def test_the_programs_of_imported_servers_are_allowed_by_one_answer(folder: Path) -> None:
    (folder / "two.json").write_text(json.dumps({"mcpServers": {"a": {"command": "python"}, "b": {"command": "node"}}}))
    home = {"HOME": str(folder.parent)}
    settings = folder.parent / ".holodeck" / "config.yaml"
    async with TypingTerminal("mcp", "import", "two.json", cwd=folder, env=home) as terminal:
        await terminal.wait_for("Allow them?")
        assert not settings.exists(), "nothing is allowed before the answer"
        terminal.type_text("n\n")
        await terminal.wait_for("'allowed_commands: [python, node]'")
        assert await terminal.wait_exit() == 0
    assert list(read_entries(folder)) == ["a", "b"], "a no keeps what was imported"
    (folder / "agent.yaml").write_text(AGENT)
    async with TypingTerminal("mcp", "import", "two.json", cwd=folder, env=home) as terminal:
        await terminal.wait_for("Allow them?")
        terminal.type_text("y\n")
        await terminal.wait_for("Added 'b'")
        assert await terminal.wait_exit() == 0
    assert settings.read_text() == "allowed_commands:\n  - python\n  - node\n"
    assert "Invalid command" not in run_holodeck("validate", cwd=folder, env=home).stderr


def test_a_script_allows_the_programs_of_imported_servers_and_is_not_told_to_do_so_twice(folder: Path) -> None:
    done = import_servers(folder, ".vscode/mcp.json", "own", "--yes")
    assert (done.returncode, "invalid until" in done.stderr) == (0, False), done.stderr
    (folder / "agent.yaml").write_text(AGENT)
    again = import_servers(folder, ".vscode/mcp.json", "own")
    assert (again.returncode, "allowed_commands" in again.stderr) == (0, False), again.stderr


def test_named_servers_only_and_a_second_time_changes_nothing(folder: Path) -> None:
    done = import_servers(folder, ".vscode/mcp.json", "files", "--json")
    assert done.returncode == 0, done.stderr
    assert [entry["name"] for entry in json.loads(done.stdout)["imported"]] == ["files"]
    text = (folder / "agent.yaml").read_text()
    again = import_servers(folder, ".vscode/mcp.json", "files")
    assert "nothing was written" in again.stdout
    assert (folder / "agent.yaml").read_text() == text
    (folder / "agent.yaml").write_text(text.replace("/data", "/other"))
    other = import_servers(folder, ".vscode/mcp.json", "files")
    assert other.returncode == 2
    assert "there is another server 'files' already" in other.stderr
    assert "Did you mean 'files'?" in import_servers(folder, ".vscode/mcp.json", "file").stderr


def test_a_gateway_file_gets_mcp_servers(folder: Path) -> None:
    gateway = "models:\n  - name: demo\n    model: {provider: rehearsal}\n"
    (folder / "gateway.yaml").write_text(gateway)
    done = import_servers(folder, ".vscode/mcp.json", "tickets", "--into", "gateway.yaml")
    assert done.returncode == 0, done.stderr
    entry = read_entries(folder, "gateway.yaml", "mcp_servers")["tickets"]
    assert "type" not in entry
    assert entry["url"] == "https://mcp.example.com/mcp"
    refused = import_servers(folder, ".vscode/mcp.json", "files", "--into", "gateway.yaml")
    assert refused.returncode == 2
    assert "allow_stdio: true" in refused.stderr


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.toml", '[mcp_servers.x]\ncommand = "npx"\nargs = ["-y", "x"]\nenv_vars = ["TOKEN"]\n'),
        ("config.yaml", "extensions:\n  x: {type: stdio, cmd: npx, args: [-y, x], env_keys: [TOKEN], enabled: true}\n"),
        (
            "settings.json",
            '{"context_servers": {"x": {"command": "npx", "args": ["-y", "x"], "env": {"TOKEN": "${TOKEN}"}}}}',
        ),
    ],
)
def test_codex_goose_and_zed_are_read_too(folder: Path, name: str, text: str) -> None:
    (folder / "theirs").mkdir()
    (folder / "theirs" / name).write_text(text)
    done = import_servers(folder, f"theirs/{name}")
    assert done.returncode == 0, done.stderr
    assert read_entries(folder)["x"] == {
        "type": "mcp",
        "name": "x",
        "command": "npx",
        "args": ["-y", "x"],
        "env": {"TOKEN": "${TOKEN}"},
    }


def test_what_comes_from_another_file_is_not_trusted_by_its_import(folder: Path) -> None:
    assert run_holodeck("trust", "--yes", cwd=folder).returncode == 0
    assert import_servers(folder, ".vscode/mcp.json", "files").returncode == 0
    listed = run_holodeck("mcp", "list", cwd=folder, env={"HOLODECK_TRUST": "", "PATH": ""})
    assert listed.returncode == 2
    assert "not trusted" in listed.stderr or "has changed since" in listed.stderr
