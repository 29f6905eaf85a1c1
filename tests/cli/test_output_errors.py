"""Standard output that cannot be written, as on a full disk: every command says so in one line and exits with 1."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

AGENT = """
name: a
model: {provider: rehearsal}
instructions: {inline: Help.}
"""
SERVERS = """
tools:
  - {type: mcp, name: one, description: d, command: npx, server: one}
  - {type: mcp, name: two, description: d, command: npx, server: two}
"""


def _run_with_full_disk(command: str, cwd: Path, *, unbuffered: str = "") -> subprocess.CompletedProcess[str]:
    with Path("/dev/full").open("w") as full:
        return subprocess.run(
            [sys.executable, "-m", "holodeck", *command.split()],
            cwd=cwd,
            env={"PATH": "", "HOME": str(cwd), "PYTHONUNBUFFERED": unbuffered, "HOLODECK_TRUST": "all"},
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(
    "command", ["schema", "validate", "validate --json", "runs list --json", "mcp list", "run -q Hi", "--help"]
)
def test_a_full_disk_is_an_error_in_one_line(tmp_path: Path, command: str, unbuffered: str) -> None:
    (tmp_path / "agent.yaml").write_text(AGENT)
    done = _run_with_full_disk(command, tmp_path, unbuffered=unbuffered)
    assert done.stderr == "Error: Cannot write to standard output: No space left on device.\n"
    assert done.returncode == 1


@pytest.mark.parametrize("command", ["mcp doctor", "mcp doctor --json", "mcp tools --json"])
def test_a_full_disk_is_one_error_also_where_several_servers_are_queried(tmp_path: Path, command: str) -> None:
    (tmp_path / "agent.yaml").write_text(AGENT + SERVERS)
    done = _run_with_full_disk(command, tmp_path)
    assert done.stderr == "Error: Cannot write to standard output: No space left on device.\n"
    assert done.returncode == 1
