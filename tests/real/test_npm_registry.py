"""The first start on a machine: `npx -y` fetches the package from the registry, and we wait for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from async_tests import async_test
from real.project import START_SECONDS, RealProject

MEMORY = """
tools:
  - name: memory
    description: Remembers
    type: mcp
    command: npx
    args: ["-y", "@modelcontextprotocol/server-memory@2026.8.31"]
    env:
      MEMORY_FILE_PATH: "${workspaceFolder}/notes.jsonl"
"""


@pytest.mark.long
@pytest.mark.proves("000:US1-1", "000:US1-2")
@async_test(START_SECONDS)
async def test_a_package_that_is_not_here_is_fetched_and_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first run of all downloads; later ones find the package where npx itself keeps it.
    monkeypatch.setenv("npm_config_prefix", str(tmp_path / "nothing-installed"))
    project = RealProject(tmp_path)
    async with project.open_server(MEMORY) as server:
        assert "create_entities" in {info.name for info in await server.list_tools()}
        assert (await server.call_tool("read_graph")).success
