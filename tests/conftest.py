"""What all tests share: a home of the run, the state of the process, one PostgreSQL server per worker, and the lines at
the end of a run.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from installed_servers import install_servers
from process_state import ProcessState, restore_logging, restore_secrets
from requirement_manifest import ManifestError, load_requirements, summary
from run_home import PersonsHome, replace_home

if TYPE_CHECKING:
    from storage.postgres_server import PostgresServer

# Before a test module is imported, which could ask for the home.
_persons_home = PersonsHome(os.environ)
replace_home(os.environ)

# Tests start hundreds of processes: each would compile everything that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# With this variable a missing cassette is an error. What is about it sets it: no test depends on where it runs.
os.environ.pop("CI", None)

# The files of tests are their own: commands start what they say. What is about trust sets this to nothing.
os.environ["HOLODECK_TRUST"] = "all"

install_servers()

# A deadline of an example is a timed assertion, which a busy machine fails.
settings.register_profile("holodeck", deadline=None)
settings.load_profile("holodeck")

# A run under nohup ignores SIGHUP, one in the background of a script SIGINT, and a process inherits that: those that
# tests start and signal would not receive it. A handler is not inherited, so with one only this process ignores them.
# A worker cannot know what the run ignores; it ends with the run.
for _number in (signal.SIGHUP, signal.SIGINT):
    _is_worker = _number is signal.SIGHUP and "PYTEST_XDIST_WORKER" in os.environ
    if _is_worker or signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)

# Folders whose tests all start programs, and modules that a test imports to start one.
PROGRAM_FOLDERS = {"cli", "conformance", "console", "deploy", "durable", "real"}
PROGRAM_MODULES = {
    *("gateway.gateway_process", "subprocess", "holodeck_command", "testing.raw_pipes", "pty_terminal"),
    "docs.page_runner",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-counts", action="store_true", help="write the files of recorded counts anew")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import the tests without the garbage collector, and take what is there by then out of every later collection.

    It is some million objects and no garbage, and many tests request a collection.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Drop what a failed test left open, so that no later test of this worker fails for it.

    Its traceback holds the connections that the rest of the test would have closed.
    """
    failed = item.session.testsfailed
    outcome = yield
    if item.session.testsfailed > failed:
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            vars(sys).pop(name, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
    return outcome


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that start a gateway, a database or a program of others: `make check` leaves them out."""
    modules = {item: item.getparent(pytest.Module) for item in items}
    marked = {module for module in set(modules.values()) if module is not None and _starts_programs(module)}
    for item, module in modules.items():
        if module in marked or "postgres" in item.name:
            item.add_marker("program")


def _starts_programs(module: pytest.Module) -> bool:
    used = {getattr(value, "__module__", None) or getattr(value, "__name__", "") for value in vars(module.obj).values()}
    return module.path.parent.name in PROGRAM_FOLDERS or not PROGRAM_MODULES.isdisjoint(used)


@pytest.fixture(autouse=True)
def _process_state() -> Iterator[None]:
    """Fail a test that leaves something in this process that another could notice, and take it away."""
    before = ProcessState()
    with restore_logging(), restore_secrets():
        yield
    if changes := before.restore():
        pytest.fail(f"The test left changed, for all tests after it: {', '.join(changes)}", pytrace=False)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this worker's own, which a test may stop if it starts it again."""
    from storage.postgres_server import running_postgres

    with running_postgres() as server:
        yield server


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that has written into the person's home."""
    if "PYTEST_XDIST_WORKER" not in os.environ and _find_written_files(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _find_written_files(config: pytest.Config) -> list[Path]:
    folder: Path = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    return _persons_home.find_written_files(folder)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    try:
        line = summary(load_requirements())
    except ManifestError as error:
        line = f"requirements: {error}"
    terminalreporter.write_line(line)
    for file in _find_written_files(terminalreporter.config):
        terminalreporter.write_line(f"FAILED: a test wrote {file}. Start its process with a HOME of its own.", red=True)
    seed = terminalreporter.config.getoption("randomly_seed", None)
    if seed is not None:
        terminalreporter.write_line(f"order of the tests: --randomly-seed={seed}")
