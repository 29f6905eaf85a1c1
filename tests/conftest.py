"""Every test run ends with how much of the requirements is delivered."""

from __future__ import annotations

import os

import pytest
from requirement_manifest import ManifestError, load_requirements, summary

# Tests start hundreds of processes: each would compile everything that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    try:
        line = summary(load_requirements())
    except ManifestError as error:
        line = f"requirements: {error}"
    terminalreporter.write_line(line)
