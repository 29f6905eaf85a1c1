"""Mounts of a container: only what is below the folder of the file, with symbolic links followed."""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from holodeck_command import run_holodeck

from holodeck.testing import FaultyMCPServer, stand_in, stand_in_calls

IMAGE = "some/image:1.2"
BELOW = [
    "-v .:/data",
    "-v ./data:/data:ro",
    "-v {project}/data:/data",
    "-v ./data/../data/sub:/data",
    "-v ./inside:/data",
    "-v ./not-there-yet:/data",
    "--volume=./data:/data",
    "--mount type=bind,src=data,dst=/data",
    "--mount type=bind,source={project}/data,target=/data,readonly",
    "--mount=type=bind,src=./inside,dst=/data",
    "-v named-volume:/data",
    "-v /only-in-the-container",
    "--mount type=volume,src=named-volume,dst=/data",
    "--mount type=tmpfs,dst=/data",
    "-v /etc/localtime:/etc/localtime:ro",
    "-v ${{workspaceFolder}}/data:/data",
]
OUTSIDE = [
    "-v {outside}:/data",
    "-v {outside}/file.txt:/file.txt:ro",
    "-v ../outside:/data",
    "-v ./../outside:/data",
    "-v ./data/../../outside:/data",
    "-v {project}-twin:/data",
    "-v {folder}:/data",
    "-v ./link:/data",
    "-v ./link/sub:/data",
    "-v {project}/link:/data",
    "-v ./link/../data:/data",
    "-v ./chain:/data",
    "-v ./file-link:/data",
    "-v ./settings:/data:ro",
    "-v {folder}/way-out:/data",
    "--volume {outside}:/data",
    "--volume=./link:/data",
    "-iv{outside}:/data",
    "--mount type=bind,src={outside},dst=/data",
    "--mount type=bind,src=link,dst=/data",
    "--mount type=bind,source=./link/sub,target=/data,ro",
    "--mount type=bind,src=./data,src={outside},dst=/data",
    "-v /etc/localtime:/etc/localtime",
    "-v /var/run/docker.sock:/s",
    "-v ./own-socket:/s",
    "-v ~/work:/data",
    "--volumes-from other",
    "--volumes-from=other:ro",
    "--device /dev/sda",
    "--device=/dev/fuse:/dev/fuse:rwm",
]


class MountProject:
    """A project with folders, links and a socket, beside a folder that is not its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path, self.outside = folder, folder / "project", folder / "outside"
        for path in (self.path / "data" / "sub", self.outside / "sub", folder / "project-twin"):
            path.mkdir(parents=True)
        (self.outside / "file.txt").write_text("private")
        for name, target in (
            ("link", self.outside),
            ("chain", self.path / "link"),
            ("file-link", self.outside / "file.txt"),
            ("inside", self.path / "data"),
            ("settings", Path("/etc")),
        ):
            (self.path / name).symlink_to(target)
        (folder / "way-out").symlink_to(self.outside)
        self.programs = folder / "bin"
        stand_in(self.programs, FaultyMCPServer.command("normal"), name="docker")
        self.env = {"PATH": str(self.programs)}

    def write(self, words: str, **more: Any) -> list[str]:
        """Write an agent file with one server that has these flags, and return its arguments."""
        names = {"project": self.path, "outside": self.outside, "folder": self.folder}
        args = ["run", "-i", *words.format(**names).split(), IMAGE]
        tool = {"type": "mcp", "name": "box", "description": "d", "command": "docker", "args": args, **more}
        (self.path / "agent.yaml").write_text(json.dumps({"name": "demo", "tools": [tool]}))
        (self.path / "mcp.json").write_text(json.dumps({"mcpServers": {"box": {"command": "docker", "args": args}}}))
        return args

    def validate(self) -> tuple[int, list[dict[str, Any]]]:
        """The exit code of `validate`, and the errors that it prints."""
        done = run_holodeck("validate", "--json", cwd=self.path, env=self.env)
        problems = json.loads(done.stdout)["problems"]
        return done.returncode, [problem for problem in problems if problem["severity"] == "error"]

    def count_starts(self) -> int:
        return sum(call[0] == "run" for call in stand_in_calls(self.programs, "docker"))


@pytest.fixture
def project() -> Iterator[MountProject]:
    # The path of a socket is short.
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        made = MountProject(Path(folder).resolve())
        listening.bind(str(made.path / "own-socket"))
        yield made


@pytest.mark.parametrize("words", BELOW)
def test_what_is_below_the_folder_of_the_file_is_mounted(words: str, project: MountProject) -> None:
    project.write(words)
    assert project.validate() == (0, [])
    done = run_holodeck("mcp", "call", "box", "echo", "text=hello", cwd=project.path, env=project.env)
    assert (done.returncode, done.stdout, project.count_starts()) == (0, "hello\n", 1)


@pytest.mark.parametrize("words", OUTSIDE)
def test_everything_else_is_refused_with_its_argument_and_the_way_to_allow_it(
    words: str, project: MountProject
) -> None:
    args = project.write(words)
    flag = args[2].partition("=")[0]
    code, (problem, *others) = project.validate()
    assert (code, others, problem["key"]) == (2, [], "tools[0].args[2]")
    assert f"'{'-v' if flag.startswith('-iv') else flag}' would give the container" in problem["message"]
    assert "allow_unsafe_args: true" in problem["fix"]
    assert run_holodeck("mcp", "tools", cwd=project.path, env=project.env).returncode == 1
    assert project.count_starts() == 0
    project.write(words, allow_unsafe_args=True)
    assert project.validate() == (0, [])


@pytest.mark.parametrize("words", ["-v {outside}:/data", "-v ./link:/data", "--device /dev/fuse"])
def test_a_typed_command_and_a_trusted_file_of_another_program_mount_what_they_say(
    words: str, project: MountProject
) -> None:
    args = project.write(words)
    command = " ".join(["docker", *args])
    for target in (("-f", "mcp.json"), ("--command", command)):
        done = run_holodeck("mcp", "tools", *target, cwd=project.path, env=project.env)
        assert done.returncode == 0, done.stderr
    assert project.count_starts() == 2


def test_a_mount_starts_from_the_folder_in_which_the_container_is_started(project: MountProject) -> None:
    project.write("-v ..:/data", cwd="data/sub")
    assert project.validate() == (0, [])
    project.write("-v ../..:/data", cwd="data")
    assert project.validate()[0] == 2


def test_the_folder_of_the_file_may_itself_be_reached_by_a_link(project: MountProject) -> None:
    project.write("-v ./data:/data")
    linked = project.folder / "linked"
    linked.symlink_to(project.path)
    for file in (linked / "agent.yaml", Path("agent.yaml")):
        assert run_holodeck("validate", file, cwd=linked, env=project.env).returncode == 0
