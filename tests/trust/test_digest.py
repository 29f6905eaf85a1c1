"""The trust digest: it changes with all that is loaded and acts, and with nothing else, and has nothing of a secret."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from holodeck_command import run_holodeck

from holodeck.cli.output.trust_question import show_actions
from holodeck.config import launch_files
from holodeck.config.actions import Actions, list_actions
from holodeck.config.agent_loader import load_agent_file
from holodeck.config.launch_files import MAX_CODE_FILES
from holodeck.config.mcp_json.loader import load_mcp_servers
from holodeck.lib.redaction import mask_url
from holodeck.trust import Verdict

TOKENS = ("ghp_abcdefghijklmnop0123456789", "f3b1c9d2e8a74650b1c9d2e8a7465011")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with programs, the modules beside them, and data."""
    for name in ("server.py", "helper.py", "pkg/__main__.py", "pkg/part.py", "build/index.js", "build/part.js"):
        _write(tmp_path / name, f"# {name}")
    for name in ("run.sh", "compose.yaml", "stack.yml", "data/notes.py.txt", "notes.db", "config.json", "local/lib.py"):
        _write(tmp_path / name, name)
    for name in ("package.json", "local/pyproject.toml", "node_modules/x/index.js", "docs/a.md", "conf/tool.toml"):
        _write(tmp_path / name, "{}")
    return tmp_path


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _actions_of(folder: Path, command: str, *args: str, **more: Any) -> Actions:
    entry = {"command": command, "args": list(args), **more}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"own": entry}}))
    return list_actions(load_mcp_servers(folder / "mcp.json", environ={}, cwd=folder))


RUNS = [
    (["python3", "server.py"], ["server.py", "helper.py", "pkg/part.py"]),
    (["python3", "./pkg"], ["pkg/__main__.py", "pkg/part.py"]),
    (["/usr/bin/python3.12", "-u", "server.py"], ["server.py"]),
    (["python", "-m", "pkg"], ["pkg/__main__.py", "helper.py"]),
    (["uv", "run", "server.py"], ["server.py", "helper.py"]),
    (["uvx", "--from", "./local", "tool"], ["local/lib.py", "local/pyproject.toml"]),
    (["uvx", "--from=./local", "tool"], ["local/lib.py"]),
    (["node", "build/index.js"], ["build/index.js", "build/part.js", "package.json"]),
    (["npx", "-y", "./"], ["package.json", "build/index.js"]),
    (["bash", "run.sh"], ["run.sh"]),
    (["sh", "-c", "exec python3 server.py; true"], ["server.py"]),
    (["./run.sh"], ["run.sh"]),
    (["docker", "compose", "run", "server"], ["compose.yaml"]),
    (["docker", "compose", "-f", "stack.yml", "run", "server"], ["stack.yml"]),
    (["some-server", "--config", "conf/tool.toml"], ["conf/tool.toml"]),
]


@pytest.mark.parametrize(("argv", "files"), RUNS, ids=[" ".join(argv) for argv, _ in RUNS])
def test_a_change_of_a_file_that_the_command_of_a_server_runs_changes_the_digest(
    argv: list[str], files: list[str], folder: Path
) -> None:
    before = _actions_of(folder, *argv)
    for name in files:
        text = (folder / name).read_text()
        (folder / name).write_text(f"{text}\nevil")
        assert _actions_of(folder, *argv).digest != before.digest, name
        (folder / name).write_text(text)
    assert _actions_of(folder, *argv).digest == before.digest
    for name in ("data/notes.py.txt", "notes.db", "node_modules/x/index.js", "docs/a.md"):
        (folder / name).write_text("changed")
    assert _actions_of(folder, *argv, "./data", "notes.db", "--db-path=notes.db") == _actions_of(
        folder, *argv, "./data", "notes.db", "--db-path=notes.db"
    )
    assert _actions_of(folder, *argv).digest == before.digest, "data may change"


def test_a_module_that_appears_beside_a_script_and_shadows_another_changes_the_digest(folder: Path) -> None:
    before = _actions_of(folder, "python3", "server.py")
    (folder / "json.py").write_text("evil")
    assert _actions_of(folder, "python3", "server.py").digest != before.digest


def test_paths_start_from_the_working_folder_of_the_server(folder: Path) -> None:
    before = _actions_of(folder, "python3", "lib.py", cwd=str(folder / "local"))
    (folder / "local" / "lib.py").write_text("evil")
    assert _actions_of(folder, "python3", "lib.py", cwd=str(folder / "local")).digest != before.digest


@pytest.mark.parametrize(("argv", "suffix"), [(["python3", "server.py"], "py"), (["node", "build/index.js"], "js")])
def test_files_beyond_the_limit_of_a_folder_are_counted_and_shown(
    argv: list[str], suffix: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launch_files, "MAX_CODE_FILES", 10)
    assert _actions_of(folder, *argv).not_covered == 0
    for number in range(11):
        (folder / Path(argv[1]).parent / f"z{number}.{suffix}").write_text("")
    actions = _actions_of(folder, *argv)
    extra = actions.not_covered
    covered = [action for action in actions.actions if action.kind == "script" and action.details[0][0] == "sha256"]
    assert (extra > 0, len(covered) >= 10) == (True, True)
    (folder / Path(argv[1]).parent / f"zz.{suffix}").write_text("")
    more = _actions_of(folder, *argv)
    assert (more.not_covered, more.digest != actions.digest) == (extra + 1, True)
    show_actions(folder / "mcp.json", actions, Verdict(state="new"))
    shown = capsys.readouterr().err
    assert f"{extra} more, not covered" in shown
    assert f"not covered: {'they' if extra > 1 else 'it'} may change, and you are not asked again." in shown


