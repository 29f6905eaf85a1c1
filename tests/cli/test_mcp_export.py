"""`holodeck mcp export`: entries for other programs, printed, installed in their files, and removed again."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from cli.mcp_project import NPX, MCPProject
from holodeck_command import run_holodeck
from pty_terminal import CTRL_C, TypingTerminal

from holodeck.config.mcp_json.programs import WRITABLE

AGENT = """name: My helper
model: {provider: rehearsal}
tools:
  - type: mcp
    name: files
    description: Read files
    command: npx
    args: ["-y", "@modelcontextprotocol/server-filesystem", "${workspaceFolder}"]
    env: {API_TOKEN: "${API_TOKEN}"}
    approval: always
  - type: mcp
    name: tickets
    description: Read tickets
    transport: http
    url: https://mcp.example.com/mcp
    headers: {Authorization: "Bearer ${TICKETS_TOKEN}"}
"""
SECRET = "sk-live-0123456789abcdef"
JSON_FILE = """// settings of mine
{
    "theme": "dark", // the good one
    "%s": {
        /* works */
        "memory": {
            "command": "npx",
            "args": ["-y", "memory"], "future": {"key": [1, 2, 3,]},
            "env": {"MEMORY_API_KEY": "SECRET"}
        } // keep
    },
    "zoom": 1.10
}
""".replace("SECRET", SECRET)
YAML_FILE = f"""# goose
GOOSE_MODEL: x   # model
extensions:
  memory:
    enabled: true   # yes
    type: stdio
    cmd: npx
    args: [-y, memory]
    envs: {{MEMORY_API_KEY: {SECRET}}}
  # the end
GOOSE_MODE: auto
"""
TOML_FILE = f"""# codex
model = "gpt-5" # model

[mcp_servers.memory] # mine
command = "npx"
args = ["-y", "memory"]
env = {{ MEMORY_API_KEY = "{SECRET}" }}

[profiles.x]
a = 1_000
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with an agent file. Its parent is the home."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "agent.yaml").write_text(AGENT)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "holodeck").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "holodeck").chmod(0o755)
    return project


def export(folder: Path, *args: str | Path) -> subprocess.CompletedProcess[str]:
    return run_holodeck("mcp", "export", *args, cwd=folder, env={"PATH": str(folder.parent / "bin")})


def write_program_file(folder: Path, name: str) -> Path:
    """A file of the program as a person has it: with a server, comments, and other settings."""
    program = WRITABLE[name]
    file = folder / f"settings.{program.format}"
    text = {"json": JSON_FILE, "yaml": YAML_FILE, "toml": TOML_FILE}[program.format]
    file.write_text(text.replace("%s", str(program.list_path[0])))
    return file


def list_names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_the_agent_is_one_server_that_starts_holodeck_by_its_whole_path(folder: Path) -> None:
    done = export(folder, "--for", "claude")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "mcpServers": {
            "My-helper": {
                "command": str(folder.parent / "bin" / "holodeck"),
                "args": ["mcp", "serve", str(folder / "agent.yaml")],
            }
        }
    }


def test_a_gateway_is_exported_by_its_url_with_the_key_as_a_variable(folder: Path) -> None:
    done = export(folder, "--for", "cursor", "--url", "https://gateway.example.com/mcp", "--name", "team")
    assert json.loads(done.stdout)["mcpServers"] == {
        "team": {
            "url": "https://gateway.example.com/mcp",
            "headers": {"Authorization": "Bearer ${env:HOLODECK_KEY}"},
        }
    }
    assert "HOLODECK_KEY" in done.stderr
    refused = export(folder, "--for", "claude", "--url", "https://gateway.example.com/mcp")
    assert refused.returncode == 2
    assert "Claude Desktop cannot use servers over http" in refused.stderr


def test_servers_are_exported_and_what_the_program_cannot_say_is_named(folder: Path) -> None:
    done = export(folder, "--for", "codex", "--servers", "--json")
    data = json.loads(done.stdout)
    assert data["entries"] == {
        "files": {
            "command": "npx",
            "args": ["-y", "@modelcontextprotocol/server-filesystem", str(folder)],
            "env_vars": ["API_TOKEN"],
        },
        "tickets": {"url": "https://mcp.example.com/mcp", "bearer_token_env_var": "TICKETS_TOKEN"},
    }
    assert tomllib.loads(data["text"])["mcp_servers"] == data["entries"]
    assert [(loss["server"], loss["key"]) for loss in data["lost"]] == [
        ("files", "approval"),
        ("files", "description"),
        ("tickets", "description"),
    ]
    assert data["variables"] == ["API_TOKEN", "TICKETS_TOKEN"]
    assert data["file"] == str(folder.parent / ".codex" / "config.toml")


