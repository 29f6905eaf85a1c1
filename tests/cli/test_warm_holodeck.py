"""Most tests run forks of a process that has imported the package: they do what the installed program does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from holodeck_command import run_holodeck

INSTALLED = Path(sys.executable).with_name("holodeck")


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["validate"],
        ["validate", "missing.yaml"],
        ["run", "-q", "-"],
        ["run", "--no-such-option"],
        ["serve", "agent.yaml", "--port", "no"],
        ["runs", "show", "run_x"],
        ["mcp", "list"],
    ],
    ids=" ".join,
)
def test_a_fork_says_and_does_what_the_installed_program_does(tmp_path: Path, args: list[str]) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "agent.yaml").write_text("name: demo\n")
    program, fork = (
        run_holodeck(*args, cwd=tmp_path / "project", env={"COLUMNS": "90"}, stdin="Hello", program=program)
        for program in (INSTALLED, None)
    )
    assert (fork.returncode, fork.stdout, fork.stderr) == (program.returncode, program.stdout, program.stderr)
    assert fork.stdout or fork.stderr
