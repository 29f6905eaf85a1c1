"""What all tests share: one PostgreSQL server per worker, and the lines at the end of a run."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from requirement_manifest import ManifestError, load_requirements, summary

if TYPE_CHECKING:
    from storage.postgres_server import PostgresServer

# Tests start hundreds of processes: each would compile everything that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A run under nohup or a supervisor ignores SIGINT, and so would every process that a test starts and then interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The garbage collector rests while tests are imported: what that makes is no garbage.
gc.disable()


def pytest_collection_finish() -> None:
    """Take what is there by now, some million objects, out of every later collection: many tests ask for one."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this worker's own, which a test may stop if it starts it again."""
    from storage.postgres_server import running_postgres

    with running_postgres() as server:
        yield server


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    try:
        line = summary(load_requirements())
    except ManifestError as error:
        line = f"requirements: {error}"
    terminalreporter.write_line(line)
