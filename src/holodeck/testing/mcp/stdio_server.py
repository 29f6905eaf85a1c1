"""The faulty server as a process on standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import select
import stat
import sys
from collections.abc import AsyncIterator
from typing import NoReturn

from holodeck.testing.mcp.action_runner import ActionRunner, DuplexConnection
from holodeck.testing.mcp.actions import Message, encode
from holodeck.testing.mcp.faults import CHILD_SECONDS, MAX_MESSAGE_BYTES, Fault, FaultSchedule
from holodeck.testing.mcp.journal import Journal
from holodeck.testing.mcp.protocol import ServerSession

STDOUT, _STDERR = 1, 2


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
