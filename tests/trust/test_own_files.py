"""What a person has made or checked just works: `init` trusts its project, `validate` shows what would be asked."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path

import pytest
from holodeck_command import run_holodeck

UNTRUSTED = {"HOLODECK_TRUST": ""}


def test_after_init_nothing_is_asked_also_not_for_a_key_in_an_env_file(tmp_path: Path) -> None:
    args = ("--model", "openai", "--mcp", "npx:some-server", "--non-interactive")
    home = {"HOME": str(tmp_path), **UNTRUSTED}
    assert run_holodeck("init", "mine", *args, cwd=tmp_path, env=home).returncode == 0
    folder = tmp_path / "mine"
    assert run_holodeck("trust", "list", cwd=folder, env=home).stdout.split()[-1] == str(folder / "agent.yaml")
    (folder / ".env").write_text("OPENAI_API_KEY=sk-mine\n")
    known = run_holodeck("trust", cwd=folder, env=home)
    assert (known.returncode, "is trusted already" in known.stdout) == (0, True)


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        ("{provider: openai, name: m}", "openai m at api.openai.com, with the key of OPENAI_API_KEY"),
        (
            "{provider: openai, name: m, endpoint: 'https://m.example/v1'}",
            "openai m at https://m.example/v1, without a key",
        ),
        (
            "{provider: openai, name: m, endpoint: 'https://m.example/v1', api_key: '${OTHER}'}",
            "openai m at https://m.example/v1, with the key of ${OTHER}",
        ),
        (
            "{provider: openai, name: m, endpoint: 'https://m.example/v1?k=secret', api_key: sk-literal}",
            "openai m at https://m.example/v1?k=***",
        ),
        ("{provider: ollama, name: m}", "ollama m at http://localhost:11434, without a key"),
        ("{provider: rehearsal}", "rehearsal"),
    ],
)
def test_validate_shows_the_endpoint_and_where_the_key_comes_from(model: str, shown: str, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "agent.yaml").write_text(f"name: demo\nmodel: {model}\n")
    env = {"OPENAI_API_KEY": "sk-canary", "OTHER": "sk-other", "COLUMNS": "200"}
    done = run_holodeck("validate", cwd=folder, env=env)
    assert shown in done.stdout
    assert not re.search(r"sk-|secret", done.stdout)


def test_validate_shows_the_endpoint_and_the_key_of_each_model_of_a_gateway(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    model = "{provider: openai, name: m, endpoint: 'https://m.example/v1', api_key: '${OTHER}'}"
    (folder / "gateway.yaml").write_text(
        f"models: [{{name: served, model: {model}}}]\nagents: [{{file: agent.yaml}}]\n"
    )
    (folder / "agent.yaml").write_text("name: demo\nmodel: {provider: anthropic, name: c}\n")
    done = run_holodeck("validate", "gateway.yaml", cwd=folder, env={"OTHER": "sk-other", "COLUMNS": "200"})
    assert "served: openai m at https://m.example/v1, with the key of ${OTHER}\n" in done.stdout
    assert "demo: anthropic c at api.anthropic.com, with the key of ANTHROPIC_API_KEY\n" in done.stdout


def test_validate_prints_the_digest_that_ci_allows(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "agent.yaml").write_text(
        "name: demo\nmodel: {provider: ollama, name: m, endpoint: 'http://127.0.0.1:1'}\n"
    )
    printed = run_holodeck("validate", cwd=folder, env=UNTRUSTED).stdout
    trusted = run_holodeck("validate", cwd=folder).stdout
    data = json.loads(run_holodeck("validate", "--json", cwd=folder).stdout)
    refused = run_holodeck("run", "Hi", cwd=folder, env=UNTRUSTED)
    assert f"Trust digest: {data['trust_digest']}\n" in printed
    assert data["trust_digest"] not in trusted, "nothing to copy once the file may be used"
    assert data["trust_digest"] in refused.stderr
    allowed = run_holodeck("run", "Hi", cwd=folder, env={"HOLODECK_TRUST": data["trust_digest"]})
    assert "could not be reached" in allowed.stderr


def test_a_short_key_in_the_file_is_on_no_screen(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    model = "{provider: openai_compatible, name: m, endpoint: 'http://127.0.0.1:1', api_key: '4711'}"
    (folder / "agent.yaml").write_text(f"name: demo\nmodel: {model}\n")
    digest = sha256(b"4711").hexdigest()
    for args in (("validate",), ("validate", "--json"), ("trust", "--json"), ("run", "Hi")):
        done = run_holodeck(*args, cwd=folder, env=UNTRUSTED)
        shown = done.stdout + done.stderr
        assert "4711" not in shown, args
        assert digest[:8] not in shown, args


def test_init_does_not_trust_the_settings_that_were_in_the_folder_before(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.yaml").write_text(
        "mcp_servers: [{name: evil, description: d, command: npx, args: [-y, evil-server]}]"
    )
    home = {"HOME": str(tmp_path), **UNTRUSTED}
    assert run_holodeck("init", "mine", "--non-interactive", cwd=tmp_path, env=home).returncode == 0
    refused = run_holodeck("mcp", "list", cwd=folder, env=home)
    assert (refused.returncode, "not trusted" in refused.stderr) == (2, True)


@pytest.mark.parametrize("link", ["agent.yaml", ".gitignore", "data"])
@pytest.mark.parametrize("force", [(), ("--force",)])
def test_init_writes_through_no_link_in_the_folder(link: str, force: tuple[str, ...], tmp_path: Path) -> None:
    folder, outside = tmp_path / "mine", tmp_path / "outside"
    folder.mkdir()
    if link == "data":
        outside.mkdir()
    (folder / link).symlink_to(outside)
    done = run_holodeck("init", "mine", "--non-interactive", *force, cwd=tmp_path)
    assert not outside.exists() or list(outside.iterdir()) == []
    assert done.returncode == (0 if force and link != "data" else 1)


def test_a_literal_authorization_is_shown_and_stored_as_a_fingerprint(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    headers = "{Authorization: Bearer abcdefgh12, Proxy-Authorization: Basic ijklmnop34, X-Author: ann}"
    (folder / "agent.yaml").write_text(
        "name: demo\nmodel: {provider: rehearsal}\n"
        "tools:\n  - type: mcp\n    name: cloud\n    description: d\n    transport: http\n"
        f"    url: https://mcp.example.com/mcp\n    headers: {headers}\n"
    )
    home = {"HOME": str(tmp_path), **UNTRUSTED}
    assert run_holodeck("trust", "--yes", cwd=folder, env=home).returncode == 0
    shown = run_holodeck("trust", "--json", cwd=folder, env=home).stdout
    details = dict(json.loads(shown)["actions"][0]["details"])
    assert details["headers.X-Author"] == "ann"
    assert details["headers.Authorization"].startswith("***")
    stored = "".join(file.read_text() for file in tmp_path.rglob("*") if file.is_file() and file.parent != folder)
    assert str(folder) in stored
    for secret in ("abcdefgh12", "ijklmnop34"):
        assert secret not in shown + stored
