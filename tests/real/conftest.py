"""What the tests with real servers share."""

from __future__ import annotations

from pathlib import Path

import pytest
from real.container_engine import DOCKER
from real.project import Project, search_path


@pytest.fixture(autouse=True)
def _tools_of_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", search_path())


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if DOCKER in config.stash:
        terminalreporter.write_line(f"docker: {config.stash[DOCKER]}")
