"""What tests of commands share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.mcp_project import MCPProject


@pytest.fixture
def project(tmp_path: Path) -> Iterator[MCPProject]:
    """A folder with an `mcp.json` whose commands are fakes."""
    made = MCPProject(tmp_path)
    yield made
    made.close()
