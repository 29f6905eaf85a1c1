"""uvx runs the named package, whatever lies in the folder of the agent."""

from __future__ import annotations

from pathlib import Path

import pytest
from async_tests import async_test
from real.project import START_SECONDS, search_path

from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.factory import create_mcp_plugin

INDEX = "http://127.0.0.1:9/simple"


@async_test(START_SECONDS)
async def test_uvx_runs_the_named_package_and_nothing_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, mark = tmp_path / "project", tmp_path / "mark"
    programs = project / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("mcp-server-time", "python", "python3"):
        (programs / name).write_text(f"#!/bin/sh\necho {name} >> '{mark}'\nexit 1\n")
        (programs / name).chmod(0o755)
    (project / ".python-version").write_text(f"{programs}/python\n")
    (project / "uv.toml").write_text(f'index-url = "{INDEX}"\n')
    (project / "pyproject.toml").write_text(
        f'[project]\nname = "mcp-server-time"\nversion = "9"\n[tool.uv]\nindex-url = "{INDEX}"\n'
    )
    (project / ".env").write_text(f"UV_INDEX_URL={INDEX}\nPYTHONPATH={project}\n")
    for module in ("sitecustomize", "mcp_server_time", "usercustomize"):
        (project / f"{module}.py").write_text(f"open({str(mark)!r}, 'a').write('{module}')\n")
    monkeypatch.setenv("PATH", search_path())
    tool = MCPTool.model_validate({"name": "clock", "command": "uvx", "args": ["mcp-server-time"]})
    async with create_mcp_plugin(tool, base_dir=project) as server:
        assert (await server.call_tool("get_current_time", timezone="UTC")).success
    assert not mark.exists(), mark.read_text()
