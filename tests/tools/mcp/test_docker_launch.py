"""A server in a container gets no powers, and no folder to which a symbolic link leads out of the agent's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from async_tests import async_test

from holodeck.models.tool import MCPTool
from holodeck.testing import FaultyMCPServer, stand_in, stand_in_calls
from holodeck.tools.mcp.content import MCPToolResult
from holodeck.tools.mcp.factory import create_mcp_plugin


async def call_echo(folder: Path, args: list[str], monkeypatch: pytest.MonkeyPatch, **fields: bool) -> MCPToolResult:
    """Call a tool of a server that a stand-in for docker starts."""
    path = stand_in(folder / "bin", FaultyMCPServer.command("normal"), name="docker")
    monkeypatch.setenv("PATH", path["PATH"])
    project = folder / "project"
    tool = MCPTool.model_validate({"name": "box", "command": "docker", "args": args, **fields})
    async with create_mcp_plugin(tool, base_dir=project) as plugin:
        return await plugin.call_tool("echo", text="hello")


def flags_of_start(folder: Path) -> list[str]:
    (start,) = [call for call in stand_in_calls(folder / "bin", "docker") if call[0] == "run"]
    return start[: start.index("image")]


@pytest.mark.proves("D-36")
@async_test
async def test_a_container_has_no_capabilities_and_limits_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project").mkdir()
    assert (await call_echo(tmp_path, ["run", "-i", "image"], monkeypatch)).text == "hello"
    restrictions = {"--cap-drop=ALL", "--security-opt=no-new-privileges", "--pids-limit=512", "--memory=2g"}
    assert restrictions <= set(flags_of_start(tmp_path))


@async_test
async def test_the_file_decides_the_restrictions_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    own = ["-m", "8g", "--pids-limit", "50", "--cap-drop=NET_RAW", "--security-opt", "no-new-privileges:true"]
    assert (await call_echo(tmp_path, ["run", "-i", *own, "image"], monkeypatch)).text == "hello"
    flags = flags_of_start(tmp_path)
    assert [flag for flag in flags if flag.startswith(("--cap", "--sec", "--pids", "--mem"))] == [
        "--pids-limit",
        "--cap-drop=NET_RAW",
        "--security-opt",
    ]


@pytest.mark.proves("D-36")
@pytest.mark.parametrize("mount", ["-v={}:/data", "--mount=type=bind,src={},dst=/data"])
@pytest.mark.parametrize("source", ["./data", "{project}/data", "./data/sub"])
@async_test
async def test_a_link_out_of_the_folder_of_the_agent_is_not_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mount: str, source: str
) -> None:
    project, secret = tmp_path / "project", tmp_path / "secret"
    project.mkdir()
    (secret / "sub").mkdir(parents=True)
    (project / "data").symlink_to(secret)
    args = ["run", "-i", mount.format(source.format(project=project)), "image"]
    refused = await call_echo(tmp_path, args, monkeypatch)
    assert "symbolic link" in str(refused.error)
    assert "allow_unsafe_args" in str(refused.error)
    assert stand_in_calls(tmp_path / "bin", "docker") == []
    assert (await call_echo(tmp_path, args, monkeypatch, allow_unsafe_args=True)).success
