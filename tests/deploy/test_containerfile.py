"""The container file: its steps make a gateway of this repository, and the image runs it without rights."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from deploy.containerfile import Instruction, arguments_of, copied_paths, env_variables, read_stages
from holodeck_command import run_holodeck

import holodeck as package

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "Containerfile"
BUILD, IMAGE = read_stages(FILE)
ENVIRONMENT = "/opt/holodeck"


def _one(word: str) -> Instruction:
    (found,) = [each for each in IMAGE if each.word == word]
    return found


def test_the_build_copies_only_what_exists_and_what_the_ignore_file_lets_through() -> None:
    sources = {source for many, _ in copied_paths(BUILD) for source in many}
    assert [source for source in sources if not (ROOT / source).exists()] == []
    ignored = (FILE.parent / "Containerfile.dockerignore").read_text().splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == sources
    assert copied_paths(IMAGE) == []


@pytest.mark.long
def test_the_steps_of_the_build_make_an_environment_with_the_locked_versions(tmp_path: Path) -> None:
    """As an engine would run them, in a folder that stands for the image."""
    context, target = tmp_path / "context", tmp_path / "environment"
    for sources, destination in copied_paths(BUILD):
        for source in sources:
            place = context / (source if destination == "./" else destination)
            place.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, place)
    bin_folder = Path(sys.executable).parent
    for step in arguments_of(BUILD, "RUN"):
        if "pip install --no-cache-dir uv==" in step:
            continue  # the tests bring their own uv
        command = step.replace(ENVIRONMENT, str(target))
        env = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            ["/bin/sh", "-c", command], cwd=context, env=env, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{step}\n{done.stderr}"
    program = target / "bin" / "holodeck"
    assert package.__version__ in run_holodeck("--version", cwd=tmp_path, program=program).stdout
    installed = {path.name.split("-")[0].lower() for path in target.rglob("*.dist-info")}
    assert {"uvicorn", "asyncpg", "dbos", "opentelemetry_sdk"} <= installed
    assert installed & {"pytest", "mypy", "kubernetes_validate"} == set()
    lock = (ROOT / "requirements" / "dev.lock").read_text().lower().replace("_", "-")
    versions = [path.name.removesuffix(".dist-info").lower() for path in target.rglob("*.dist-info")]
    names = [entry.replace("_", "-").rsplit("-", 1) for entry in versions if not entry.startswith("holodeck_engine-")]
    assert [name for name, version in names if f"{name}=={version} " not in lock] == []


def test_uv_has_the_version_that_the_makefile_uses() -> None:
    (used,) = re.findall(r"^UV_VERSION := (\S+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert f"uv=={used}" in "\n".join(arguments_of(BUILD, "RUN"))


def test_the_image_runs_the_gateway_without_root_and_without_a_shell() -> None:
    user, _, group = _one("USER").text.partition(":")
    assert int(user) > 0
    assert int(group) > 0
    command = [*_one("ENTRYPOINT").exec_form, *_one("CMD").exec_form]
    assert command == [f"{ENVIRONMENT}/bin/holodeck", "serve", "/etc/holodeck/gateway.yaml"]
    assert f"--from=build {ENVIRONMENT} {ENVIRONMENT}" in arguments_of(IMAGE, "COPY")
    assert env_variables(IMAGE)["HOLODECK_LISTEN__HOST"] == "0.0.0.0"
    assert _one("VOLUME").exec_form == ["/var/lib/holodeck", "/tmp"]
    assert arguments_of(BUILD, "FROM")[0].removesuffix(" AS build") == arguments_of(IMAGE, "FROM")[0]