def test_a_server_that_a_program_cannot_use_is_left_out_and_named(folder: Path) -> None:
    done = export(folder, "--for", "claude", "--servers")
    assert done.returncode == 1
    assert list(json.loads(done.stdout)["mcpServers"]) == ["files"]
    assert "tickets: transport: Claude Desktop cannot use servers over http" in done.stderr
    assert "env.API_TOKEN: Claude Desktop does not replace ${API_TOKEN}" in done.stderr


def test_an_unknown_server_is_refused_with_the_name_that_was_probably_meant(folder: Path) -> None:
    done = export(folder, "file", "--for", "zed")
    assert done.returncode == 2
    assert "Did you mean 'files'?" in done.stderr


def test_the_servers_of_another_programs_file_are_exported_as_one_too(folder: Path) -> None:
    (folder / "mcp.json").write_text('{"mcpServers": {"x": {"command": "npx", "args": ["-y", "x"]}}}')
    entry = json.loads(export(folder, "--for", "zed", "-f", "mcp.json").stdout)["context_servers"]["holodeck"]
    assert entry["args"] == ["mcp", "serve", str(folder / "mcp.json")]


def test_the_installed_entry_starts_holodeck_which_offers_the_tools_of_the_file(project: MCPProject) -> None:
    tool = {"type": "mcp", "name": "files", "description": "d", **NPX}
    model = {"provider": "rehearsal"}
    (project.path / "agent.yaml").write_text(json.dumps({"name": "helper", "model": model, "tools": [tool]}))
    (project.programs / "holodeck").symlink_to(Path(sys.executable).parent / "holodeck")
    assert run_holodeck("trust", "--yes", cwd=project.path, env=project.env).returncode == 0
    assert project.run_mcp("export", "--for", "claude", "--install", "--yes", "--to", "mcp.json").returncode == 0
    listed = project.run_mcp("list", "-f", "mcp.json", "--json")
    assert listed.returncode == 0, listed.stderr
    [server] = json.loads(listed.stdout)["servers"]
    assert server["name"] == "helper"
    assert server["tools"] > 1


def test_a_file_that_is_not_trusted_is_mentioned_because_the_program_cannot_answer(folder: Path) -> None:
    assert "agent.yaml is not trusted yet" in export(folder, "--for", "zed").stderr
    assert run_holodeck("trust", "--yes", cwd=folder, env={"API_TOKEN": "x", "TICKETS_TOKEN": "x"}).returncode == 0
    assert "not trusted" not in export(folder, "--for", "zed").stderr


@pytest.mark.parametrize("name", WRITABLE)
def test_install_and_uninstall_leave_every_other_byte_of_the_file(folder: Path, name: str) -> None:
    file = write_program_file(folder, name)
    before = file.read_text()
    done = export(folder, "--for", name, "--install", "--yes", "--to", file)
    assert done.returncode == 0, done.stderr
    assert "+" in done.stderr
    assert SECRET not in done.stdout + done.stderr
    installed = file.read_text()
    assert "My-helper" in installed
    lines = iter(installed.splitlines())
    assert all(line in lines for line in before.splitlines() if "// keep" not in line), "a comma is added there"
    assert (folder / f"{file.name}.bak").read_text() == before

    again = export(folder, "--for", name, "--install", "--yes", "--to", file)
    assert "nothing was written" in again.stdout
    assert file.read_text() == installed
    assert not (folder / f"{file.name}.bak.2").exists()

    removed = export(folder, "--for", name, "--uninstall", "--yes", "--to", file)
    assert removed.returncode == 0, removed.stderr
    assert file.read_text() == before
    assert (folder / f"{file.name}.bak").read_text() == before, "an older copy is never overwritten"
    assert (folder / f"{file.name}.bak.2").read_text() == installed
    assert "nothing was written" in export(folder, "--for", name, "--uninstall", "--yes", "--to", file).stdout


