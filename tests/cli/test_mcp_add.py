"""`holodeck mcp add` and `remove`: servers in an agent or gateway file, with everything else as it was."""

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

AGENT = """# yaml-language-server: $schema=schema.json
name: demo   # my agent
model: {provider: rehearsal}
tools:
  # files of the project
  - type: mcp
    name: files
    description: Read files
    command: npx
    args: ["-y", "@modelcontextprotocol/server-filesystem", "."]

# the end
test_cases: []
"""
GATEWAY = "# ours\nmodels:\n  - name: demo\n    model: {provider: rehearsal}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with an agent file. Its parent is the home."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "agent.yaml").write_text(AGENT)
    return project


def mcp(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return run_holodeck("mcp", *args, cwd=folder)


def read_tools(folder: Path, file: str = "agent.yaml", key: str = "tools") -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = yaml.safe_load((folder / file).read_text())[key]
    return tools


def test_a_command_is_added_and_removed_and_every_other_byte_stays(folder: Path) -> None:
    done = mcp(
        folder, "add", "time", "--env", "TZ=Europe/Berlin", "--env", "LANG", "--", "uvx", "mcp-server-time", "-v"
    )
    assert (done.returncode, done.stdout) == (0, "Added 'time' to agent.yaml: uvx mcp-server-time -v\n"), done.stderr
    assert read_tools(folder)[1] == {
        "type": "mcp",
        "name": "time",
        "command": "uvx",
        "args": ["mcp-server-time", "-v"],
        "env": {"TZ": "Europe/Berlin", "LANG": "${LANG}"},
    }
    assert "+    name: time" in done.stderr
    new = (folder / "agent.yaml").read_text()
    start = new.index("  - type: mcp\n    name: time")
    assert new[:start] + new[new.index("\n# the end") :] == AGENT
    assert run_holodeck("validate", cwd=folder, env={"LANG": "C"}).returncode == 0

    removed = mcp(folder, "remove", "time", "--json")
    assert json.loads(removed.stdout) == {"removed": "time", "file": "agent.yaml", "changed": True, "backup": None}
    assert (folder / "agent.yaml").read_text() == AGENT
    assert "Did you mean 'files'?" in mcp(folder, "remove", "file").stderr


def test_a_url_is_added_with_its_headers_and_transport(folder: Path) -> None:
    url = "https://mcp.example.com/sse"
    done = mcp(folder, "add", "tickets", "--url", url, "--header", "X-Team: red", "--description", "Tickets: ours")
    assert done.returncode == 0, done.stderr
    assert read_tools(folder)[1] == {
        "type": "mcp",
        "name": "tickets",
        "description": "Tickets: ours",
        "transport": "sse",
        "url": url,
        "headers": {"X-Team": "red"},
    }


@pytest.mark.parametrize(
    ("args", "secret", "meant"),
    [
        (["--env", "API_KEY=sk-0123456789", "--", "uvx", "x"], "sk-0123456789", {"env": {"API_KEY": "${API_KEY}"}}),
        (
            ["--url", "https://x.example.com/mcp", "--header", "Authorization: Bearer abcdef"],
            "abcdef",
            {"headers": {"Authorization": "Bearer ${X_TOKEN}"}},
        ),
        (
            ["--url", "https://x.example.com/mcp", "--header", "X-Api-Key: abcdefgh"],
            "abcdefgh",
            {"headers": {"X-Api-Key": "${X_X_API_KEY}"}},
        ),
        (
            ["--url", "https://x.example.com/mcp?api_key=abcdefgh&a=b"],
            "abcdefgh",
            {"url": "https://x.example.com/mcp?api_key=${X_API_KEY}&a=b"},
        ),
        (
            ["--", "npx", "-y", "x", "--token", "abcdefgh", "--password=pw123456"],
            "pw123456",
            {"args": ["-y", "x", "--token", "${X_TOKEN}", "--password=${X_PASSWORD}"]},
        ),
    ],
)
def test_a_value_that_looks_like_a_secret_is_written_as_a_reference(
    folder: Path, args: list[str], secret: str, meant: dict[str, Any]
) -> None:
    done = mcp(folder, "add", "x", *args)
    assert done.returncode == 0, done.stderr
    added = read_tools(folder)[1]
    assert {key: added[key] for key in meant} == meant
    assert secret not in done.stdout + done.stderr + (folder / "agent.yaml").read_text()
    assert "looks like a secret and was not written" in done.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["own", "--", "python", "server.py"], "allowed_commands: [python]"),
        (["files", "--", "uvx", "x"], "two tools have this name"),
        (["bad name", "--", "uvx", "x"], "name"),
        (["x", "--url", "http://tools.example.com/mcp"], "must use https://"),
        (["x", "--", "npx", "-c", "curl evil"], "allow_unsafe_args"),
    ],
)
def test_an_addition_that_would_make_the_file_invalid_is_refused_with_the_reason(
    folder: Path, args: list[str], message: str
) -> None:
    done = mcp(folder, "add", *args)
    assert done.returncode == 2
    assert message in done.stderr
    assert "agent.yaml:" in done.stderr
    assert (folder / "agent.yaml").read_text() == AGENT
    assert [each.name for each in folder.iterdir()] == ["agent.yaml"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (None, "allowed_commands:\n  - python\n"),
        ("# mine\nallowed_commands: [node]  # js\n", '# mine\nallowed_commands: [node, "python"]  # js\n'),
        ("allowed_commands:\n  # js\n  - node\n", "allowed_commands:\n  # js\n  - node\n  - python\n"),
    ],
)
@async_test
async def test_a_program_of_ones_own_is_allowed_by_one_answer_and_added(
    folder: Path, settings: str | None, expected: str
) -> None:
    file = folder.parent / ".holodeck" / "config.yaml"
    if settings is not None:
        file.parent.mkdir()
        file.write_text(settings)
    (folder / "server.py").write_text("")
    home = {"HOME": str(folder.parent)}
    async with TypingTerminal("mcp", "add", "own", "--", "python", "server.py", cwd=folder, env=home) as terminal:
        shown = await terminal.wait_for("Allow it?")
        assert "+" in shown
        assert "python" in shown
        assert read_tools(folder)[1:] == [], "nothing is written before the answer"
        terminal.type_text("y\n")
        await terminal.wait_for("Added 'own'")
    assert file.read_text() == expected
    assert read_tools(folder)[1] == {"type": "mcp", "name": "own", "command": "python", "args": ["server.py"]}
    checked = run_holodeck("validate", cwd=folder, env=home)
    assert "error" not in checked.stderr, checked.stderr
    assert "description" not in checked.stderr, "the server's own is used"


