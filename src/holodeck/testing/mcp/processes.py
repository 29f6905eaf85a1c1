"""Faults of a server process at its start: early exits, child processes, ignored signals, a wrapper. And pid files."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from holodeck.testing.mcp.faults import CHILD_SECONDS, Fault
from holodeck.testing.mcp.journal import Journal
from holodeck.testing.mcp.stdio_server import exit_now

_MISSING_KEY = "FATAL: API_KEY is not set"
_SILENT_CODE = 3


def append_pid(pid_file: Path | None, pid: int) -> None:
    """Append the id of a process of this server; the first in the file is the one that was started."""
    if pid_file is not None:
        with pid_file.open("a") as file:
            file.write(f"{pid}\n")


def read_pids(pid_file: Path) -> list[int]:
    """Return the process ids that a server has written to its pid file."""
    return [int(line) for line in pid_file.read_text().split()]


def run_start_fault(fault: Fault | None, pid_file: Path | None, journal: Journal | None) -> None:
    """Perform a fault that happens before any request. May not return."""
    match fault:
        case Fault.DIES_AT_START:
            exit_now(1, _MISSING_KEY, journal)
        case Fault.DIES_AT_START_SILENTLY:
            exit_now(_SILENT_CODE, "", journal)
        case Fault.IGNORES_TERM:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        case Fault.LEAVES_CHILD:
            append_pid(pid_file, _start_helper(holds_pipe=False))
        case Fault.CHILD_HOLDS_PIPE:
            append_pid(pid_file, _start_helper(holds_pipe=True))
        case _:
            return


def run_wrapped(argv: list[str]) -> int:
    """Run the real server as a child and return its exit code. Pipes and process group are shared, as under npx."""
    child = subprocess.Popen(argv)
    try:
        return child.wait()
    except KeyboardInterrupt:
        return child.wait()


def wrapped_argv() -> list[str]:
    """Return the command of the real server: that of this process, with `--inner`."""
    return [sys.executable, "-P", "-m", "holodeck.testing.faulty", *sys.argv[1:], "--inner"]


def _start_helper(*, holds_pipe: bool) -> int:
    output = None if holds_pipe else subprocess.DEVNULL
    code = f"import time; time.sleep({CHILD_SECONDS})"
    helper = subprocess.Popen(
        [sys.executable, "-P", "-S", "-c", code], stdin=subprocess.DEVNULL, stdout=output, stderr=output
    )
    # It outlives this process on purpose: without this, Popen warns that it was not waited for.
    helper.returncode = 0
    return helper.pid
