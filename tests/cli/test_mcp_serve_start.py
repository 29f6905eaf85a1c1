"""What `holodeck mcp serve` says at its start: to a client that it cannot serve, and to a person about HTTP."""

from __future__ import annotations

import json
import re

import pytest
from cli.mcp_project import NPX, MCPProject
from holodeck_command import run_holodeck

REQUEST = '{"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {}}\n'
DISCOVERY = '{"jsonrpc": "2.0", "id": "first", "method": "server/discover", "params": {}}\n'
NOTIFICATION = '{"jsonrpc": "2.0", "method": "notifications/initialized"}\n'


def _serve(project: MCPProject, *args: str, stdin: str) -> tuple[int, list[dict[str, object]], str]:
    env = {**project.env, "HOLODECK_TRUST": ""}
    done = run_holodeck("mcp", "serve", *args, cwd=project.path, env=env, stdin=stdin)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_a_client_is_told_that_its_file_is_not_trusted_and_how_to_trust_it(project: MCPProject) -> None:
    project.write_servers(s=NPX)
    file = str(project.path / "mcp.json")
    code, messages, stderr = _serve(project, file, stdin=REQUEST)
    (message,) = messages
    assert (code, message["id"]) == (2, 7)
    assert f"'holodeck trust {file}'" in str(message["error"])
    assert "not trusted" in stderr
    assert project.running_servers() == []


def test_a_client_that_tries_both_eras_is_told_in_each(project: MCPProject) -> None:
    project.write_servers(s=NPX)
    _, messages, _ = _serve(project, stdin=DISCOVERY + NOTIFICATION + REQUEST)
    assert [message["id"] for message in messages] == ["first", 7]


@pytest.mark.parametrize("stdin", ["", NOTIFICATION, "no JSON\n"])
def test_what_is_no_request_is_not_answered(project: MCPProject, stdin: str) -> None:
    project.write_servers(s=NPX)
    code, messages, stderr = _serve(project, stdin=stdin)
    assert (code, messages) == (2, [])
    assert "not trusted" in stderr


def test_a_client_is_told_of_a_server_that_the_file_does_not_have(project: MCPProject) -> None:
    project.write_servers(memory=NPX)
    code, messages, _ = _serve(project, "--trust", "--server", "memry", stdin=REQUEST)
    assert code == 2
    assert "Did you mean 'memory'?" in str(messages[0]["error"])


def test_a_client_is_told_of_a_file_that_is_wrong(project: MCPProject) -> None:
    (project.path / "agent.yaml").write_text("name: helper\ntolls: []\n")
    code, messages, _ = _serve(project, stdin=REQUEST)
    assert code == 2
    assert "Did you mean 'tools'?" in str(messages[0]["error"])


def test_over_http_the_servers_of_a_file_and_their_address_are_shown_and_nothing_else(project: MCPProject) -> None:
    project.write_servers(memory=NPX, notes=NPX)
    with project.start_mcp("serve", "--http", "--port", "0", "mcp.json") as process:
        assert process.stderr is not None
        first = process.stderr.readline().decode()
        process.terminate()
        rest = process.stderr.read().decode()
    assert re.fullmatch(r"Serving memory, notes at http://127\.0\.0\.1:\d+/mcp\n", first)
    assert "WARNING" not in rest
