"""What tests of commands share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.mcp_project import Project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A folder with an `mcp.json` whose commands are stand-ins."""
    made = Project(tmp_path)
    yield made
    made.close()
