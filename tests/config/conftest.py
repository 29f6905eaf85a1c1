"""What tests of configuration share."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent_folder import AgentFolder


@pytest.fixture
def folder(tmp_path: Path) -> AgentFolder:
    """An empty project folder with a home of its own."""
    return AgentFolder(tmp_path)
