"""The built wheel, installed in an empty environment, is the product."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from holodeck_command import run_holodeck

ROOT = Path(__file__).parents[1]


def _uv(*args: str | Path) -> None:
    command = [sys.executable, "-m", "uv", *map(str, args)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def _copy_sources(folder: Path) -> Path:
    """Copy what a wheel is built from, as a clone has it: without a console that was built."""
    ignored = shutil.ignore_patterns("static", "node_modules", "__pycache__")
    folder.mkdir()
    for name in ("src", "docs", "console"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


def test_the_wheel_installs_alone_and_its_commands_work(tmp_path: Path) -> None:
    sources = _copy_sources(tmp_path / "sources")
    _uv("build", "--quiet", "--wheel", "--no-build-isolation", "--out-dir", tmp_path / "dist", sources)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    _uv("venv", "--quiet", "--python", sys.executable, tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    _uv("pip", "install", "--quiet", "--python", python, "--constraint", ROOT / "requirements" / "dev.lock", wheel)
    program = tmp_path / "env" / "bin" / "holodeck"
    home = tmp_path / "home"
    home.mkdir()
    assert "validate" in run_holodeck("--help", cwd=home, program=program).stdout
    assert run_holodeck("init", "my-agent", cwd=home, program=program).returncode == 0
    with ZipFile(wheel) as archive:
        console = [name for name in archive.namelist() if name.startswith("holodeck/gateway/console/static/")]
    assert "holodeck/gateway/console/static/index.html" in console
    assert any(name.endswith(".js.br") for name in console)
    checked = run_holodeck("validate", "my-agent", cwd=home, program=program)
    assert checked.returncode == 0, checked.stderr
    assert (
        run_holodeck("docs", "--list", cwd=home, program=program).stdout
        == run_holodeck("docs", "--list", cwd=home).stdout
    )
    assert run_holodeck("docs", "agent-file", cwd=home, program=program).stdout.startswith("# Agent file\n")
    _add_an_extra_as_the_program_says(home / "my-agent", program)


def _add_an_extra_as_the_program_says(project: Path, program: Path) -> None:
    """An extra that is missing is named with the command that adds it to this very environment."""
    text = "models: [{name: m, model: {provider: rehearsal}}]\nstorage: {url: 'postgresql://me@127.0.0.1/db'}\n"
    (project / "gateway.yaml").write_text(text)
    refused = run_holodeck("validate", "gateway.yaml", cwd=project, program=program)
    assert refused.returncode == 2
    (command,) = [line.partition("Run: ")[2] for line in refused.stderr.splitlines() if "Run: " in line]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path}
    done = subprocess.run(shlex.split(command), env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert run_holodeck("validate", "gateway.yaml", cwd=project, program=program).returncode == 0
