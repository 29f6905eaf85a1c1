"""The misbehaving server as a process that speaks over its standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import select
import stat
import sys
from collections.abc import AsyncIterator
from typing import NoReturn

from holodeck.testing.mcp.action_runner import ActionRunner, Listener, MessageWriter
from holodeck.testing.mcp.actions import Message, encode
from holodeck.testing.mcp.faults import CHILD_SECONDS, MAX_MESSAGE_BYTES, Fault, FaultSchedule
from holodeck.testing.mcp.journal import Journal
from holodeck.testing.mcp.protocol import ServerSession


class DuplexConnection:
    """Answers what comes in, each request in a task of its own, until it is closed."""

    def __init__(self, session: ServerSession, action_runner: ActionRunner, writer: MessageWriter) -> None:
        self._session = session
        self._action_runner = action_runner
        self._writer = writer
        self._tasks: dict[asyncio.Task[None], int | str | None] = {}
        self._listener: Listener | None = None

    def receive(self, message: Message, fault: Fault | None) -> None:
        """Take one message, and the fault that strikes it: a request, a notification, or an answer to a question."""
        method = message.get("method")
        if method is None:
            self._action_runner.receive_answer(message)
            return
        if method == "notifications/cancelled":
            self._cancel((message.get("params") or {}).get("requestId"))
        if "id" not in message:
            return
        if method == "initialize" and self._listener is None:
            self._listener = Listener(self._writer)
            self._action_runner.add_listener(self._listener)
        actions = self._session.actions_for(message, fault)
        task = asyncio.ensure_future(self._action_runner.run(actions, self._writer))
        self._tasks[task] = message["id"]
        task.add_done_callback(self._on_task_done)

    async def close(self) -> None:
        """End everything under way."""
        if self._listener is not None:
            self._action_runner.remove_listener(self._listener)
        running = list(self._tasks)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _cancel(self, request: int | str | None) -> None:
        for task, number in list(self._tasks.items()):
            if number == request:
                task.cancel()

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (fault := task.exception()) is not None and not isinstance(fault, OSError):
            raise fault


STDOUT, _STDERR = 1, 2


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything, and block where nobody reads, as a simple server does."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


class StdioMessageWriter:
    """Standard output, one message per line."""

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal

    async def send_message(self, message: Message) -> None:
        """Write a message and the end of its line."""
        write_all(STDOUT, encode(message) + b"\n")

    async def send_raw(self, data: bytes, *, ended: bool) -> None:
        """Write these bytes."""
        write_all(STDOUT, data + b"\n" if ended else data)

    async def write_stderr(self, data: bytes) -> None:
        """Write to stderr."""
        write_all(_STDERR, data)

    async def die(self, code: int, stderr: str) -> NoReturn:
        """End this process at once, with its last words."""
        exit_now(code, stderr, self._journal)


def exit_now(code: int, stderr: str, journal: Journal | None) -> NoReturn:
    """Write the last words and be gone, without any clean-up, as a crash is."""
    if stderr:
        write_all(_STDERR, stderr.encode() + b"\n")
    if journal is not None:
        journal.write("end", code=code)
    os._exit(code)


async def serve_stdio(session: ServerSession, schedule: FaultSchedule, journal: Journal | None) -> None:
    """Answer until standard input ends."""
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
        for line in sys.stdin.buffer:  # a file or /dev/null: an event loop cannot wait for it, and need not
            yield line
        return
    reader = asyncio.StreamReader(limit=MAX_MESSAGE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line
