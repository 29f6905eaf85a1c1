"""`holodeck keys` and `holodeck validate` for the operator of a gateway."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from holodeck_command import run_holodeck

from holodeck.gateway.auth.callers import APIKeys
from holodeck.models.callers import CallerKey

GATEWAY = """models: [{name: fast, model: {provider: openai, name: gpt-5-mini, api_key: "${KEY}"}}]
mcp_servers: [{name: github, description: d, url: "https://mcp.example/github", headers: {X-Key: "${KEY}"}}]
storage: {url: "postgresql://user:${KEY}@db/holodeck"}
"""


def test_a_key_is_shown_once_and_its_entry_recognises_it(tmp_path: Path) -> None:
    done = run_holodeck("keys", "create", "alice", "--role", "operator", "--json", cwd=tmp_path)
    made = json.loads(done.stdout)
    entry = CallerKey.model_validate(made["entry"])
    caller = asyncio.run(APIKeys([entry]).authenticate(made["key"]))
    assert caller is not None
    assert (caller.id, caller.role) == (f"key:alice#{made['entry']['id']}", "operator")
    assert made["key"] not in json.dumps(made["entry"])
    assert run_holodeck("keys", "create", "bad name!", cwd=tmp_path).returncode == 2


def test_the_entry_that_is_printed_can_be_pasted_into_the_file(tmp_path: Path) -> None:
    said = run_holodeck("keys", "create", "bob", cwd=tmp_path).stdout
    entry = said[said.index("  - name") :]
    (tmp_path / "gateway.yaml").write_text(GATEWAY + "keys:\n" + entry)
    checked = run_holodeck("validate", "gateway.yaml", cwd=tmp_path, env={"KEY": "s3cret"})
    assert checked.returncode == 0, checked.stderr
    assert "bob" in checked.stdout


def test_validate_shows_a_gateway_without_its_secrets(tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text(GATEWAY)
    done = run_holodeck("validate", "gateway.yaml", cwd=tmp_path, env={"KEY": "s3cret", "COLUMNS": "200"})
    for words in ("fast", "127.0.0.1:8080", "nobody but this machine", "https://mcp.example/github", "db/holodeck"):
        assert words in done.stdout
    assert "s3cret" not in done.stdout + done.stderr
    data = json.loads(run_holodeck("validate", "--json", "gateway.yaml", cwd=tmp_path, env={"KEY": "s3cret"}).stdout)
    assert data["gateway"]["serves"] == ["fast"]
    assert "s3cret" not in json.dumps(data)


@pytest.mark.parametrize("command", ["validate", "serve"])
def test_a_short_key_file_beside_the_database_is_refused_with_what_to_do(tmp_path: Path, command: str) -> None:
    (tmp_path / "gateway.yaml").write_text("models: [{name: fast, model: {provider: rehearsal}}]\nlisten: {port: 0}\n")
    (tmp_path / "holodeck.db.key").write_bytes(b"s3cret")
    done = run_holodeck(command, "gateway.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "the key beside the database has 6 bytes" in done.stderr
    assert "remove it" in done.stderr
    assert "s3cret" not in done.stdout + done.stderr