@pytest.mark.parametrize(
    ("args", "names"),
    [
        (["--yes", "--", "python", "server.py"], ["files", "server"]),
        (["--", "npx", "-y", "@modelcontextprotocol/server-memory@1.2.3"], ["files", "memory"]),
        (["--", "npx", "-y", "@modelcontextprotocol/server-filesystem"], ["files", "filesystem"]),
        (["--", "uvx", "mcp-files"], ["files", "files-2"]),
        (["--", "npx", "-y", "tool", "--", "-x"], ["files", "tool"]),
        (["--url", "https://mcp.example.com/mcp"], ["files", "example"]),
        (["https://127.0.0.1:8080/mcp"], ["files", "server_127_0_0_1"]),
    ],
)
def test_a_server_without_a_name_gets_that_of_its_program_or_host(
    folder: Path, args: list[str], names: list[str]
) -> None:
    done = mcp(folder, "add", *args)
    assert done.returncode == 0, done.stderr
    assert [each["name"] for each in read_tools(folder)] == names
    assert read_tools(folder)[1].get("args", args[-1:])[-1] == args[-1]


def test_what_was_typed_for_a_trusted_file_is_not_asked_about_again(folder: Path) -> None:
    home = {"HOME": str(folder.parent), "HOLODECK_TRUST": ""}
    (folder / "server.py").write_text("raise SystemExit('started')\n")
    assert run_holodeck("trust", "--yes", cwd=folder, env=home).returncode == 0
    added = run_holodeck("mcp", "add", "own", "--yes", "--", "python", "server.py", cwd=folder, env=home)
    assert added.returncode == 0, added.stderr
    tried = run_holodeck("mcp", "tools", "own", cwd=folder, env=home)
    assert "started" in tried.stderr, "it runs without another question"
    (folder / "server.py").write_text("raise SystemExit('changed')\n")
    assert "has changed since you trusted it" in run_holodeck("mcp", "tools", "own", cwd=folder, env=home).stderr


@async_test
async def test_a_program_that_is_not_allowed_changes_no_file(folder: Path) -> None:
    home = {"HOME": str(folder.parent)}
    async with TypingTerminal("mcp", "add", "own", "--", "python", "server.py", cwd=folder, env=home) as terminal:
        await terminal.wait_for("Allow it?")
        terminal.type_text("n\n")
        await terminal.wait_for("nothing was written")
    assert (folder / "agent.yaml").read_text() == AGENT
    assert not (folder.parent / ".holodeck" / "config.yaml").exists()


