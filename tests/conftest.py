"""What every test may use, and a last line that says how much of the requirements is delivered."""

from __future__ import annotations

from pathlib import Path

import pytest
from agentfile import AgentFolder
from requirement_manifest import ManifestError, load_requirements, summary


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    try:
        line = summary(load_requirements())
    except ManifestError as error:
        line = f"requirements: {error}"
    terminalreporter.write_line(line)


@pytest.fixture
def folder(tmp_path: Path) -> AgentFolder:
    """An empty project folder with a home of its own."""
    return AgentFolder(tmp_path)
