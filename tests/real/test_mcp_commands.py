"""The `holodeck mcp` commands with a real server, from the file that an editor wrote for it."""

from __future__ import annotations

import json
import subprocess

from holodeck_command import run_holodeck
from real.project import START_SECONDS, RealProject, search_path

VS_CODE = """{
  // as an editor writes it
  "inputs": [{"id": "greeting", "type": "promptString", "description": "What to say"}],
  "servers": {
    "everything": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-everything"],
      "env": {"GREETING": "${input:greeting}"},
    },
  },
}
"""


def _run(project: RealProject, *args: str) -> subprocess.CompletedProcess[str]:
    return run_holodeck("mcp", *args, cwd=project.path, env={"PATH": search_path(), "INPUT_GREETING": "ahoy"})


def test_a_person_looks_at_a_server_and_calls_its_tools(project: RealProject) -> None:
    project.write(".vscode/mcp.json", VS_CODE)
    listed = json.loads(_run(project, "list", "--json", "--timeout", str(START_SECONDS)).stdout)["servers"]
    assert [(server["state"], server["tools"] > 5, server["prompts"] > 1) for server in listed] == [("up", True, True)]
    assert "echo" in _run(project, "tools", "everything").stdout
    assert "simple-prompt" in _run(project, "prompts").stdout
    assert _run(project, "call", "everything", "echo", "message=hello").stdout.strip() == "Echo: hello"
    assert "ahoy" in _run(project, "call", "get-env").stdout
    image = _run(project, "call", "get-tiny-image", "--out", "pictures")
    assert image.returncode == 0
    saved = next((project.path / "pictures").iterdir())
    assert (saved.name, saved.read_bytes()[:4]) == ("everything-get-tiny-image-1.png", b"\x89PNG")
    wrong = _run(project, "call", "everything", "get-sum", '{"a": "x"}')
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.strip()
    assert _run(project, "doctor").returncode == 0