def test_trusting_a_file_says_how_many_files_it_does_not_cover(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("")
    for number in range(MAX_CODE_FILES + 2):
        (tmp_path / f"part{number}.py").touch()
    servers = {"own": {"command": "python3", "args": ["server.py"]}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    done = run_holodeck("trust", "--yes", "mcp.json", cwd=tmp_path, env={"HOLODECK_TRUST": ""})
    assert (done.returncode, done.stdout.endswith("is trusted now.\n")) == (0, True), done.stderr
    assert done.stderr == "3 files are not covered: they may change, and you are not asked again.\n"
    data = json.loads(run_holodeck("trust", "--json", "mcp.json", cwd=tmp_path, env={"HOLODECK_TRUST": ""}).stdout)
    assert data["not_covered"] == 3
    assert ["not covered", "3"] in [detail for action in data["actions"] for detail in action["details"]]


def _agent_digest(folder: Path, tool: dict[str, Any], env: str = "", **more: Any) -> str:
    entry = {"type": "mcp", "name": "own", "description": "d", "command": "npx", "args": ["-y", "server"], **tool}
    (folder / ".env").write_text(env)
    (folder / "agent.yaml").write_text(json.dumps({"name": "demo", "tools": [entry], **more}))
    return list_actions(load_agent_file(folder / "agent.yaml", environ={}, home=folder)).digest


@pytest.mark.parametrize("place", ["env", "envFile"])
@pytest.mark.parametrize(
    ("name", "before", "after", "counts"),
    [
        ("DISABLE_AUTH", "0", "1", True),
        ("DISABLE_AUTH", "only-at-home", "always-and-for-all", True),
        ("AUTH_MODE", "strict", "none", True),
        ("TOKEN_CHECK", TOKENS[0], TOKENS[1], True),
        ("API_KEY", "required", "off", True),
        ("MYSQL_ALLOW_EMPTY_PASSWORD", "no", "yes", True),
        ("SKIP_SECRET_SCAN", "false", "true", True),
        ("MY_TOKEN", "plain-words-of-a-person", "other-words-of-a-person", True),
        ("MY_TOKEN", *TOKENS, False),
        ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", TOKENS[1], False),
        ("DB_PASSWORD", "correct horse", "battery staple", False),
        ("AUTHORIZATION", "Basic dTpw", "Basic dTpx", False),
    ],
)
def test_a_value_of_an_env_file_counts_unless_it_is_a_secret_by_its_name_and_its_form(
    place: str, name: str, before: str, after: str, counts: bool, tmp_path: Path
) -> None:
    tool = {"env": {name: f"${{{name}}}"}} if place == "env" else {"envFile": ".env"}
    digests = {_agent_digest(tmp_path, tool, f"{name}={value}\n") for value in (before, after)}
    assert len(digests) == (2 if counts else 1)


def test_what_a_server_loads_and_the_files_that_an_agent_names_count(tmp_path: Path) -> None:
    how = tmp_path / "how.md"
    how.write_text("Be kind.")
    plain = _agent_digest(tmp_path, {}, instructions={"file": "how.md"})
    for flag, value in (("load_tools", False), ("load_prompts", False), ("load_resources", True)):
        assert _agent_digest(tmp_path, {flag: value}, instructions={"file": "how.md"}) != plain, flag
    how.write_text("Be bad.")
    assert _agent_digest(tmp_path, {}, instructions={"file": "how.md"}) != plain
    (tmp_path / "agent.yaml").write_text(json.dumps({"name": "demo", "instructions": {"file": "how.md"}}))
    inert = list_actions(load_agent_file(tmp_path / "agent.yaml", environ={}, home=tmp_path))
    assert inert.actions == (), "alone they do nothing"


def test_no_secret_and_no_digest_of_one_is_in_the_actions_of_a_file(tmp_path: Path) -> None:
    secrets = ["hunter2hunter2", "Basic dTpw", *TOKENS, "url-password", "qwertz12"]
    (tmp_path / ".env").write_text(f"DB_PASSWORD={secrets[0]}\nDATABASE_URL=postgres://me:{secrets[4]}@db.example/x\n")
    local = {"type": "mcp", "name": "a", "description": "d", "command": "npx", "args": ["-y", "x"], "envFile": ".env"}
    remote: dict[str, Any] = {"type": "mcp", "name": "b", "description": "d", "transport": "http"}
    remote |= {"url": f"https://m.example/mcp?api_key={secrets[5]}&mode=fast&t={TOKENS[0]}"}
    remote |= {"headers": {"Authorization": secrets[1], "X-Api-Key": TOKENS[1]}}
    (tmp_path / "agent.yaml").write_text(json.dumps({"name": "demo", "tools": [local, remote]}))
    actions = list_actions(load_agent_file(tmp_path / "agent.yaml", environ={}, home=tmp_path))
    text = json.dumps([action.to_data() for action in actions.actions])
    for secret in secrets:
        assert secret not in text
        assert hashlib.sha256(secret.encode()).hexdigest()[:12] not in text
    assert "https://m.example/mcp?api_key=***&mode=fast&t=***" in text
    assert "postgres://***@db.example/x" in text


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://u:p@h.example/a?x=1", "https://***@h.example/a?x=1"),
        ("wss://h.example/mcp?api_key=abc&read_only=true", "wss://h.example/mcp?api_key=***&read_only=true"),
        ("https://h.example/f3b1c9d2e8a74650b1c9d2e8a7465011/mcp", "https://h.example/***/mcp"),
        (f"https://h.example/?{TOKENS[1]}", "https://h.example/?***"),
        ("https://h.example/mcp#secret", "https://h.example/mcp#***"),
        ("https://h.example/mcp?disable_auth=yes", "https://h.example/mcp?disable_auth=yes"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert mask_url(url) == shown
