"""What the tests with real servers share."""

from __future__ import annotations

from pathlib import Path

import pytest
from real.container_engine import DOCKER
from real.project import RealProject, search_path


@pytest.fixture(autouse=True)
def _tools_of_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", search_path())


@pytest.fixture
def project(tmp_path: Path) -> RealProject:
    return RealProject(tmp_path)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for found in terminalreporter.stats.values() for report in found]
    properties = [each for report in reports for each in getattr(report, "user_properties", [])]
    for line in dict.fromkeys(str(value) for name, value in properties if name == DOCKER):
        terminalreporter.write_line(f"docker: {line}")
