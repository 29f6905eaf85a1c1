"""A container engine, where this machine has one that works, and an image with a real server that needs no registry."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from installed_servers import PACKAGES

from holodeck.tools.mcp.transports.stdio import child_environment

DOCKER = "docker"
"""The property of a test report that says how it went with containers; the end of a test run shows it."""
IMAGE = "holodeck-test-everything:latest"
SERVER = "/srv/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
SECONDS = 120
"""The longest that the engine may take for anything."""


@dataclass(frozen=True, kw_only=True)
class ContainerEngine:
    """What answers to `docker`."""

    name: str
    """`docker` or `podman`."""
    program: str

    def run(self, *arguments: str) -> str:
        """Run a command of the engine, in the environment that a server has, and return what it prints."""
        command = [self.program, *arguments]
        env = child_environment(os.environ, {})
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=SECONDS)
        if done.returncode != 0:
            raise EngineError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"{arguments} failed")
        return done.stdout

    def version(self, question: str) -> str | None:
        """Its version, if it answers at all: a client without its daemon does not."""
        try:
            return self.run("info", "--format", question).strip() or None
        except (EngineError, OSError, subprocess.TimeoutExpired):
            return None

    def as_docker(self, folder: Path) -> str:
        """A PATH on which `docker` is this engine."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "docker").symlink_to(self.program)
        return f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"

    def remove_image(self) -> None:
        """Remove the image, if it is there."""
        with suppress(EngineError, OSError, subprocess.TimeoutExpired):
            self.run("rmi", "-f", IMAGE)

    def containers(self, part_of_name: str) -> list[str]:
        """The containers, running or not, with this in their names."""
        return self.run("ps", "-a", "--filter", f"name={part_of_name}", "--format", "{{.Names}}").split()


class EngineError(Exception):
    """The engine could not do it; the message is its last word."""


def engine_with_image(folder: Path) -> tuple[ContainerEngine | None, str]:
    """An engine that has the image and has run it, if there is one, and a line about how that went."""
    node = next(PACKAGES.glob("node-linux-*/bin/node"), None)
    reason = "no engine"
    for name, question in (("docker", "{{.ServerVersion}}"), ("podman", "{{.Version.Version}}")):
        program = shutil.which(name)
        if program is None or node is None:
            continue
        found = ContainerEngine(name=name, program=program)
        version = found.version(question)
        if version is None:
            continue
        try:
            _make_image(found, node, folder)
            found.run("run", "--rm", "--network", "none", "--entrypoint", "/bin/node", IMAGE, "--version")
        except (EngineError, OSError, subprocess.TimeoutExpired) as error:
            found.remove_image()
            reason = f"no engine that works (the last word of {name}: {error})"
            continue
        return found, f"a real container was started ({name} {version})"
    return None, f"{reason}, argv only"


def _make_image(running: ContainerEngine, node: Path, folder: Path) -> None:
    """Pack Node.js, the libraries it needs and the server, and give them to the engine as an image."""
    archive = folder / "image.tar"
    with tarfile.open(archive, "w") as image:
        image.add(node, "bin/node")
        needed = subprocess.run(["ldd", str(node)], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+) \(0x", needed):
            image.add(Path(library).resolve(), library.lstrip("/"))
        for package in PACKAGES.iterdir():
            if not package.name.startswith((".", "node-")):
                image.add(package, f"srv/node_modules/{package.name}", filter=_without_suite)
    start = f"ENTRYPOINT {json.dumps(['/bin/node', SERVER])}"
    running.run("import", "--change", start, str(archive), IMAGE)
    archive.unlink()


def _without_suite(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "/@modelcontextprotocol/conformance" in member.name else member
