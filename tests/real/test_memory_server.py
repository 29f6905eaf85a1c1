"""The memory server: its data outlives it, in the file that its variable names."""

from __future__ import annotations

import pytest
from async_tests import async_test
from real.project import LEGACY, START_SECONDS, RealProject

MEMORY = """
tools:
  - name: memory
    description: Remembers
    type: mcp
    server: "@modelcontextprotocol/server-memory"
    command: npx
    env:
      MEMORY_FILE_PATH: "${NOTES}"
"""


@pytest.mark.proves("000:US2-1", "000:FR-008", "000:US1-3", "D-8")
@async_test(START_SECONDS)
async def test_stored_data_is_there_after_a_restart(project: RealProject) -> None:
    notes = project.path / "notes.jsonl"
    fact = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
    async with project.open_server(MEMORY, {"NOTES": str(notes)}) as server:
        assert (await server.call_tool("create_entities", entities=[fact])).success
        assert server.protocol_version == LEGACY
    assert "first program" in notes.read_text()
    async with project.open_server(MEMORY, {"NOTES": str(notes)}) as server:
        graph = await server.call_tool("read_graph")
        assert graph.structured == {"entities": [fact], "relations": []}
