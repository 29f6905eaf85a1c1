"""A person's own server just starts: typed on the command line, in a trusted mcp.json, or by `allowed_commands`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from holodeck_command import run_holodeck
from pty_terminal import TypingTerminal

SERVER = Path(__file__).with_name("own_server.py")
NODE_SERVER = """
require("child_process").spawn(process.argv[2], process.argv.slice(3), {stdio: "inherit"});
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a server in Python, one in JavaScript, and one that is a program."""
    folder = tmp_path / "project"
    (folder / "build").mkdir(parents=True)
    shutil.copy(SERVER, folder / "server.py")
    (folder / "build" / "index.js").write_text(NODE_SERVER)
    program = folder / "my-server"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} server.py "$@"\n')
    program.chmod(0o755)
    return folder


def run(folder: Path, *args: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return run_holodeck(*args, cwd=folder, env={"PATH": path, "HOLODECK_TRUST": "", "UV_OFFLINE": "1", **env})


@pytest.mark.parametrize(
    "command",
    [
        "python server.py by hand",
        f"{sys.executable} server.py by hand",
        f"node build/index.js {sys.executable} server.py by hand",
        f"uv run --no-project --python {sys.executable} server.py by hand",
        "./my-server by hand",
        "sh -c 'exec ./my-server by hand'",
    ],
    ids=["python", "path", "node", "uv", "program", "shell"],
)
def test_a_command_that_is_typed_is_started_whatever_it_is(command: str, folder: Path) -> None:
    listed = run(folder, "mcp", "list", "--json", "--command", command)
    assert (listed.returncode, [server["tools"] for server in json.loads(listed.stdout)["servers"]]) == (0, [1])
    done = run(folder, "mcp", "call", "--command", command, "hello")
    assert (done.returncode, done.stdout) == (0, "hello by hand\n")


OWN = {"command": "python", "args": ["server.py", "from", "json"]}
DIALECTS: dict[str, dict[str, Any]] = {
    "mcp.json": {"mcpServers": {"own": OWN}},
    ".mcp.json": {"mcpServers": {"own": {"type": "stdio", **OWN}}},
    ".vscode/mcp.json": {"servers": {"own": {"type": "stdio", **OWN, "cwd": "${workspaceFolder}"}}},
    ".cursor/mcp.json": {"mcpServers": {"own": {**OWN, "cwd": "${workspaceFolder}"}}},
    "claude_desktop_config.json": {"mcpServers": {"own": OWN}},
    ".gemini/settings.json": {"mcpServers": {"own": {**OWN, "trust": True}}},
}


@pytest.mark.parametrize("name", DIALECTS)
@async_test(60)
async def test_each_dialect_of_mcp_json_starts_its_servers_after_one_yes(name: str, folder: Path) -> None:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(DIALECTS[name]))
    refused = run(folder, "mcp", "list", "-f", file)
    assert (refused.returncode, "is not trusted on this machine" in refused.stderr) == (2, True)
    env = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "HOLODECK_TRUST": ""}
    async with TypingTerminal("mcp", "call", "-f", file, "own", "hello", cwd=folder, env=env) as terminal:
        assert "python server.py from json" in await terminal.wait_for("Do you trust it?")
        terminal.type_text("y\r")
        await terminal.wait_for("hello from json")
        assert await terminal.wait_exit() == 0
    assert run(folder, "mcp", "list", "-f", file).returncode == 0


AGENT = {"name": "demo", "tools": [{"type": "mcp", "name": "own", "description": "d", **OWN}]}


def allow_commands(home: Path, *commands: str) -> None:
    (home / ".holodeck").mkdir(exist_ok=True)
    (home / ".holodeck" / "config.yaml").write_text(json.dumps({"allowed_commands": list(commands)}))


@pytest.mark.proves("D-34")
def test_an_agent_file_starts_what_the_persons_own_settings_allow(folder: Path) -> None:
    (folder / "agent.yaml").write_text(json.dumps(AGENT))
    refused = run(folder, "validate")
    assert "Invalid command 'python'. Supported commands: npx, uvx, docker" in refused.stderr
    assert "write 'allowed_commands: [python]' in ~/.holodeck/config.yaml" in refused.stderr
    allow_commands(folder.parent, "node", "python")
    assert run(folder, "validate").returncode == 0
    asked = run(folder, "mcp", "call", "own", "hello")
    assert (asked.returncode, "is not trusted" in asked.stderr) == (2, True), "allowed is not trusted"
    assert run(folder, "mcp", "call", "--trust", "own", "hello").stdout == "hello from json\n"
    other = {**AGENT["tools"][0], "command": "./python"}  # type: ignore[dict-item]
    (folder / "agent.yaml").write_text(json.dumps({**AGENT, "tools": [other]}))
    assert "Invalid command './python'" in run(folder, "validate").stderr


@pytest.mark.proves("D-34")
def test_a_file_of_the_project_cannot_allow_itself_more(folder: Path) -> None:
    (folder / "agent.yaml").write_text(json.dumps(AGENT))
    (folder / "config.yaml").write_text('{"allowed_commands": ["python"]}')
    refused = run(folder, "validate")
    assert refused.returncode == 2
    assert "a file of a project cannot allow itself more commands" in refused.stderr
    assert "Invalid command 'python'" in refused.stderr
    (folder / "config.yaml").unlink()
    (folder / "agent.yaml").write_text(json.dumps({**AGENT, "allowed_commands": ["python"]}))
    assert "Invalid command 'python'" in run(folder, "validate").stderr


def test_a_gateway_file_allows_commands_for_its_servers_and_agents(folder: Path) -> None:
    (folder / "agent.yaml").write_text(json.dumps(AGENT))
    server = {"name": "mine", "description": "d", "command": "./my-server", "args": ["there"]}
    gateway = {"allow_stdio": True, "agents": [{"file": "agent.yaml"}], "mcp_servers": [server]}
    (folder / "gateway.yaml").write_text(json.dumps(gateway))
    refused = run(folder, "validate", "gateway.yaml")
    assert "Invalid command 'python'" in refused.stderr
    assert "Invalid command './my-server'" in refused.stderr
    assert "write 'allowed_commands: [./my-server]' in gateway.yaml" in refused.stderr
    (folder / "gateway.yaml").write_text(json.dumps(gateway | {"allowed_commands": ["python", "./my-server"]}))
    assert run(folder, "validate", "gateway.yaml").returncode == 0
    asked = run(folder, "mcp", "list", "-f", "gateway.yaml")
    assert (asked.returncode, "is not trusted" in asked.stderr) == (2, True)
    assert run(folder, "trust", "--yes", "gateway.yaml").returncode == 0
    assert run(folder, "mcp", "call", "-f", "gateway.yaml", "mine", "hello").stdout == "hello there\n"
    assert run(folder, "mcp", "call", "-f", "gateway.yaml", "own", "hello").stdout == "hello from json\n"
