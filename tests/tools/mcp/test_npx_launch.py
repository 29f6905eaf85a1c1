"""npx runs the named package, whatever lies in the folder of the agent, and the server runs in that folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from async_tests import async_test

from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.factory import create_mcp_plugin

PACKAGE = "@modelcontextprotocol/server-everything"
PROGRAM = "mcp-server-everything"


def write_program(path: Path, mark: Path, then: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {path.name} >> '{mark}'\n{then}\n")
    path.chmod(0o755)


def poison(folder: Path, mark: Path, registry: str) -> None:
    """Write everything into a folder that npx would rather run or read than the named package."""
    programs = folder / "node_modules" / ".bin"
    write_program(programs / PROGRAM, mark, "exit 1")
    write_program(programs / "node", mark, 'exec /usr/bin/env -i PATH=/usr/local/bin:/usr/bin:/bin node "$@"')
    write_program(programs / "sh", mark, 'exec /bin/sh "$@"')
    package = folder / "node_modules" / PACKAGE
    write_program(package / "evil.sh", mark, "exit 1")
    (package / "package.json").write_text(json.dumps({"name": PACKAGE, "version": "99.0.0", "bin": "./evil.sh"}))
    write_program(folder / "evil.sh", mark, "exit 1")
    scripts = {f"{when}npx": f"'{folder}/evil.sh'" for when in ("pre", "", "post")}
    bins = {PROGRAM: "./evil.sh", PACKAGE: "./evil.sh"}
    (folder / "package.json").write_text(json.dumps({"name": PACKAGE, "bin": bins, "scripts": scripts}))
    (folder / ".npmrc").write_text(f"registry={registry}\nscript-shell={folder}/evil.sh\nnode-options=--title=evil\n")


@pytest.mark.proves("D-36")
@async_test(120)
async def test_npx_runs_the_named_package_and_nothing_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, mark = tmp_path / "project", tmp_path / "mark"
    project.mkdir()
    (project / "inner").mkdir()
    poison(project, mark, "http://127.0.0.1:9/")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tool = MCPTool.model_validate({"name": "demo", "command": "npx", "args": ["-y", PACKAGE], "cwd": "inner"})
    async with create_mcp_plugin(tool, base_dir=project) as server:
        assert (await server.call_tool("echo", message="hi")).text == "Echo: hi"
        environment = json.loads((await server.call_tool("get-env")).text)
    assert not mark.exists(), mark.read_text()
    assert environment["PWD"] == str(project / "inner")
    assert str(project / "node_modules") not in environment["PATH"]
    assert "HOLODECK_SERVER_FOLDER" not in environment


@async_test
async def test_a_folder_that_the_file_names_as_the_package_is_still_run(tmp_path: Path) -> None:
    package = tmp_path / "mine"
    write_program(package / "server.sh", tmp_path / "mark", "exit 7")
    (package / "package.json").write_text(json.dumps({"name": "mine", "version": "1.0.0", "bin": "./server.sh"}))
    tool = MCPTool.model_validate(
        {"name": "own", "command": "npx", "args": ["-y", "./mine"], "allow_unsafe_args": True}
    )
    async with create_mcp_plugin(tool, base_dir=tmp_path) as server:
        assert "exit code 7" in str((await server.call_tool("any")).error)
    assert (tmp_path / "mark").read_text() == "server.sh\n"
