"""A server in a container: the arguments of `docker`, what is not among them, and that no container is left.

Where this machine has an engine, a real container is started as well; the end of the test run says which it was.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from async_tests import async_test
from installed_servers import PACKAGES
from interprocess_lock import interprocess_lock
from real.container_engine import DOCKER, IMAGE, ContainerEngine, engine_with_image
from real.marked_processes import wait_until
from real.parent_process import kill_parent_after_call
from real.project import START_SECONDS, RealProject

from holodeck.lib.redaction import MASK
from holodeck.testing import stand_in, stand_in_calls

EXAMPLE_5 = """
tools:
  - name: docker_mcp
    description: "Containerized MCP server"
    type: mcp
    server: "mcp-server-custom"
    command: docker
    args: ["run", "--rm", "-i", "mcp-server:latest"]
    env:
      API_KEY: "${API_KEY}"
"""
IN_A_CONTAINER = EXAMPLE_5.replace('"-i", "mcp-server:latest"', f'"-i", "--network", "none", "{IMAGE}"')
SECRET = {"API_KEY": "known-to-the-container-only"}
CONTAINER = "holodeck-docker_mcp-"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `docker` that records its arguments and runs the reference server without a container."""
    folder = tmp_path / "bin"
    server = PACKAGES / "@modelcontextprotocol/server-everything/dist/index.js"
    monkeypatch.setenv("PATH", stand_in(folder, ["node", str(server)], name="docker")["PATH"])
    return folder


@pytest.fixture
def real(tmp_path: Path, record_property: Callable[[str, object], None]) -> Iterator[ContainerEngine | None]:
    """An engine that has the image, or None where there is none. One test at a time: they list its containers."""
    with interprocess_lock("docker"):
        running, engine_text = engine_with_image(tmp_path)
        record_property(DOCKER, engine_text)
        yield running
        if running is not None:
            running.remove_image()


@pytest.mark.proves("D-10", "000:US2-1", "000:FR-008", "001:PRAC-2", "003:EX-5")
@async_test(START_SECONDS)
async def test_docker_gets_only_the_names_of_variables_and_removes_the_container(
    project: RealProject, fake: Path
) -> None:
    async with project.open_server(EXAMPLE_5, SECRET) as server:
        environment = json.loads((await server.call_tool("get-env")).text)
        assert environment["API_KEY"] == MASK, "it has the value, and what it repeats of it is masked"
        (start,) = stand_in_calls(fake, "docker")
    name = start[start.index("--name") + 1]
    assert name.startswith(CONTAINER)
    flags = [flag for flag in start if not flag.startswith(("--cap", "--sec", "--pids", "--mem"))]
    assert flags == ["run", "--init", "--name", name, "-e", "API_KEY", "--rm", "-i", "mcp-server:latest"]
    assert stand_in_calls(fake, "docker") == [start, ["rm", "-f", name]]
    assert SECRET["API_KEY"] not in str(start)


@pytest.mark.proves("D-10", "D-17")
def test_we_are_killed_and_the_container_is_still_removed(project: RealProject, fake: Path) -> None:
    file = project.write("agent.yaml", f"name: demo\n{EXAMPLE_5}")
    kill_parent_after_call(file, "echo", {"message": "x"}, env=SECRET, meanwhile=lambda: stand_in_calls(fake, "docker"))
    start, *removals = wait_until(lambda: stand_in_calls(fake, "docker"), is_done=lambda calls: len(calls) > 1)
    assert removals == [["rm", "-f", start[start.index("--name") + 1]]]


@pytest.mark.proves("D-10")
@async_test(START_SECONDS)
async def test_a_real_container_serves_and_is_gone_after_close(
    project: RealProject, real: ContainerEngine | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if real is None:
        return  # reported at the end of the run
    monkeypatch.setenv("PATH", real.as_docker(tmp_path / "bin"))
    async with project.open_server(IN_A_CONTAINER, SECRET) as server:
        environment = json.loads((await server.call_tool("get-env")).text)
        assert environment["API_KEY"] == MASK
        assert environment["HOSTNAME"] != os.uname().nodename
        (name,) = real.containers(CONTAINER)
    assert name not in real.containers(CONTAINER)


@pytest.mark.proves("D-10", "D-17")
def test_we_are_killed_and_a_real_container_goes_with_us(
    project: RealProject, real: ContainerEngine | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if real is None:
        return  # reported at the end of the run
    monkeypatch.setenv("PATH", real.as_docker(tmp_path / "bin"))
    file = project.write("agent.yaml", f"name: demo\n{IN_A_CONTAINER}")
    seen: list[str] = []
    look = lambda: seen.extend(real.containers(CONTAINER))  # noqa: E731
    kill_parent_after_call(file, "echo", {"message": "x"}, env=SECRET, meanwhile=look)
    assert len(seen) == 1
    assert wait_until(lambda: real.containers(CONTAINER), is_done=lambda left: not left) == []