def test_the_own_file_of_the_program_is_made_if_there_is_none(folder: Path) -> None:
    done = export(folder, "--for", "cursor", "--install", "--yes", "--json")
    file = folder.parent / ".cursor" / "mcp.json"
    assert json.loads(done.stdout)["file"] == str(file)
    assert list(json.loads(file.read_text())["mcpServers"]) == ["My-helper"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list_names(file.parent) == ["mcp.json"]


@pytest.mark.parametrize("text", ['{"mcpServers": {', '{"mcpServers": 5}', '{"a": 1, "a": 2}', "\xff"])
def test_a_broken_file_is_refused_and_stays_as_it_is(folder: Path, text: str) -> None:
    file = folder / "mcp.json"
    file.write_bytes(text.encode("latin-1"))
    done = export(folder, "--for", "cursor", "--install", "--yes", "--to", file)
    assert done.returncode == 2
    assert "mcp.json" in done.stderr
    assert file.read_bytes() == text.encode("latin-1")
    assert not (folder / "mcp.json.bak").exists()


def test_a_symbolic_link_stays_one_and_the_mode_and_the_byte_order_mark_stay(folder: Path) -> None:
    (folder / "dotfiles").mkdir()
    real = folder / "dotfiles" / "mcp.json"
    real.write_bytes(b'\xef\xbb\xbf{"mcpServers": {}}\r\n')
    real.chmod(0o640)
    link = folder / "mcp.json"
    link.symlink_to(real)
    done = export(folder, "--for", "cursor", "--install", "--yes", "--to", link)
    assert done.returncode == 0, done.stderr
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert real.read_bytes().startswith(b"\xef\xbb\xbf{")
    assert b"My-helper" in real.read_bytes()
    assert (folder / "dotfiles" / "mcp.json.bak").exists()


def test_a_folder_in_which_nothing_can_be_written_is_one_sentence(folder: Path) -> None:
    for place in ("/proc/sys/mcp.json", str(folder / "agent.yaml" / "mcp.json")):
        done = export(folder, "--for", "cursor", "--install", "--yes", "--to", place)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.splitlines()[-1].startswith(f"Error: Cannot write {place}: ")


def test_two_installations_at_once_lose_nothing(folder: Path) -> None:
    file = folder / "mcp.json"
    file.write_text('{"mcpServers": {}}')
    install = ["mcp", "export", "--for", "cursor", "--install", "--yes", "--to", str(file)]
    command = [sys.executable, "-m", "holodeck", *install]
    env = {"PATH": os.environ["PATH"], "HOME": str(folder.parent)}
    names = [f"agent-{number}" for number in range(4)]
    running = [
        subprocess.Popen([*command, "--name", name], cwd=folder, env=env, stderr=subprocess.PIPE) for name in names
    ]
    for process in running:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    assert sorted(json.loads(file.read_text())["mcpServers"]) == names


def test_a_process_that_changes_the_folder_and_does_not_end_is_not_overtaken(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        done = export(folder, "--for", "cursor", "--install", "--yes", "--to", "mcp.json")
    finally:
        os.close(handle)
    assert done.returncode == 1
    assert "another process changes it and does not end" in done.stderr
    assert list_names(folder) == ["agent.yaml"]


def test_without_a_terminal_the_difference_is_shown_and_nothing_written(folder: Path) -> None:
    done = export(folder, "--for", "cursor", "--install", "--to", "mcp.json")
    assert done.returncode == 2
    assert '+    "My-helper": {' in done.stderr
    assert "--yes" in done.stderr
    assert not (folder / "mcp.json").exists()


def ask(folder: Path) -> TypingTerminal:
    args: list[Any] = ["mcp", "export", "--for", "cursor", "--install", "--to", "mcp.json"]
    return TypingTerminal(*args, cwd=folder)


@async_test(60)
async def test_the_question_is_answered_with_yes(folder: Path) -> None:
    async with ask(folder) as terminal:
        await terminal.wait_for("Write this? [y/N]")
        assert not (folder / "mcp.json").exists()
        terminal.type_text("y\r")
        await terminal.wait_for("Installed in mcp.json")
        assert await terminal.wait_exit() == 0
    assert "My-helper" in (folder / "mcp.json").read_text()


@pytest.mark.parametrize(("typed", "code"), [("n\r", 2), ("\r", 2), (CTRL_C, 130)])
@async_test(60)
async def test_no_and_ctrl_c_at_the_question_write_nothing(folder: Path, typed: str, code: int) -> None:
    (folder / "mcp.json").write_text("{}")
    async with ask(folder) as terminal:
        await terminal.wait_for("Write this? [y/N]")
        terminal.type_text(typed)
        assert await terminal.wait_exit() == code
        assert "Traceback" not in terminal.text
    assert (folder / "mcp.json").read_text() == "{}"
    assert list_names(folder) == ["agent.yaml", "mcp.json"]


@async_test(60)
async def test_a_file_that_changes_while_the_question_is_open_is_not_overwritten(folder: Path) -> None:
    (folder / "mcp.json").write_text("{}")
    async with ask(folder) as terminal:
        await terminal.wait_for("Write this? [y/N]")
        (folder / "mcp.json").write_text('{"mcpServers": {"other": {}}}')
        terminal.type_text("y\r")
        await terminal.wait_for("changed by another program meanwhile")
        assert await terminal.wait_exit() == 1
    assert (folder / "mcp.json").read_text() == '{"mcpServers": {"other": {}}}'
