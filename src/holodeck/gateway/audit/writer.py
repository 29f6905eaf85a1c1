"""The thread that writes an audit log, with group commit.

`AuditWriter` owns one thread, and the thread owns a `ChainedFile`. Lines are written in the order in which `append` and
`post` were called; those that are queued at the same time are written with one call of the system. `append` returns
once its line is in the file, and on the disk if the file waits for it. The event loop never waits for the file, nor for
the building of a line: a line comes as a function, which the thread calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Sequence

from holodeck.gateway.audit.chained_file import ChainedFile
from holodeck.gateway.audit.entry import Fields
from holodeck.lib.errors import StorageError
from holodeck.lib.record import record

# Queued lines after which no more are collected for one write: the first of them waits for all.
GROUP_COMMIT_LINES = 256

BuildLine = Callable[[], Fields]
"""Builds the fields of a line; called once, on the thread of the writer."""


@record
class _Job:
    lines: Sequence[BuildLine]
    """Empty: only what earlier writes could not say is written."""
    loop: asyncio.AbstractEventLoop | None = None
    future: asyncio.Future[None] | None = None
    """None: nothing waits for the line."""


class AuditWriter:
    """Writes lines in order on one thread, which starts with `open` and ends with `close`."""

    def __init__(self, file: ChainedFile) -> None:
        self._file = file
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.failure: StorageError | None = None
        """Why the latest write failed. None: it did not."""

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        """Start the thread. The file must be open, unless it is opened by a later write."""
        self._thread = threading.Thread(target=self._run_thread, name="audit", daemon=True)
        self._thread.start()

    async def append(self, line: BuildLine) -> None:
        """Write a line. Raises `StorageError` if it is not in the file. A caller that is cancelled does not stop it."""
        await self._submit((line,))

    def post(self, line: BuildLine) -> None:
        """Write a line without waiting for it."""
        self._jobs.put(_Job(lines=(line,)))

    async def recover(self) -> None:
        """Try to write again after a failure. Raises `StorageError`."""
        await self._submit(())

    async def close(self) -> None:
        """Write what is queued, and wait until the thread has closed the file."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            await asyncio.to_thread(thread.join)

    async def _submit(self, lines: Sequence[BuildLine]) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._jobs.put(_Job(lines=lines, loop=loop, future=future))
        await future

    def _run_thread(self) -> None:
        job: _Job | None = None
        is_closing = False
        while not is_closing:
            batch: list[_Job] = []
            job = self._jobs.get()
            while job is not None:
                batch.append(job)
                if len(batch) >= GROUP_COMMIT_LINES:
                    break
                try:
                    job = self._jobs.get_nowait()
                except queue.Empty:
                    break
            is_closing = job is None
            if batch:
                self._write_batch(batch)
        self._file.close()

    def _write_batch(self, batch: Sequence[_Job]) -> None:
        failure: Exception | None
        try:
            written, failure = self._file.append([build() for job in batch for build in job.lines])
        except Exception as bug:
            # Without this thread, every later caller would wait for ever.
            written, failure = 0, bug
        self.failure = failure if failure is None or isinstance(failure, StorageError) else StorageError(repr(failure))
        for job in batch:
            is_written = failure is None or (bool(job.lines) and written > 0)
            written -= len(job.lines)
            if job.loop is not None and job.future is not None:
                # A closed loop raises RuntimeError, and has no caller that waits.
                with contextlib.suppress(RuntimeError):
                    job.loop.call_soon_threadsafe(_resolve_future, job.future, None if is_written else self.failure)


def _resolve_future(future: asyncio.Future[None], failure: Exception | None) -> None:
    # The caller may have been cancelled.
    if future.done():
        return
    if failure is None:
        future.set_result(None)
        return
    future.set_exception(failure)
    # Marks the exception as retrieved: a caller that is cancelled now does not retrieve it.
    future.exception()
