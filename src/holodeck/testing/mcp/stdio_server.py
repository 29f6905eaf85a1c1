"""The faulty server as a process on standard input and output.

Faults at its start are early exits, child processes, ignored signals and a wrapper; it also writes pid files.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NoReturn

from holodeck.testing.mcp.action_runner import ActionRunner, DuplexConnection
from holodeck.testing.mcp.actions import Message, encode
from holodeck.testing.mcp.faults import CHILD_SECONDS, MAX_MESSAGE_BYTES, Fault, FaultSchedule
from holodeck.testing.mcp.journal import Journal
from holodeck.testing.mcp.protocol import ServerSession

STDOUT, _STDERR = 1, 2
_MISSING_KEY = "FATAL: API_KEY is not set"
_SILENT_CODE = 3


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`, and block while the pipe is full, as a simple server does."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


class StdioMessageWriter:
    """Writes messages to standard output, one per line."""

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal

    async def send_message(self, message: Message) -> None:
        """Write a message and a line end."""
        write_all(STDOUT, encode(message) + b"\n")

    async def send_raw(self, data: bytes, *, ended: bool) -> None:
        """Write the bytes, with a line end if `ended`."""
        write_all(STDOUT, data + b"\n" if ended else data)

    async def write_stderr(self, data: bytes) -> None:
        """Write to stderr."""
        write_all(_STDERR, data)

    async def die(self, code: int, stderr: str) -> NoReturn:
        """Write `stderr` and end this process at once."""
        exit_now(code, stderr, self._journal)


def exit_now(code: int, stderr: str, journal: Journal | None) -> NoReturn:
    """Write `stderr` and end the process without any clean-up, as in a crash."""
    if stderr:
        write_all(_STDERR, stderr.encode() + b"\n")
    if journal is not None:
        journal.write("end", code=code)
    os._exit(code)


async def serve_stdio(session: ServerSession, schedule: FaultSchedule, journal: Journal | None) -> None:
    """Serve until standard input ends."""
    connection = DuplexConnection(session, ActionRunner(), StdioMessageWriter(journal))
    async for line in read_input_lines():
        try:
            message = json.loads(line)
        except ValueError:
            write_all(_STDERR, b"not JSON: " + line[:200] + b"\n")
            continue
        if journal is not None:
            journal.write("message", message=message)
        fault = schedule.strike_message(message)
        if fault is not None and journal is not None:
            journal.write("fault", fault=str(fault))
        connection.receive(message, fault)
    if schedule.fault in (Fault.IGNORES_TERM, Fault.IGNORES_EOF):
        await asyncio.sleep(CHILD_SECONDS)
    await connection.close()


async def read_input_lines() -> AsyncIterator[bytes]:
    """Yield the lines of standard input until it ends."""
    kind = os.fstat(sys.stdin.fileno()).st_mode
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or sys.stdin.isatty()):
        # A file or /dev/null: an event loop cannot wait for it, and reading it does not block.
        for line in sys.stdin.buffer:
            yield line
        return
    reader = asyncio.StreamReader(limit=MAX_MESSAGE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line


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