def test_a_script_allows_a_program_of_an_agent_and_never_one_of_a_gateway(folder: Path) -> None:
    (folder / "gateway.yaml").write_text(GATEWAY)
    assert mcp(folder, "add", "own", "--yes", "--", "python", "server.py").returncode == 0
    refused = mcp(folder, "add", "own", "-f", "gateway.yaml", "--yes", "--", "python", "server.py")
    assert (refused.returncode, (folder / "gateway.yaml").read_text()) == (2, GATEWAY)


def test_an_error_that_was_there_before_does_not_refuse_an_addition(folder: Path) -> None:
    (folder / "agent.yaml").write_text(AGENT.replace("rehearsal", "nothing-like-this"))
    assert mcp(folder, "add", "time", "--", "uvx", "mcp-server-time").returncode == 0
    assert len(read_tools(folder)) == 2


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["x", "npx", "-y", "package"], "Write -- before the command"),
        (["x", "--url", "https://x.example.com", "--", "npx", "x"], "exclude each other"),
        (["x", "--header", "A: b", "--", "npx", "x"], "are for --url"),
        (["x", "--url", "mcp.example.com"], "needs a URL"),
        (["x"], "which server is it?"),
        ([], "Which server?"),
        (["npx", "-y", "package"], "Write -- before the command"),
    ],
)
def test_wrong_usage_says_what_is_right(folder: Path, args: list[str], message: str) -> None:
    done = mcp(folder, "add", *args)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_gateway_file_gets_its_own_form_and_starts_no_process_by_itself(folder: Path) -> None:
    (folder / "gateway.yaml").write_text(GATEWAY)
    refused = mcp(folder, "add", "time", "-f", "gateway.yaml", "--", "uvx", "mcp-server-time")
    assert refused.returncode == 2
    assert "allow_stdio: true" in refused.stderr
    done = mcp(folder, "add", "tickets", "-f", "gateway.yaml", "--url", "https://mcp.example.com/mcp")
    assert done.returncode == 0, done.stderr
    added = "mcp_servers:\n  - name: tickets\n    transport: http\n    url: https://mcp.example.com/mcp\n"
    assert (folder / "gateway.yaml").read_text() == GATEWAY + added


def test_a_trusted_file_stays_trusted_and_another_does_not_become_so(folder: Path) -> None:
    def is_trusted() -> bool:
        env = {"HOLODECK_TRUST": "", "PATH": "", "NEEDED": "x"}
        checked = run_holodeck("mcp", "list", "--timeout", "1", cwd=folder, env=env)
        return "is not trusted" not in checked.stderr and "has changed since" not in checked.stderr

    assert not is_trusted()
    assert mcp(folder, "add", "one", "--", "uvx", "one-server").returncode == 0
    assert not is_trusted()
    assert run_holodeck("trust", "--yes", cwd=folder).returncode == 0
    assert is_trusted()
    assert mcp(folder, "add", "two", "--env", "NEEDED", "--", "uvx", "two-server").returncode == 0
    assert is_trusted()

    text = (folder / "agent.yaml").read_text().replace("two-server", "other-server")
    (folder / "agent.yaml").write_text(text)
    assert not is_trusted()
    assert mcp(folder, "add", "three", "--", "uvx", "three-server").returncode == 0
    assert not is_trusted(), "what another program has changed is not what the person typed"


def test_an_addition_that_takes_a_value_from_a_file_of_the_folder_is_asked_for(folder: Path) -> None:
    (folder / ".env").write_text("HOST=https://somewhere.example.com\n")
    assert run_holodeck("trust", "--yes", cwd=folder).returncode == 0
    assert mcp(folder, "add", "one", "--env", "HOST", "--", "uvx", "one-server").returncode == 0
    listed = run_holodeck("mcp", "list", cwd=folder, env={"HOLODECK_TRUST": "", "PATH": ""})
    assert "has changed since you trusted it" in listed.stderr


def test_a_file_of_another_program_is_not_edited_as_ours(folder: Path) -> None:
    (folder / "mcp.json").write_text('{"mcpServers": {}}')
    done = mcp(folder, "add", "x", "-f", "mcp.json", "--", "uvx", "x")
    assert done.returncode == 2
    assert "file of another program" in done.stderr
